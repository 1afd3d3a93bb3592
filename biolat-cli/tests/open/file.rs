//! A synthetic saved history: minutes of three drives, one of which stalls once.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use biolat_model::{
    api::{ApiHistory, ApiSlowLog},
    band_histogram::BandHistogram,
    histogram::Histogram,
    period::Period,
    size_histogram::SizeHistogram,
    snapshot::{BandView, SeriesView, SizesView, SlowIo, Snapshot, WorkloadUsage},
};
use biolat_testing::samples::{at, device, histogram, op, slow_io, snapshot, workload};
use serde_json::{Value, json};

/// 2026-01-05 03:02:00 UTC.
pub(crate) const SAVED: u64 = 1_767_582_120;
pub(crate) const HOUR: u64 = 3600;

/// How long before the end reads stalled for four seconds, on which drive, and how many.
pub(crate) const STALL: u64 = 9 * HOUR;
pub(crate) const STALLED: &str = "nvme1n1";
pub(crate) const STALLS: u64 = 3;

/// The reading and the writing workload.
pub(crate) const WORKLOADS: [&str; 2] = ["/system.slice/<b>db</b>.service", "/system.slice/backup.service"];

const DRIVES: [&str; 3] = ["nvme0n1", STALLED, "sda"];

/// A host name can contain anything.
pub(crate) const HOST: &str = "<i>db1</i>";

/// A file, removed on drop.
pub(crate) struct SavedFile {
    pub(crate) path: PathBuf,
    /// The first line.
    pub(crate) head: Value,
    pub(crate) intervals: Vec<Value>,
}

impl SavedFile {
    /// Writes minute intervals for this many seconds, ending `ago` seconds before the time of saving.
    pub(crate) fn of(seconds: u64, ago: u64) -> Self {
        let to = SAVED - ago;
        let minutes: Vec<_> = (1..=seconds / 60).map(|number| minute(to - seconds + number * 60)).collect();
        let intervals: Vec<_> = minutes.iter().map(|minute| serde_json::to_value(minute).unwrap()).collect();
        let (head, snapshot) = head(&minutes, to - seconds, to);
        let head = head_line(&head, &snapshot);
        Self::write(head, intervals)
    }

    pub(crate) fn write(head: Value, intervals: Vec<Value>) -> Self {
        static FILES: AtomicU32 = AtomicU32::new(0);
        let name = format!("biolat-open-{}-{}.jsonl", std::process::id(), FILES.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        let end = json!({"end": {"intervals": intervals.len()}});
        let lines = [&head].into_iter().chain(&intervals).chain([&end]);
        fs::write(&path, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        Self { path, head, intervals }
    }

    /// Number of I/Os in the intervals that end in a range.
    pub(crate) fn ios(&self, from: u64, to: u64) -> u64 {
        let within = |interval: &&Value| {
            let ended = interval["taken"].as_f64().unwrap() as u64;
            from < ended && ended <= to
        };
        let devices = self.intervals.iter().filter(within).flat_map(|interval| list(&interval["devices"]));
        let ops = devices.flat_map(|device| list(&device["ops"]));
        ops.map(|op| op["latency"]["total"]["count"].as_u64().unwrap()).sum()
    }
}

impl Drop for SavedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn head(minutes: &[Period], from: u64, to: u64) -> (ApiHistory, Snapshot) {
    let of = |seconds: u64| at(seconds as f64);
    let mut head = ApiHistory::of(HOST, Duration::from_secs(60), [of(from), of(to)], None);
    // The daemon's history went back further than the saved part.
    let kept = Some((SAVED - 26 * HOUR) as f64);
    head.complete_from = kept;
    head.ten_seconds_from = kept;
    head.collections_from = kept;
    head.breakdown_from = kept;
    head.biolat = "0.0.9".into();
    let devices = minutes.last().map(|minute| minute.devices.clone()).unwrap_or_default();
    let mut snapshot = snapshot(SAVED as f64, devices);
    snapshot.host = HOST.into();
    snapshot.started = of(SAVED - 30 * HOUR);
    snapshot.interval = Duration::from_secs(60);
    snapshot.slow = vec![slow(1, SAVED)].into();
    snapshot.workloads = minutes.last().and_then(|minute| minute.workloads.clone());
    (head, snapshot)
}

fn head_line(history: &ApiHistory, snapshot: &Snapshot) -> Value {
    let mut history = serde_json::to_value(history).unwrap();
    history.as_object_mut().unwrap().remove("intervals");
    json!({
        "format": "biolat history", "format_version": 1, "saved": SAVED as f64, "history": history, "snapshot": snapshot,
        "slow": ApiSlowLog::of(snapshot, Some(Duration::from_secs(1))),
    })
}

fn slow(number: u64, ended: u64) -> SlowIo {
    let latency = Some(Duration::from_secs(4));
    SlowIo {
        completed: at(ended as f64 - 1.0),
        latencies: [None, Some(Duration::from_micros(3)), latency, latency],
        workload: Some(WORKLOADS[0].into()),
        ..slow_io(number, STALLED)
    }
}

/// The minute that ends at this time.
fn minute(ended: u64) -> Period {
    let is_stall = ended == SAVED - STALL;
    let series = |drive: usize, name: &str| {
        let stalls = if is_stall && name == "read" && DRIVES[drive] == STALLED { STALLS } else { 0 };
        series(drive, name, ended, stalls)
    };
    let ops = ["read", "write"];
    let devices: Vec<_> = DRIVES
        .iter()
        .enumerate()
        .map(|(drive, name)| device(name, (SAVED - 30 * HOUR) as f64, ops.map(|op| series(drive, op)).into()))
        .collect();
    let usage_of = |op: usize| {
        let used = devices.iter().map(|view| {
            let series = &view.series[op];
            let [_, queue, device, total] = &series.histograms;
            WorkloadUsage {
                device: view.device.name.clone(),
                op: series.op.clone(),
                bytes: series.bytes,
                errors: 0,
                queue_ns: queue.sum_ns,
                device_ns: device.sum_ns,
                latency: coarse(total),
            }
        });
        workload(WORKLOADS[op], used.collect())
    };
    // Sorted by name.
    let workloads = Some(vec![usage_of(0), usage_of(1)]);
    Period {
        began: at(ended as f64 - 60.0),
        ended: at(ended as f64),
        length: Duration::from_secs(60),
        collections: 1,
        failures: 0,
        workloads,
        summary: vec![],
        lost: [].into(),
        slow: if is_stall { (1..=STALLS).map(|number| slow(number, ended)).collect() } else { vec![] },
        slow_dropped: 0,
        devices,
    }
}

/// A bell-shaped distribution around a millisecond, whose width changes through the day.
fn series(drive: usize, name: &str, ended: u64, stalls: u64) -> SeriesView {
    let hour = ended as f64 / 3600.0 + drive as f64;
    let rate = 900.0 * (1.3 + hour.sin()) / if name == "read" { 1.0 } else { 3.0 };
    let bell = |shift: i32| {
        let mut buckets: Vec<_> = (-9..=9)
            .map(|away: i32| {
                let width = 4.0 + 2.0 * (hour / 3.0).cos();
                let share = (-f64::from(away * away) / width).exp();
                (shift + away, (rate * share) as u64)
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        if stalls > 0 {
            buckets.push((16, stalls));
        }
        buckets
    };
    let buckets = bell(-80 + 8 * drive as i32);
    let ios = buckets.iter().map(|(_, count)| count).sum();
    let latencies = histogram(0, &buckets, 0, (ios - stalls) as f64 * 1e-3 + stalls as f64 * 4.0);
    let queue = histogram(0, &[(-150, ios)], 0, ios as f64 * 1e-6);
    let mut series = op(name, ios * 16_384, queue, latencies.clone(), latencies);
    series.sizes = Some(SizesView {
        requests: SizeHistogram { buckets: vec![(14, ios)], ..SizeHistogram::default() },
        bands: vec![BandView { size: "le_16KiB".into(), device: coarse(&series.histograms[2]) }],
    });
    series
}

/// The same latencies in two buckets an octave.
fn coarse(latencies: &Histogram) -> BandHistogram {
    let mut buckets = BTreeMap::new();
    for (index, count) in &latencies.buckets {
        *buckets.entry((index + 3).div_euclid(4)).or_default() += count;
    }
    Histogram { buckets: buckets.into_iter().collect(), ..latencies.clone() }.into()
}
