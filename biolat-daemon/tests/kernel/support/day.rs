//! A server with a synthetic day of history: eight drives, with a stall, errors, a gap and a restart at known times.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_daemon::http::{Limits, ServeConfig, Service, serve};
use biolat_history::{HistoryLimits, SharedHistory};
use biolat_model::{
    band_histogram::BandHistogram,
    cgroup::Identity,
    device::Device,
    histogram::Histogram,
    io_names::IoNames,
    size_histogram::SizeHistogram,
    snapshot::{
        BandView, DeviceView, Process, SeriesView, SizesView, SlowIo, Snapshot, WorkloadUsage, WorkloadView,
    },
};
use tokio::{net::TcpListener, runtime, sync::watch};

pub(crate) const DRIVES: usize = 8;
const HOUR: u64 = 3600;
/// Uptime of the machine at the first collection.
const BOOT: u64 = 24 * HOUR;
/// Times of the incidents, in seconds before the end.
pub(crate) const STALL: u64 = 9 * HOUR;
pub(crate) const ERRORS: u64 = 5 * HOUR;
pub(crate) const RESTART: u64 = 12 * HOUR;
/// The wall clock was set forward by half an hour, so no timestamp falls into this gap.
pub(crate) const GAP: u64 = 15 * HOUR;
pub(crate) const GAP_LENGTH: u64 = HOUR / 2;

/// Drive, number and latency of the stalled reads.
pub(crate) const STALLED: (usize, u64, f64) = (3, 3, 4.0);
pub(crate) const FAILED_WRITES: u64 = 12;

/// The reading and the writing workload, in the order of the ops.
pub(crate) const WORKLOADS: [&str; 2] =
    ["/system.slice/<b>postgresql</b>.service", "/system.slice/backup.service"];

/// A drive that is removed, and how long before the end.
pub(crate) const REMOVED: usize = 6;
pub(crate) const REMOVAL: u64 = HOUR;

/// A server with a history.
pub(crate) struct DayServer {
    pub(crate) address: SocketAddr,
    /// Time of the last collection, in seconds since the epoch.
    pub(crate) ended: u64,
    /// Cumulative I/Os by collection time; if a time occurs twice because the clock was set back, at the later collection.
    ios: BTreeMap<u64, u64>,
    pub(crate) all_ios: u64,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl DayServer {
    /// Starts a server that has collected for this long.
    pub(crate) fn start(hours: u64) -> Self {
        let mut day = Day::new(hours);
        day.collect_all();
        Self::serve(day, ANY, true)
    }

    /// Starts a server that has counted sizes and workloads for a day, and keeps at most this much history.
    pub(crate) fn with_breakdowns(bytes: usize) -> Self {
        let mut day = Day { has_breakdowns: true, ..Day::keeping(26, bytes) };
        day.collect_all();
        Self::serve(day, ANY, true)
    }

    /// Starts a server with `--history off`.
    pub(crate) fn without_history() -> Self {
        let mut day = Day::new(1);
        day.collect(5);
        Self::serve(day, ANY, false)
    }

    /// Starts a server whose clock was set back by twenty minutes after half an hour of collections, followed by another half
    /// hour. Also returns the time at which it was set.
    pub(crate) fn with_clock_set_back() -> (Self, u64) {
        let mut day = Day::new(1);
        day.now += 20 * 60;
        day.snapshot = empty(day.now);
        let set = day.now + 1800;
        for second in 0..720 {
            if second == 360 {
                day.now -= 20 * 60;
            }
            day.collect(5);
        }
        (Self::serve(day, ANY, true), set)
    }

    /// Starts another daemon at the same address, one that has been collecting for ten minutes.
    pub(crate) fn restart(self) -> Self {
        self.stop.send_replace(true);
        self.thread.join().unwrap();
        let mut day = Day::new(0);
        day.now -= 600;
        day.snapshot = empty(day.now);
        day.ios = BTreeMap::from([(day.now, 0)]);
        day.collect_all();
        Self::serve(day, self.address, true)
    }

    /// Returns the I/Os between two collections.
    pub(crate) fn ios(&self, from: u64, to: u64) -> u64 {
        self.ios[&to] - self.ios[&from]
    }

    fn serve(
        Day { history, snapshot, now: ended, ios, all_ios, .. }: Day,
        on: SocketAddr,
        has_history: bool,
    ) -> Self {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(on)).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let thread = thread::spawn(move || {
            let config = ServeConfig { host: snapshot.host.clone(), ..ServeConfig::default() };
            let (snapshots, seen) = watch::channel(Some(Arc::new(snapshot)));
            let mut service = Service::new(seen, config);
            if has_history {
                service = service.with_history(history);
            }
            let limits = Limits { grace: Duration::from_millis(100), ..Limits::default() };
            runtime.block_on(serve(vec![listener], service, limits, stopped));
            drop(snapshots);
        });
        Self { address, ended, ios, all_ios, stop, thread }
    }
}

/// More memory than a day of history takes up.
pub(crate) const MEMORY: usize = 32 << 20;

/// Any free port.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The history, the snapshot of the next collection, and the clocks.
struct Day {
    history: SharedHistory,
    snapshot: Snapshot,
    now: u64,
    boot: u64,
    collections: u64,
    end: u64,
    ios: BTreeMap<u64, u64>,
    all_ios: u64,
    /// Whether sizes and workloads are counted.
    has_breakdowns: bool,
}

impl Day {
    /// Starts this many hours ago.
    fn new(hours: u64) -> Self {
        Self::keeping(hours, MEMORY)
    }

    fn keeping(hours: u64, bytes: usize) -> Self {
        let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let began = end - hours * HOUR;
        let history = SharedHistory::new(
            HistoryLimits { age: Duration::from_secs(26 * HOUR), bytes },
            Duration::from_secs(BOOT),
        );
        let ios = BTreeMap::from([(began, 0)]);
        Self {
            history,
            snapshot: empty(began),
            now: began,
            boot: BOOT,
            collections: 0,
            end,
            ios,
            all_ios: 0,
            has_breakdowns: false,
        }
    }

    /// Collects less often in the older hours, which does not change the retained history.
    fn collect_all(&mut self) {
        for (until, interval) in [(2 * HOUR, 60), (600, 10), (0, 5)] {
            while self.now < self.end - until {
                self.collect(interval);
            }
        }
    }

    fn collect(&mut self, seconds: u64) {
        let before = self.end - self.now;
        self.now += seconds;
        self.boot += seconds;
        let passes = |ago: u64| before > ago && self.end - self.now <= ago;
        let (restarts, stalls, fails, skips) = (passes(RESTART), passes(STALL), passes(ERRORS), passes(GAP));
        if passes(REMOVAL) {
            self.snapshot.devices.remove(REMOVED);
        }
        if skips {
            self.now += GAP_LENGTH;
        }
        if restarts {
            self.snapshot = empty(self.now - seconds);
        }
        self.collections += 1;
        self.snapshot.taken = at(self.now as f64);
        for (drive, view) in self.snapshot.devices.iter_mut().enumerate() {
            for (op, series) in view.series.iter_mut().enumerate() {
                self.all_ios += add_ios(series, seconds, drive, op, self.collections);
            }
        }
        if stalls {
            self.stall();
            self.all_ios += STALLED.1;
        }
        self.ios.insert(self.now, self.all_ios);
        if fails {
            self.snapshot.devices[5].series[1].errors = [("ioerr".into(), FAILED_WRITES)].into();
        }
        if self.has_breakdowns {
            self.snapshot.devices.iter_mut().flat_map(|view| &mut view.series).for_each(count_sizes);
            self.snapshot.workloads = Some(workloads(&self.snapshot));
        }
        self.history.record(&Arc::new(self.snapshot.clone()), Duration::from_secs(self.boot));
    }

    fn stall(&mut self) {
        let (drive, ios, latency) = STALLED;
        let view = &mut self.snapshot.devices[drive];
        let index = (latency.log2() * 8.0).ceil() as i32;
        for histogram in &mut view.series[0].histograms[2..] {
            let stalled = Histogram { buckets: vec![(index, ios)], ..Histogram::new() };
            histogram.add(&stalled);
        }
        let total = Some(Duration::from_secs_f64(latency));
        let io = |number| SlowIo {
            number,
            completed: at(self.now as f64 - 1.0),
            device: view.device.name.clone(),
            op: "read".into(),
            sector: 2048 * number,
            bytes: 4096,
            status: "ok".into(),
            latencies: [None, Some(Duration::from_micros(3)), total, total],
            cpu: 3,
            workload: Some(WORKLOADS[0].into()),
            names: IoNames::default(),
        };
        self.snapshot.slow = (1..=ios).map(io).collect();
    }
}

/// Adds a few thousand I/Os per second, with a bell-shaped distribution over about 80 buckets and a long tail; slower at times.
/// Returns their number.
fn add_ios(series: &mut SeriesView, seconds: u64, drive: usize, op: usize, number: u64) -> u64 {
    let hour = number as f64 / 180.0 + drive as f64;
    let rate = 2000.0 * (1.2 + hour.sin()) / (1.0 + op as f64);
    let centre = -106.0 + 6.0 * (hour / 2.0).cos() + 2.0 * drive as f64 - 12.0 * op as f64;
    let mut ios = 0;
    for (phase, shift, width) in [(1, -50.0, 5.0), (2, 0.0, 9.0), (3, 1.0, 9.0)] {
        let mut came = Histogram::new();
        for index in -159..40 {
            let away = (f64::from(index) - centre - shift) / width;
            let share = (-away * away / 2.0).exp() / (width * 2.5)
                + if away > 0.0 { 1e-4 * (-away / 1.6).exp() } else { 0.0 };
            let count = (rate * seconds as f64 * share) as u64;
            if count > 0 {
                came.buckets.push((index, count));
                came.sum_ns += u128::from(count) * ((f64::from(index) / 8.0).exp2() * 0.95e9) as u128;
            }
        }
        ios = came.count();
        series.histograms[phase].add(&came);
    }
    series.histograms[0].zero += ios;
    series.bytes += ios * 16_384;
    ios
}

/// All requests are 16 KiB.
fn count_sizes(series: &mut SeriesView) {
    let [.., device, _] = &series.histograms;
    let requests = SizeHistogram { buckets: vec![(14, device.count())], ..SizeHistogram::default() };
    let band = BandView { size: "le_16KiB".into(), device: coarse(device) };
    series.sizes = Some(SizesView { requests, bands: vec![band] });
}

/// Returns the same latencies with two buckets per octave.
fn coarse(latencies: &Histogram) -> BandHistogram {
    let mut buckets = BTreeMap::new();
    for (index, count) in &latencies.buckets {
        *buckets.entry((index + 3).div_euclid(4)).or_default() += count;
    }
    Histogram { buckets: buckets.into_iter().collect(), ..latencies.clone() }.into()
}

/// One workload did all reads, the other all writes.
fn workloads(snapshot: &Snapshot) -> Vec<WorkloadView> {
    let of_op = |number: usize| {
        let usage = |view: &DeviceView| {
            let series = &view.series[number];
            let [_, queue, device, total] = &series.histograms;
            WorkloadUsage {
                device: view.device.name.clone(),
                op: series.op.clone(),
                bytes: series.bytes,
                errors: series.errors.values().sum(),
                queue_ns: queue.sum_ns,
                device_ns: device.sum_ns,
                latency: coarse(total),
            }
        };
        WorkloadView {
            usage: snapshot.devices.iter().map(usage).collect(),
            ..WorkloadView::new(WORKLOADS[number], &Identity::default(), snapshot.started)
        }
    };
    let mut workloads = [0, 1].map(of_op).to_vec();
    workloads.sort_by(|one, other| one.cgroup.cmp(&other.cgroup));
    workloads
}

fn at(seconds: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs_f64(seconds)
}

fn empty(now: u64) -> Snapshot {
    let began = at(now as f64);
    let op = |op: &str| SeriesView { op: op.into(), ..SeriesView::default() };
    let view = |number: usize| DeviceView {
        device: Device {
            name: format!("nvme{number}n1"),
            model: "Example <i>NVMe</i> 3.84 TB".into(),
            ..Device::default()
        },
        since: began,
        phases: [true; 4],
        series: vec![op("read"), op("write")],
        ..DeviceView::default()
    };
    Snapshot {
        host: "storage-1".into(),
        interval: ServeConfig::default().interval,
        taken: began,
        started: began,
        devices: (0..DRIVES).map(view).collect(),
        process: Some(Process::default()),
        online_cpus: Some(2),
        ..Snapshot::default()
    }
}
