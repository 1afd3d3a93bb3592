//! A synthetic host: counters that grow by known I/Os, and clocks that the test sets.

use std::{
    array,
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_common::{bucket::cell, series::PHASES};
use biolat_model::{
    band_histogram::BandHistogram,
    cgroup::Identity,
    device::Device,
    histogram::Histogram,
    io_names::IoNames,
    period::Period,
    snapshot::{BandView, DeviceView, SeriesView, SlowIo, Snapshot, WorkloadUsage, WorkloadView},
};

use crate::Store;

/// Midnight of a Monday, in seconds since the epoch.
pub(crate) const MIDNIGHT: u64 = 1_767_571_200;

/// Uptime of the machine when its counters begin.
pub(crate) const UPTIME: Duration = Duration::from_secs(86_400);

/// The snapshot of the next collection, and the clocks.
pub(crate) struct TestHost {
    pub(crate) snapshot: Snapshot,
    pub(crate) boot: Duration,
}

impl TestHost {
    /// A host at midnight.
    pub(crate) fn new(devices: &[&str]) -> Self {
        let midnight = at(MIDNIGHT as f64);
        let snapshot = Snapshot {
            taken: midnight,
            started: midnight,
            devices: devices.iter().map(|name| device(name, midnight)).collect(),
            lost: [("clock".into(), 0)].into(),
            ..Snapshot::default()
        };
        Self { snapshot, boot: UPTIME }
    }

    /// Advances both clocks.
    pub(crate) fn wait(&mut self, seconds: f64) -> &mut Self {
        self.boot += Duration::from_secs_f64(seconds);
        self.set_clock(seconds)
    }

    /// Shifts the wall clock by this many seconds.
    pub(crate) fn set_clock(&mut self, by: f64) -> &mut Self {
        let by_duration = Duration::from_secs_f64(by.abs());
        let taken = self.snapshot.taken;
        self.snapshot.taken = if by < 0.0 { taken - by_duration } else { taken + by_duration };
        self
    }

    /// Adds I/Os of 4 KiB with this latency, a tenth of which is queue time.
    pub(crate) fn io(&mut self, device: &str, op: &str, count: u64, latency: f64) -> &mut Self {
        let view = self.device(device);
        let series = series(view, op);
        series.bytes += count * 4096;
        for (phase, share) in [(1, 0.1), (2, 0.9), (3, 1.0)] {
            let ns = (latency * share * 1e9).round() as u64;
            let added = Histogram::from_cells(
                (0..256).map(|number| if number == cell(ns) { count } else { 0 }),
                u128::from(ns) * u128::from(count),
            );
            series.histograms[phase].add(&added);
        }
        self
    }

    /// Attributes reads to a workload; the device must have them too.
    pub(crate) fn workload(&mut self, cgroup: &str, device: &str, count: u64, latency: f64) -> &mut Self {
        let since = self.snapshot.started;
        let workloads = self.snapshot.workloads.get_or_insert_default();
        let place = workloads.iter().position(|workload| workload.cgroup == cgroup).unwrap_or_else(|| {
            let usage =
                vec![WorkloadUsage { device: device.into(), op: "read".into(), ..WorkloadUsage::default() }];
            workloads.push(WorkloadView { usage, ..WorkloadView::new(cgroup, &Identity::default(), since) });
            workloads.len() - 1
        });
        let usage = &mut workloads[place].usage[0];
        let ns = |share: f64| u128::from((latency * share * 1e9).round() as u64) * u128::from(count);
        usage.bytes += count * 4096;
        usage.queue_ns += ns(0.1);
        usage.device_ns += ns(0.9);
        let cell = cell((latency * 1e9).round() as u64);
        let added =
            Histogram::from_cells((0..256).map(|number| if number == cell { count } else { 0 }), ns(1.0));
        usage.latency.add(&Histogram { buckets: added.at_schema(1), ..added }.into());
        self
    }

    pub(crate) fn device(&mut self, name: &str) -> &mut DeviceView {
        self.snapshot.devices.iter_mut().find(|view| view.device.name == name).unwrap()
    }

    pub(crate) fn slow(&mut self, device: &str, latency: f64) -> &mut Self {
        let mut ios = self.snapshot.slow.to_vec();
        ios.push(SlowIo {
            number: ios.last().map_or(0, |io| io.number) + 1,
            completed: self.snapshot.taken,
            device: device.into(),
            op: "read".into(),
            sector: 2048,
            bytes: 4096,
            status: "ok".into(),
            latencies: [None, None, None, Some(Duration::from_secs_f64(latency))],
            cpu: 3,
            workload: Some("/system.slice/postgresql.service".into()),
            names: IoNames::default(),
        });
        self.snapshot.slow = ios.into();
        self
    }

    /// Returns the snapshot of another collection.
    pub(crate) fn snapshot(&mut self) -> Arc<Snapshot> {
        self.snapshot.health.durations.zero += 1;
        Arc::new(self.snapshot.clone())
    }

    pub(crate) fn collect(&mut self, store: &mut Store) -> Arc<Snapshot> {
        let snapshot = self.snapshot();
        store.record(&snapshot, self.boot);
        snapshot
    }
}

pub(crate) fn device(name: &str, since: SystemTime) -> DeviceView {
    let op = |op: &str| SeriesView { op: op.into(), ..SeriesView::default() };
    DeviceView {
        device: Device { name: name.into(), model: format!("model of {name}"), ..Device::default() },
        since,
        phases: [false, true, true, true],
        series: vec![op("read"), op("write")],
        ..DeviceView::default()
    }
}

pub(crate) fn series<'a>(view: &'a mut DeviceView, op: &str) -> &'a mut SeriesView {
    let place = view.series.iter().position(|series| series.op == op).unwrap_or_else(|| {
        view.series.push(SeriesView { op: op.into(), ..SeriesView::default() });
        view.series.len() - 1
    });
    &mut view.series[place]
}

/// The time this many seconds after the epoch.
pub(crate) fn at(seconds: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs_f64(seconds)
}

/// The time this many seconds after midnight.
pub(crate) fn clock(seconds: f64) -> SystemTime {
    at(MIDNIGHT as f64 + seconds)
}

/// The I/O of a device and op.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    pub(crate) histograms: [Histogram; PHASES],
    /// By size band, and by cgroup.
    pub(crate) parts: BTreeMap<String, Part>,
}

/// The I/O of a size band, or of a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Part {
    pub(crate) counts: [u64; 2],
    pub(crate) times_ns: [u128; 2],
    pub(crate) latency: BandHistogram,
}

/// By device and op.
pub(crate) type Sums = BTreeMap<(String, String), Sum>;

impl Sum {
    fn add(&mut self, series: &SeriesView) {
        self.bytes += series.bytes;
        self.errors += series.errors.values().sum::<u64>();
        self.histograms.iter_mut().zip(&series.histograms).for_each(|(sum, added)| sum.add(added));
        if let Some(sizes) = &series.sizes {
            for (cell, count) in sizes.requests.cells().into_iter().enumerate() {
                let part = self.parts.entry(format!("size {cell}")).or_default();
                part.counts[0] += count;
            }
            for BandView { size, device } in &sizes.bands {
                self.parts.entry(size.to_string()).or_default().latency.add(device);
            }
        }
    }
}

impl Part {
    fn add(&mut self, usage: &WorkloadUsage) {
        self.counts[0] += usage.bytes;
        self.counts[1] += usage.errors;
        self.times_ns[0] += usage.queue_ns;
        self.times_ns[1] += usage.device_ns;
        self.latency.add(&usage.latency);
    }
}

/// Adds views to the sums.
fn sum<'a>(
    sums: &mut Sums,
    devices: impl IntoIterator<Item = &'a DeviceView>,
    workloads: impl IntoIterator<Item = &'a WorkloadView>,
) {
    for view in devices {
        for series in &view.series {
            sums.entry((view.device.name.clone(), series.op.clone())).or_default().add(series);
        }
    }
    for workload in workloads {
        for usage in &workload.usage {
            let sum = sums.entry((usage.device.clone(), usage.op.clone())).or_default();
            sum.parts.entry(workload.cgroup.clone()).or_default().add(usage);
        }
    }
}

/// Sums all periods.
pub(crate) fn sums(periods: impl Iterator<Item = Period>) -> Sums {
    let mut sums = Sums::new();
    for period in periods {
        sum(&mut sums, &period.devices, period.workloads.iter().flatten());
    }
    sums.retain(|_, sum| {
        sum.parts.retain(|_, part| *part != Part::default());
        *sum != Sum::default()
    });
    sums
}

/// Growth of the counters, for series that had I/O.
pub(crate) fn difference(before: &Snapshot, after: &Snapshot) -> Sums {
    let [had, mut has] = [before, after].map(|snapshot| {
        let mut sums = Sums::new();
        sum(&mut sums, &snapshot.devices, snapshot.workloads.iter().flatten());
        sums
    });
    for (series, sum) in &mut has {
        let had = had.get(series).cloned().unwrap_or_default();
        sum.bytes -= had.bytes;
        sum.errors -= had.errors;
        sum.histograms = array::from_fn(|phase| sum.histograms[phase].since(&had.histograms[phase]));
        for (name, part) in &mut sum.parts {
            let had = had.parts.get(name).cloned().unwrap_or_default();
            part.counts = array::from_fn(|place| part.counts[place] - had.counts[place]);
            part.times_ns = array::from_fn(|place| part.times_ns[place] - had.times_ns[place]);
            part.latency = part.latency.since(&had.latency);
        }
        sum.parts.retain(|_, part| *part != Part::default());
    }
    has.retain(|_, sum| *sum != Sum::default());
    has
}
