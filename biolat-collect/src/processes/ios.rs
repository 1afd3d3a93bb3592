//! Single I/Os with their processes, and the share of them that is sent.

use std::time::{Duration, Instant, SystemTime};

use super::names::Process;

/// I/Os per second above which only a sample is sent.
const MAX_RATE: f64 = 10_000.0;

/// The largest sample is one of this many.
const MAX_ONE_OF: u32 = 1 << 16;

/// How long the rate must stay low before more I/Os are sent again.
const CALM: Duration = Duration::from_secs(1);

/// One I/O.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessIo {
    pub completed: SystemTime,
    pub process: Process,
    pub device: String,
    pub op: String,
    /// First sector, in units of 512 bytes. `None` for a flush.
    pub sector: Option<u64>,
    pub bytes: u32,
    /// Block status; `ok` if it did not fail.
    pub status: &'static str,
    pub queue: Duration,
    pub device_latency: Duration,
    /// It stands for this many I/Os.
    pub one_of: u32,
}

/// Chooses the share of I/Os to send from their rate.
pub(super) struct Sampling {
    one_of: u32,
    completed: u64,
    counted_at: Instant,
    /// Since when fewer I/Os could be left out.
    calm_since: Option<Instant>,
}

impl Sampling {
    pub(super) const fn new(now: Instant) -> Self {
        Self { one_of: 1, completed: 0, counted_at: now, calm_since: None }
    }

    /// Given the number of I/Os so far, returns the new share if it changes.
    pub(super) fn next(&mut self, completed: u64, now: Instant) -> Option<u32> {
        let seconds = now.duration_since(self.counted_at).as_secs_f64().max(1e-3);
        let rate = (completed - self.completed) as f64 / seconds;
        (self.completed, self.counted_at) = (completed, now);
        let wanted = ((rate / MAX_RATE).ceil().max(1.0) as u32).next_power_of_two().min(MAX_ONE_OF);
        if wanted >= self.one_of {
            self.calm_since = None;
        } else if now.duration_since(*self.calm_since.get_or_insert(now)) < CALM {
            return None;
        }
        let has_changed = wanted != self.one_of;
        self.one_of = wanted;
        has_changed.then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Sampling;

    #[test]
    fn samples_above_the_rate_and_returns_when_calm() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut sampling = Sampling::new(start);
        assert_eq!(sampling.next(500, at(100)), None);
        assert_eq!(sampling.next(500 + 3_500, at(200)), Some(4));
        assert_eq!(sampling.next(4_000 + 4_000, at(300)), None);
        assert_eq!(sampling.next(8_000, at(400)), None);
        assert_eq!(sampling.next(8_000 + 4_000, at(500)), None);
        assert_eq!(sampling.next(12_000, at(600)), None);
        assert_eq!(sampling.next(12_000, at(1_500)), None);
        assert_eq!(sampling.next(12_000, at(1_600)), Some(1));
    }
}
