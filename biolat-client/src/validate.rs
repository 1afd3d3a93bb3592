//! Rejects impossible figures in documents from other hosts. Their text was sanitized when it was read, and sums saturate.

use std::ops::RangeInclusive;

use anyhow::{Result, bail};
use biolat_common::bucket::{BUCKETS, FIRST_NATIVE_INDEX};
use biolat_model::{
    api::{ApiHistory, ApiSlowLog},
    histogram::Histogram,
    period::Period,
    snapshot::{DeviceView, SlowIo, Snapshot, WorkloadView},
};

/// Possible intervals between collections in seconds: the daemon's own limits, with some margin.
const INTERVALS: RangeInclusive<f64> = 0.01..=3600.0;

/// Possible latencies of an I/O in seconds: up to a year.
const LATENCIES: RangeInclusive<f64> = 0.0..=3.2e7;

/// Upper limit on an I/O's age and a history's length, in seconds.
const CENTURY: f64 = 100.0 * 365.25 * 86400.0;

/// Upper limit on the summed time of I/Os, in seconds: a century with a million at a time.
const MAX_SECONDS: f64 = CENTURY * 1e6;

/// More than any version has.
const MAX_BANDS: usize = 64;

/// More CPUs than any kernel supports.
const TOO_MANY_CPUS: usize = 1 << 16;

/// Rejects impossible snapshots.
pub(super) fn snapshot(snapshot: &Snapshot) -> Result<()> {
    has_interval(snapshot.interval.as_secs_f64())?;
    devices(&snapshot.devices)?;
    workloads(snapshot.workloads.as_deref())
}

/// Rejects impossible logs of slow I/Os.
pub(super) fn slow_log(log: &ApiSlowLog) -> Result<()> {
    has_interval(log.interval.as_secs_f64())?;
    slow_ios(&log.ios, log.threshold)
}

/// Rejects impossible histories, without looking at their intervals.
pub fn history(history: &ApiHistory) -> Result<()> {
    has_interval(history.interval)
}

/// Rejects impossible intervals.
pub fn interval(interval: &Period) -> Result<()> {
    for seconds in
        interval.summary.iter().map(|summary| summary.slowest_seconds).chain([interval.length.as_secs_f64()])
    {
        if !(0.0..=CENTURY).contains(&seconds) {
            bail!("malformed answer: a time of {seconds:e} s");
        }
    }
    slow_ios(&interval.slow, None)?;
    devices(&interval.devices)?;
    workloads(interval.workloads.as_deref())
}

fn has_interval(seconds: f64) -> Result<()> {
    if !INTERVALS.contains(&seconds) {
        bail!("malformed answer: it collects every {seconds} s");
    }
    Ok(())
}

fn devices(devices: &[DeviceView]) -> Result<()> {
    for device in devices {
        for op in &device.series {
            let bands = op.sizes.iter().flat_map(|sizes| &sizes.bands);
            if bands.clone().count() > MAX_BANDS {
                bail!("malformed answer: an op with more than {MAX_BANDS} bands of sizes");
            }
            let bands = bands.map(|band| band.device.at_most_schema_1());
            op.histograms.iter().chain(bands).try_for_each(has_known_buckets)?;
        }
        let oldest = device.inflight.oldest.as_secs_f64();
        if oldest > CENTURY {
            bail!("malformed answer: an I/O is {oldest} s old");
        }
        let cpus = device.spread.completions.len();
        if cpus >= TOO_MANY_CPUS {
            bail!("malformed answer: a host with {cpus} CPUs");
        }
    }
    Ok(())
}

fn workloads(workloads: Option<&[WorkloadView]>) -> Result<()> {
    for stalled in workloads.into_iter().flatten().filter_map(|workload| workload.stalled) {
        let seconds = stalled.some.max(stalled.full).as_secs_f64();
        if seconds > CENTURY {
            bail!("malformed answer: a workload was stalled for {seconds:e} s");
        }
    }
    for usage in workloads.into_iter().flatten().flat_map(|workload| &workload.usage) {
        has_known_buckets(usage.latency.at_most_schema_1())?;
        for seconds in [usage.queue_seconds(), usage.device_seconds()] {
            if !(0.0..=MAX_SECONDS).contains(&seconds) {
                bail!("malformed answer: a workload took {seconds:e} s");
            }
        }
    }
    Ok(())
}

fn slow_ios(ios: &[SlowIo], threshold: Option<f64>) -> Result<()> {
    let latencies = ios.iter().flat_map(|io| io.latencies).flatten().map(|latency| latency.as_secs_f64());
    let mut all = latencies.chain(threshold);
    if let Some(latency) = all.find(|latency| !LATENCIES.contains(latency)) {
        bail!("malformed answer: a latency of {latency:e} s");
    }
    if !ios.is_sorted_by(|before, after| before.number < after.number) {
        bail!("malformed answer: the numbers of its I/Os are not ascending");
    }
    Ok(())
}

fn has_known_buckets(histogram: &Histogram) -> Result<()> {
    let known = FIRST_NATIVE_INDEX..FIRST_NATIVE_INDEX + BUCKETS as i32;
    match histogram.buckets.iter().find(|(index, _)| !known.contains(index)) {
        Some((index, _)) => bail!("malformed answer: there is no bucket {index}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use anyhow::Result;
    use biolat_model::{
        api::{ApiHistory, ApiSlowLog},
        period::{Period, Summary},
        snapshot::{Inflight, Snapshot, Stalled, WorkloadView},
    };
    use biolat_testing::samples;

    fn is_rejected(validated: Result<()>, why: &str) {
        let error = validated.unwrap_err().to_string();
        assert!(error.starts_with("malformed answer: ") && error.contains(why), "{error}");
    }

    fn snapshot(buckets: &[(i32, u64)]) -> Snapshot {
        let histogram = samples::histogram(0, buckets, 0, 1.0);
        let op = samples::op("read", 1 << 50, histogram.clone(), histogram.clone(), histogram);
        samples::snapshot(1.0, vec![samples::device("sda", 9.0, vec![op.clone(), op])])
    }

    #[test]
    fn rejects_impossible_snapshots() {
        super::snapshot(&snapshot(&[(-159, 5), (80, u64::MAX)])).unwrap();
        for index in [i32::MIN, -160, 81, i32::MAX] {
            is_rejected(super::snapshot(&snapshot(&[(index, 1)])), &format!("no bucket {index}"));
        }
        let mut old = snapshot(&[(0, 1)]);
        old.devices[0].inflight = Inflight { oldest: Duration::MAX, ..Inflight::default() };
        is_rejected(super::snapshot(&old), "s old");
        let mut snapshot = snapshot(&[(0, 1)]);
        snapshot.devices[0].spread.completions = vec![1; 1 << 16];
        is_rejected(super::snapshot(&snapshot), "a host with 65536 CPUs");
        let stalled = Some(Stalled { full: Duration::MAX, ..Stalled::default() });
        let workloads = Some(vec![WorkloadView { stalled, ..samples::workload("/a", vec![]) }]);
        is_rejected(
            super::snapshot(&Snapshot { workloads, ..samples::snapshot(1.0, vec![]) }),
            "was stalled for",
        );
    }

    #[test]
    fn rejects_impossible_slow_logs() {
        let log = || samples::slow_log(vec![samples::slow_io(1, "sda"), samples::slow_io(2, "sda")]);
        super::slow_log(&log()).unwrap();
        let [mut slow, first] = [2, 1].map(|number| samples::slow_io(number, "sda"));
        is_rejected(super::slow_log(&samples::slow_log(vec![slow.clone(), first])), "not ascending");
        slow.latencies[1] = Some(Duration::MAX);
        is_rejected(super::slow_log(&samples::slow_log(vec![slow])), "a latency of ");
        is_rejected(super::slow_log(&ApiSlowLog { interval: Duration::ZERO, ..log() }), "every 0 s");
    }

    #[test]
    fn rejects_impossible_histories() {
        let history = |seconds| ApiHistory::of("db1", Duration::from_secs(seconds), [UNIX_EPOCH; 2], None);
        super::history(&history(5)).unwrap();
        is_rejected(super::history(&history(0)), "every 0 s");
    }

    fn interval() -> Period {
        Period {
            began: samples::at(1.0),
            ended: samples::at(6.0),
            length: Duration::from_secs(5),
            collections: 1,
            failures: 0,
            devices: vec![samples::device("sda", 1.0, vec![])],
            workloads: None,
            summary: vec![Summary {
                device: "sda".into(),
                op: "read".into(),
                ios: 1,
                bytes: 1,
                errors: 0,
                slowest_seconds: 1.0,
            }],
            lost: Default::default(),
            slow: vec![samples::slow_io(1, "sda")],
            slow_dropped: 0,
        }
    }

    #[test]
    fn rejects_impossible_intervals() {
        let is_rejected = |change: fn(&mut Period)| {
            let mut interval = interval();
            change(&mut interval);
            is_rejected(super::interval(&interval), "");
        };
        super::interval(&interval()).unwrap();
        is_rejected(|interval| interval.length = Duration::MAX);
        is_rejected(|interval| interval.summary[0].slowest_seconds = 1e300);
        is_rejected(|interval| interval.slow[0].latencies[3] = Some(Duration::MAX));
        is_rejected(|interval| {
            let one = samples::histogram(0, &[(5000, 1)], 0, 0.0);
            interval.devices[0].series = vec![samples::op("read", 1, one.clone(), one.clone(), one)];
        });
    }
}
