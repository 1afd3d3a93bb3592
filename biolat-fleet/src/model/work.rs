//! What a drive did, without its histograms: enough to compare drives, in a small part of the time.

use biolat_common::size::{BANDS, place};

use super::{Random, drive_model::Op, latency::Latency};

/// What a drive did since it began.
#[derive(Clone, Copy, Default)]
pub(crate) struct Work {
    /// In the order of [`Op`].
    pub(crate) ops: [OpWork; Op::ALL.len()],
}

#[derive(Clone, Copy, Default)]
pub(crate) struct OpWork {
    pub(crate) bytes: f64,
    /// Of I/Os without data, which have no size.
    pub(crate) without_data: Ios,
    pub(crate) bands: [Ios; BANDS],
}

/// I/Os, and the sum of their device latencies.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ios {
    pub(crate) count: f64,
    pub(crate) seconds: f64,
}

impl Work {
    /// Draws the latencies of so many I/Os.
    pub(crate) fn add(&mut self, op: Op, bytes: u32, count: u64, latency: Latency, random: &mut Random) {
        let of_op = &mut self.ops[op as usize];
        of_op.bytes += f64::from(bytes) * count as f64;
        let ios = if bytes > 0 { &mut of_op.bands[place(bytes).band()] } else { &mut of_op.without_data };
        ios.count += count as f64;
        ios.seconds += latency.draw_sum(count, random);
    }

    /// What was done since an earlier time.
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
    /// I/Os of all sizes.
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
