//! Records a drive's work without histograms: enough to compare drives, and much faster.

use biolat_common::size::{BANDS, place};

use super::{Random, drive_model::Op, latency::Latency};

/// Work of a drive since the start of the run.
#[derive(Clone, Copy, Default)]
pub(crate) struct Work {
    /// Work by op, in the order of [`Op`].
    pub(crate) ops: [OpWork; Op::ALL.len()],
}

#[derive(Clone, Copy, Default)]
pub(crate) struct OpWork {
    pub(crate) bytes: f64,
    /// I/Os without data, which are in no size band.
    pub(crate) without_data: Ios,
    pub(crate) bands: [Ios; BANDS],
}

/// Number of I/Os and the sum of their device latencies.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ios {
    pub(crate) count: f64,
    pub(crate) seconds: f64,
}

impl Work {
    /// Adds `count` I/Os and draws their latencies.
    pub(crate) fn add(&mut self, op: Op, bytes: u32, count: u64, latency: Latency, random: &mut Random) {
        let of_op = &mut self.ops[op as usize];
        of_op.bytes += f64::from(bytes) * count as f64;
        let ios = if bytes > 0 { &mut of_op.bands[place(bytes).band()] } else { &mut of_op.without_data };
        ios.count += count as f64;
        ios.seconds += latency.draw_sum(count, random);
    }

    /// Returns the work done since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut work = *self;
        for (op, before) in work.ops.iter_mut().zip(&before.ops) {
            op.bytes -= before.bytes;
            op.without_data = op.without_data.since(before.without_data);
            for (ios, before) in op.bands.iter_mut().zip(before.bands) {
                *ios = ios.since(before);
            }
        }
        work
    }
}

impl OpWork {
    /// Returns the I/Os of all sizes.
    pub(crate) fn all(&self) -> Ios {
        self.bands.iter().fold(self.without_data, |sum, ios| Ios {
            count: sum.count + ios.count,
            seconds: sum.seconds + ios.seconds,
        })
    }
}

impl Ios {
    fn since(self, before: Self) -> Self {
        Self { count: self.count - before.count, seconds: self.seconds - before.seconds }
    }
}
