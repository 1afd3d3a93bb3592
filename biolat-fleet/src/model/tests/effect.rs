//! Tests what effects do, and when.

use crate::model::{
    drive_model::Op,
    effect::{Acting, Change, Effect, Slower},
};

#[test]
fn effects_act_during_their_time_on_affected_ios() {
    let slower = |op, above, is_rising| Change::Slower(Slower { factor: 3.0, op, above, is_rising });
    let effects = [
        Effect { from: 10.0, to: 20.0, change: slower(Some(Op::Write), 65536, false) },
        Effect { from: 15.0, to: 25.0, change: slower(None, 0, true) },
        Effect { from: 15.0, to: 25.0, change: Change::Load(4.0) },
    ];
    let at = |time, op, bytes| Acting::new(&effects, time).slower(op, bytes);
    assert_eq!((at(9.0, Op::Write, 65537), at(10.0, Op::Write, 65537)), (1.0, 3.0));
    assert_eq!((at(12.0, Op::Write, 65536), at(12.0, Op::Read, 1 << 20)), (1.0, 1.0));
    assert_eq!((at(20.0, Op::Read, 4096), at(22.5, Op::Flush, 0)), (2.0, 2.5));
    assert_eq!((at(17.5, Op::Write, 1 << 20), at(25.0, Op::Write, 1 << 20)), (4.5, 1.0));
    assert_eq!((Acting::new(&effects, 12.0).load(), Acting::new(&effects, 16.0).load()), (1.0, 4.0));
}
