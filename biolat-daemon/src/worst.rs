//! The worst intervals of a history: those with the longest latencies or the oldest I/Os in flight, and those with errors.

use serde::Serialize;

use crate::api::{ApiInterval, ApiSlowIo};

/// How many are shown of each kind.
const SHOWN: usize = 15;

/// The lower bound of a bucket, compared with its upper one, and a bit less.
const BUCKET: f64 = 0.9;

/// What a device and op did in an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WorstInterval<'a> {
    pub(crate) began: f64,
    pub(crate) seconds: f64,
    pub(crate) device: &'a str,
    pub(crate) op: &'a str,
    /// The longest latency: exact, if it is that of a recorded I/O.
    pub(crate) latency: f64,
    /// When that I/O completed, if it was recorded.
    pub(crate) completed: Option<f64>,
    pub(crate) ios: u64,
    pub(crate) errors: u64,
}

/// The slowest first; then others with errors, the most first.
pub(crate) fn worst(intervals: &[ApiInterval]) -> Vec<WorstInterval<'_>> {
    let mut rows: Vec<_> = intervals.iter().flat_map(rows_of).collect();
    // Of equal ones the first.
    rows.sort_unstable_by(|one, other| {
        other.latency.total_cmp(&one.latency).then(one.began.total_cmp(&other.began))
    });
    let mut rest = rows.split_off(rows.len().min(SHOWN));
    rest.retain(|row| row.errors > 0);
    rest.sort_unstable_by(|one, other| other.errors.cmp(&one.errors).then(one.began.total_cmp(&other.began)));
    rows.extend(rest.into_iter().take(SHOWN));
    rows
}

fn rows_of(interval: &ApiInterval) -> impl Iterator<Item = WorstInterval<'_>> {
    interval.summary.iter().map(|summary| {
        let total = |io: &ApiSlowIo| io.latency.total.unwrap_or_default();
        let recorded = interval.slow.iter().filter(|io| io.device == summary.device && io.op == summary.op);
        let slowest = recorded.max_by(|one, other| total(one).total_cmp(&total(other)));
        // What failed is recorded however fast it was: a slower one may not be.
        let slowest = slowest.filter(|io| total(io) >= BUCKET * summary.slowest_seconds);
        WorstInterval {
            began: interval.began,
            seconds: interval.seconds,
            device: &summary.device,
            op: &summary.op,
            latency: slowest.map_or(summary.slowest_seconds, total),
            completed: slowest.map(|io| io.completed),
            ios: summary.ios,
            errors: summary.errors,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{WorstInterval, worst};
    use crate::{
        api::{ApiInterval, ApiSummary, IN_FLIGHT},
        report::samples::slow_io,
    };

    fn interval(number: u32, op: &str, slowest_seconds: f64, errors: u64) -> ApiInterval {
        let (device, op) = ("sda".into(), op.into());
        let began = f64::from(number) * 60.0;
        ApiInterval {
            began,
            taken: began + 60.0,
            seconds: 60.0,
            passes: 12,
            failures: 0,
            devices: vec![],
            summary: vec![ApiSummary { device, op, ios: 100, bytes: 4096, errors, slowest_seconds }],
            lost: Default::default(),
            slow: vec![],
            slow_dropped: 0,
        }
    }

    fn summary(row: &WorstInterval<'_>) -> (f64, String, f64, u64) {
        (row.began / 60.0, row.op.to_owned(), row.latency, row.errors)
    }

    /// A day of I/Os of a millisecond, a stall, errors in one minute, and an I/O that took minutes.
    #[test]
    fn stalls_and_errors_are_found() {
        let mut day: Vec<_> = (0..1560).map(|number| interval(number, "read", 1e-3, 0)).collect();
        day[180] = interval(180, "read", 4.1, 0);
        let mut stall = slow_io(7, "sda");
        (stall.latency.total, stall.completed) = (Some(4.0), 180.0 * 60.0 + 4.5);
        // Of another device, or op.
        let mut others = [slow_io(5, "sdb"), slow_io(6, "sda")];
        others[1].op = "write".into();
        day[180].slow = [&others[..], &[stall]].concat();
        day[700] = interval(700, "read", 1e-3, 9);
        day[800] = interval(800, "read", 1e-3, 12);
        day[900] = interval(900, IN_FLIGHT, 55.0, 0);
        let rows = worst(&day);
        assert_eq!(summary(&rows[0]), (900.0, IN_FLIGHT.to_owned(), 55.0, 0));
        assert_eq!(summary(&rows[1]), (180.0, "read".to_owned(), 4.0, 0));
        assert_eq!(rows[1].completed, Some(180.0 * 60.0 + 4.5));
        let failed: Vec<_> = rows.iter().filter(|row| row.errors > 0).map(summary).collect();
        assert_eq!(failed, [(800.0, "read".to_owned(), 1e-3, 12), (700.0, "read".to_owned(), 1e-3, 9)]);
        assert_eq!(rows.len(), 15 + 2);
        assert!(worst(&[]).is_empty());
    }
}
