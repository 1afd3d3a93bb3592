//! The worst intervals of a history: those with the longest latencies, the oldest I/Os in flight, or errors.

use std::{cmp::Ordering, collections::HashMap, mem};

use biolat_common::series::Phase;
use biolat_model::{
    interval,
    io_names::IoNames,
    period::{IN_FLIGHT, Period},
    saturating::add,
    snapshot::SlowIo,
    text::time::unix_seconds,
};
use serde::Serialize;

/// Number of rows of each kind.
const SHOWN: usize = 15;

/// The I/O of a device and op in an interval, or in consecutive intervals in which it was slow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorstInterval {
    pub began: f64,
    /// End of the last interval.
    pub ended: f64,
    pub seconds: f64,
    pub intervals: usize,
    pub device: String,
    pub op: String,
    /// The longest latency. It is exact if that I/O was recorded.
    pub latency: f64,
    /// Completion time of that I/O, if it was recorded.
    pub completed: Option<f64>,
    pub ios: u64,
    pub errors: u64,
    /// File and process of that I/O, if it was recorded.
    #[serde(flatten)]
    pub names: IoNames,
}

/// Slightly less than the ratio of a bucket's lower bound to its upper bound.
const BUCKET: f64 = 0.9;

/// Consecutive intervals with latencies of at least this many seconds are one stall.
const SLOW: f64 = interval::SLOW.as_secs() as f64;

/// The worst intervals so far. An I/O that hangs takes one row until it completes; a stall that spans several intervals also
/// takes one row.
#[derive(Default)]
pub struct Worst {
    /// The slowest first.
    slowest: Vec<WorstInterval>,
    /// Other rows with errors, the most errors first.
    failed: Vec<WorstInterval>,
    /// Rows that were slow in the last interval and may continue, by device and op.
    open: HashMap<[String; 2], WorstInterval>,
}

impl Worst {
    /// Adds the next interval, which must have a summary.
    pub fn add(&mut self, interval: &Period) {
        let mut still_open = HashMap::new();
        for mut row in rows_of(interval) {
            let key = [row.device.clone(), row.op.clone()];
            let former = self.open.remove(&key);
            let is_slow = row.latency >= SLOW;
            if let Some(hung) = self.completed_by(&row) {
                row.add_former(&hung);
            }
            match former {
                Some(mut former) if row.continues(&former) => {
                    former.add(&row);
                    row = former;
                }
                Some(former) => self.insert(former),
                None => {}
            }
            if is_slow {
                still_open.insert(key, row);
            } else {
                self.insert(row);
            }
        }
        let over = mem::replace(&mut self.open, still_open);
        over.into_values().for_each(|row| self.insert(row));
    }

    /// Takes the row of the I/O in flight that turns out to be this row's slowest I/O.
    fn completed_by(&mut self, row: &WorstInterval) -> Option<WorstInterval> {
        let in_flight = [row.device.clone(), IN_FLIGHT.to_owned()];
        let completes = row.completes(self.open.get(&in_flight)?);
        completes.then(|| self.open.remove(&in_flight))?
    }

    fn insert(&mut self, row: WorstInterval) {
        let rest = insert(&mut self.slowest, row, |one, other| {
            other.latency.total_cmp(&one.latency).then_with(|| in_order(one, other))
        });
        if let Some(row) = rest.filter(|row| row.errors > 0) {
            insert(&mut self.failed, row, |one, other| {
                other.errors.cmp(&one.errors).then_with(|| in_order(one, other))
            });
        }
    }

    /// Returns the slowest rows, then other rows with errors.
    pub fn end(mut self) -> Vec<WorstInterval> {
        let open = mem::take(&mut self.open);
        open.into_values().for_each(|row| self.insert(row));
        self.slowest.append(&mut self.failed);
        self.slowest
    }
}

/// Inserts a row in order. Returns the row that no longer fits, if any.
fn insert(
    rows: &mut Vec<WorstInterval>,
    row: WorstInterval,
    order: impl Fn(&WorstInterval, &WorstInterval) -> Ordering,
) -> Option<WorstInterval> {
    let place = rows.partition_point(|before| order(before, &row).is_le());
    rows.insert(place, row);
    if rows.len() > SHOWN { rows.pop() } else { None }
}

/// Orders equal rows by time.
fn in_order(one: &WorstInterval, other: &WorstInterval) -> Ordering {
    let place = |row: &WorstInterval| (row.device.clone(), row.op.clone());
    one.began.total_cmp(&other.began).then_with(|| place(one).cmp(&place(other)))
}

impl WorstInterval {
    /// Whether it continues the previous interval's row.
    fn continues(&self, former: &Self) -> bool {
        // An I/O in flight only gets older: a younger one is another I/O.
        self.latency >= SLOW && (self.op != IN_FLIGHT || self.latency > former.latency)
    }

    /// Whether its slowest I/O is the one that hung in flight.
    fn completes(&self, hung: &Self) -> bool {
        self.op != IN_FLIGHT && self.latency >= BUCKET * hung.latency
    }

    /// Adds the row of a later interval.
    fn add(&mut self, later: &Self) {
        if later.latency > self.latency {
            (self.latency, self.completed) = (later.latency, later.completed);
            self.names = later.names.clone();
        }
        self.began = self.began.min(later.began);
        self.ended = later.ended;
        self.seconds += later.seconds;
        self.intervals += later.intervals;
        add(&mut self.ios, later.ios);
        add(&mut self.errors, later.errors);
    }

    /// Adds the earlier row of the same I/O, from when it was still in flight.
    fn add_former(&mut self, hung: &Self) {
        self.began = hung.began;
        self.seconds += hung.seconds;
        self.intervals += hung.intervals;
    }
}

fn rows_of(interval: &Period) -> impl Iterator<Item = WorstInterval> {
    let total = |io: &SlowIo| io.latencies[Phase::Total as usize].unwrap_or_default().as_secs_f64();
    let mut recorded: HashMap<_, &SlowIo> = HashMap::new();
    for io in &interval.slow {
        let slowest = recorded.entry((io.device.as_str(), io.op.as_str())).or_insert(io);
        if total(io) >= total(slowest) {
            *slowest = io;
        }
    }
    interval.summary.iter().map(move |summary| {
        let slowest = recorded.get(&(summary.device.as_str(), summary.op.as_str())).copied();
        // Failed I/Os are recorded whatever their latency, so the slowest recorded I/O is not necessarily the slowest one.
        let slowest = slowest.filter(|io| total(io) >= BUCKET * summary.slowest_seconds);
        WorstInterval {
            began: unix_seconds(interval.began),
            ended: unix_seconds(interval.ended),
            seconds: interval.length.as_secs_f64(),
            intervals: 1,
            device: summary.device.clone(),
            op: summary.op.clone(),
            latency: slowest.map_or(summary.slowest_seconds, total),
            completed: slowest.map(|io| unix_seconds(io.completed)),
            ios: summary.ios,
            errors: summary.errors,
            names: slowest.map(|io| io.names.clone()).unwrap_or_default(),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use biolat_common::series::Phase;
    use biolat_model::{
        io_names::{IoNames, class},
        period::Period,
        text::time::unix_seconds,
    };
    use biolat_testing::samples::{minute, slow_io};

    use super::{IN_FLIGHT, Worst, WorstInterval};

    fn interval(number: u32, op: &str, slowest_seconds: f64, errors: u64) -> Period {
        minute(f64::from(number) * 60.0, op, slowest_seconds, errors)
    }

    fn worst(intervals: &[Period]) -> Vec<WorstInterval> {
        let mut worst = Worst::default();
        intervals.iter().for_each(|interval| worst.add(interval));
        worst.end()
    }

    fn summary(row: &WorstInterval) -> (f64, String, f64, u64) {
        (row.began / 60.0, row.op.to_owned(), row.latency, row.errors)
    }

    /// A day of 1 ms I/Os, with a stall, two minutes with errors, and an I/O in flight for almost a minute.
    #[test]
    fn finds_stalls_and_errors() {
        let mut day: Vec<_> = (0..1560).map(|number| interval(number, "read", 1e-3, 0)).collect();
        day[180] = interval(180, "read", 4.1, 0);
        let mut stall = slow_io(7, "sda");
        stall.latencies[Phase::Total as usize] = Some(Duration::from_secs(4));
        let names = IoNames { class: Some(class::SWAP.into()), ..IoNames::default() };
        stall.names = names.clone();
        stall.completed = day[180].began + Duration::from_millis(4500);
        // One on another device, one with another op.
        let mut others = [slow_io(5, "sdb"), slow_io(6, "sda")];
        others[1].op = "write".into();
        day[180].slow = [&others[..], &[stall]].concat();
        day[700] = interval(700, "read", 1e-3, 9);
        day[800] = interval(800, "read", 1e-3, 12);
        day[900] = interval(900, IN_FLIGHT, 55.0, 0);
        let rows = worst(&day);
        assert_eq!(summary(&rows[0]), (900.0, IN_FLIGHT.to_owned(), 55.0, 0));
        assert_eq!(summary(&rows[1]), (180.0, "read".to_owned(), 4.0, 0));
        assert_eq!((rows[1].completed, &rows[1].names), (Some(180.0 * 60.0 + 4.5), &names));
        let failed: Vec<_> = rows.iter().filter(|row| row.errors > 0).map(summary).collect();
        assert_eq!(failed, [(800.0, "read".to_owned(), 1e-3, 12), (700.0, "read".to_owned(), 1e-3, 9)]);
        assert_eq!(rows.len(), 15 + 2);
        assert!(worst(&[]).is_empty());
    }

    /// An I/O that hangs for an hour and then completes, then a stall of a few minutes, while other I/O continues.
    #[test]
    fn consecutive_intervals_are_one_row() {
        let mut day: Vec<_> = (0..200).map(|number| interval(number, "read", 1e-3, 0)).collect();
        for minute in 1..60_u32 {
            let hung = interval(minute, IN_FLIGHT, 60.0 * f64::from(minute) - 20.0, 0).summary;
            day[minute as usize].summary.extend(hung);
        }
        day[60].summary.extend(interval(60, "write", 3700.0, 1).summary);
        for stalled in &mut day[62..65] {
            stalled.summary[0].slowest_seconds = unix_seconds(stalled.began) / 120.0;
        }
        // Another I/O in flight, much younger.
        for minute in [100, 101, 103] {
            day[minute].summary.extend(interval(0, IN_FLIGHT, 1.0 + minute as f64, 0).summary);
        }
        day[102].summary.extend(interval(102, IN_FLIGHT, 2.0, 0).summary);
        let rows = worst(&day);
        let shown = |row: &WorstInterval| {
            (row.op.to_owned(), row.began / 60.0, row.ended / 60.0, row.intervals, row.latency)
        };
        // The I/O in minute 103 is older than the previous one, so it is taken for the same I/O.
        assert_eq!(shown(&rows[0]), ("write".to_owned(), 1.0, 61.0, 60, 3700.0));
        assert_eq!(shown(&rows[1]), (IN_FLIGHT.to_owned(), 102.0, 104.0, 2, 104.0));
        assert_eq!(shown(&rows[2]), (IN_FLIGHT.to_owned(), 100.0, 102.0, 2, 102.0));
        assert_eq!(shown(&rows[3]), ("read".to_owned(), 62.0, 65.0, 3, 32.0));
        assert_eq!((rows[3].ios, rows[3].seconds, rows[4].latency), (300, 180.0, 1e-3));
    }
}
