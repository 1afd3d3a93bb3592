//! A host made by hand: counters that grow by known I/Os, and clocks that the test sets.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_common::{bucket::cell, series::PHASES};

use crate::{
    device::Device,
    histogram::Histogram,
    history::{Period, Store},
    snapshot::{CpuSpread, DeviceView, Health, Inflight, SeriesView, SlowIo, SlowLog, Snapshot},
};

/// Midnight of a Monday, in seconds since the epoch.
pub(in crate::history) const MIDNIGHT: u64 = 1_767_571_200;

/// How long the machine has been up when its counters begin.
pub(in crate::history) const UPTIME: Duration = Duration::from_secs(86_400);

/// The snapshot that the next collection makes, and the clocks.
pub(in crate::history) struct TestHost {
    pub(in crate::history) snapshot: Snapshot,
    pub(in crate::history) boot: Duration,
}

impl TestHost {
    /// At midnight.
    pub(in crate::history) fn new(devices: &[&str]) -> Self {
        let midnight = at(MIDNIGHT as f64);
        let snapshot = Snapshot {
            taken: midnight,
            started: midnight,
            devices: devices.iter().map(|name| device(name, midnight)).collect(),
            workloads: None,
            lost: vec![("clock", 0)],
            slow: SlowLog::default(),
            health: Health::default(),
            probe: None,
            process: None,
            online_cpus: None,
        };
        Self { snapshot, boot: UPTIME }
    }

    /// Time passes.
    pub(in crate::history) fn wait(&mut self, seconds: f64) -> &mut Self {
        self.boot += Duration::from_secs_f64(seconds);
        self.set_clock(seconds)
    }

    /// The wall clock is set by so many seconds.
    pub(in crate::history) fn set_clock(&mut self, by: f64) -> &mut Self {
        let by_duration = Duration::from_secs_f64(by.abs());
        let taken = self.snapshot.taken;
        self.snapshot.taken = if by < 0.0 { taken - by_duration } else { taken + by_duration };
        self
    }

    /// I/Os of 4 KiB with this latency, a tenth of which is in the queue.
    pub(in crate::history) fn io(&mut self, device: &str, op: &str, count: u64, latency: f64) -> &mut Self {
        let view = self.device(device);
        let series = series(view, op);
        series.bytes += count * 4096;
        for (phase, share) in [(1, 0.1), (2, 0.9), (3, 1.0)] {
            let ns = (latency * share * 1e9).round() as u64;
            let came = Histogram::from_cells(
                (0..256).map(|number| if number == cell(ns) { count } else { 0 }),
                u128::from(ns) * u128::from(count),
            );
            series.histograms[phase].add(&came);
        }
        self
    }

    pub(in crate::history) fn device(&mut self, name: &str) -> &mut DeviceView {
        self.snapshot.devices.iter_mut().find(|view| view.device.name == name).unwrap()
    }

    pub(in crate::history) fn slow(&mut self, device: &str, latency: f64) -> &mut Self {
        let mut ios = self.snapshot.slow.ios.to_vec();
        ios.push(SlowIo {
            number: ios.last().map_or(0, |io| io.number) + 1,
            completed: self.snapshot.taken,
            device: device.into(),
            op: "read".into(),
            sector: 2048,
            bytes: 4096,
            status: "ok",
            latencies: [None, None, None, Some(Duration::from_secs_f64(latency))],
            cpu: 3,
            cgroup: "/system.slice/postgresql.service".into(),
        });
        self.snapshot.slow.ios = ios.into();
        self
    }

    /// The snapshot of another collection.
    pub(in crate::history) fn snapshot(&mut self) -> Arc<Snapshot> {
        self.snapshot.health.durations.zero += 1;
        Arc::new(self.snapshot.clone())
    }

    pub(in crate::history) fn collect(&mut self, store: &mut Store) -> Arc<Snapshot> {
        let snapshot = self.snapshot();
        store.record(&snapshot, self.boot);
        snapshot
    }
}

pub(in crate::history) fn device(name: &str, since: SystemTime) -> DeviceView {
    let op = |op: &str| SeriesView { op: op.into(), ..SeriesView::default() };
    DeviceView {
        device: Device { name: name.into(), model: format!("model of {name}"), ..Device::default() },
        since,
        phases: [false, true, true, true],
        series: vec![op("read"), op("write")],
        unseen: Vec::new(),
        inflight: Inflight::default(),
        spread: CpuSpread::default(),
    }
}

pub(in crate::history) fn series<'a>(view: &'a mut DeviceView, op: &str) -> &'a mut SeriesView {
    let place = view.series.iter().position(|series| series.op == op).unwrap_or_else(|| {
        view.series.push(SeriesView { op: op.into(), ..SeriesView::default() });
        view.series.len() - 1
    });
    &mut view.series[place]
}

/// Seconds since the epoch.
pub(in crate::history) fn at(seconds: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs_f64(seconds)
}

/// So many seconds after midnight.
pub(in crate::history) fn clock(seconds: f64) -> SystemTime {
    at(MIDNIGHT as f64 + seconds)
}

/// All that came in a range, by device and op: bytes, errors, histograms.
pub(in crate::history) type Sums =
    std::collections::BTreeMap<(String, String), (u64, u64, [Histogram; PHASES])>;

pub(in crate::history) fn sums(periods: impl Iterator<Item = Period>) -> Sums {
    let mut sums = Sums::new();
    for (device, series) in periods.flat_map(|period| period.devices).flat_map(|view| {
        let name = view.device.name;
        view.series.into_iter().map(move |series| (name.clone(), series))
    }) {
        let sum = sums.entry((device, series.op)).or_default();
        sum.0 += series.bytes;
        sum.1 += series.errors.iter().map(|(_, count)| count).sum::<u64>();
        sum.2.iter_mut().zip(&series.histograms).for_each(|(sum, came)| sum.add(came));
    }
    sums
}

/// The difference of the counters, of the series that had I/O.
pub(in crate::history) fn difference(before: &Snapshot, after: &Snapshot) -> Sums {
    let mut sums = Sums::new();
    for (had, has) in before.devices.iter().zip(&after.devices) {
        assert_eq!(had.device.name, has.device.name);
        for (had, series) in had.series.iter().zip(&has.series) {
            let errors = |series: &SeriesView| series.errors.iter().map(|(_, count)| count).sum::<u64>();
            let histograms =
                std::array::from_fn(|phase| series.histograms[phase].since(&had.histograms[phase]));
            let came = (series.bytes - had.bytes, errors(series) - errors(had), histograms);
            if came != Default::default() {
                sums.insert((has.device.name.clone(), series.op.clone()), came);
            }
        }
    }
    sums
}
