//! The log of slow and failed I/Os: the latest of the probe's records, with the time of day and the device name.

mod failures;
mod kept;
mod names;

use std::{
    cell::OnceCell,
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Result;
use biolat_common::{slow::UNKNOWN_NS, status};
use biolat_model::{io_names::IoNames, snapshot::SlowIo};
use biolat_probe::{NamesRecord, Probe, SlowIoRecord, SlowNames, kernel::Kernel};
use biolat_system::host::Host;
use rustix::time::{ClockId, clock_gettime};

use super::{devices::Devices, replace::EarlierProbes, state::encoded::Encoded, workloads::WorkloadStore};
use crate::device::MountPoints;
use failures::Failures;

/// Number of I/Os that are kept.
const KEPT: usize = 1000;

/// Maximum number of I/Os recorded per second, so a drive that fails all I/O costs little.
const PER_SECOND: u32 = 1000;

#[derive(Default)]
pub(super) struct SlowIoLog {
    ios: VecDeque<SlowIo>,
    /// The same I/Os, shared with the snapshots.
    shared: Arc<[SlowIo]>,
    /// Sequence number of the latest I/O.
    number: u64,
    limit: RateLimit,
    /// Records of devices that no scan has found yet.
    unresolved: Vec<(SlowIoRecord, SystemTime)>,
    failures: Failures,
    /// Records dropped by the collector.
    dropped: u64,
    /// Records dropped by the probe.
    dropped_by_probe: u64,
    /// The encoded I/Os, for the next daemon.
    encoded: Encoded,
}

/// Device of a record.
#[derive(Clone, Copy)]
enum RecordDevice<'a> {
    Shown(&'a str),
    Hidden,
    Unknown,
}

impl<'a> RecordDevice<'a> {
    fn find(id: u64, devices: &'a Devices) -> Self {
        match devices.find(id) {
            Some(known) if known.shown => Self::Shown(&known.device.name),
            Some(_) => Self::Hidden,
            None => Self::Unknown,
        }
    }
}

/// Both clocks, read at the same moment. The kernel's timestamps use the monotonic one.
#[derive(Clone, Copy)]
pub(crate) struct Clocks {
    wall: SystemTime,
    monotonic: Duration,
}

impl Clocks {
    pub(crate) fn now() -> Self {
        Self { wall: SystemTime::now(), monotonic: monotonic_now() }
    }

    /// Converts a timestamp to the time of day, according to the current wall clock.
    pub(crate) fn time_of_day(self, timestamp_ns: u64) -> SystemTime {
        let age = self.monotonic.saturating_sub(Duration::from_nanos(timestamp_ns));
        self.wall.checked_sub(age).unwrap_or(self.wall)
    }
}

/// Returns the current time on the clock of the kernel's timestamps.
fn monotonic_now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

/// Allows [`PER_SECOND`] records per second, and up to that many at once after an idle second.
#[derive(Default)]
struct RateLimit {
    /// Time up to which the allowance has been used.
    used_until: Duration,
}

impl RateLimit {
    fn allows(&mut self, now: Duration) -> bool {
        const SECOND: Duration = Duration::from_secs(1);
        let next = self.used_until.max(now) + SECOND / PER_SECOND;
        let allowed = next <= now + SECOND;
        if allowed {
            self.used_until = next;
        }
        allowed
    }
}

impl SlowIoLog {
    /// Empties the probe's ring buffer, which has room for slightly more than a thousand records. Returns whether there were any.
    pub(super) fn read(
        &mut self,
        probe: &mut Probe,
        host: &Host,
        devices: &Devices,
        workloads: &WorkloadStore,
    ) -> bool {
        let records = probe.slow_records();
        if records.is_empty() {
            return false;
        }
        let device = |id| RecordDevice::find(id, devices);
        self.add(records, Clocks::now(), device, &Resolver::new(probe, host, workloads));
        true
    }

    /// Completes the log for a snapshot, after any scan for unknown devices.
    pub(super) fn complete(
        &mut self,
        probe: &mut Probe,
        host: &Host,
        devices: &Devices,
        workloads: &WorkloadStore,
        earlier: &EarlierProbes,
    ) -> Result<()> {
        let device = |id| RecordDevice::find(id, devices);
        self.resolve(device, &Resolver::new(probe, host, workloads));
        self.failures.log(monotonic_now());
        self.share(earlier.with_slow_dropped(probe.slow_records_dropped()?));
        Ok(())
    }

    /// Adds the probe's records since the last call, in order of completion. Records of unknown devices wait for
    /// [`resolve`](Self::resolve).
    fn add<'a>(
        &mut self,
        mut records: Vec<SlowIoRecord>,
        clocks: Clocks,
        device: impl Fn(u64) -> RecordDevice<'a>,
        resolver: &Resolver<'_>,
    ) {
        // The records of each CPU are already in order.
        records.sort_by_key(|io| io.record.completed_ns);
        for io in records {
            let device = device(io.record.key.device());
            let completed = clocks.time_of_day(io.record.completed_ns);
            match device {
                RecordDevice::Hidden => {}
                RecordDevice::Unknown if self.unresolved.len() == KEPT => self.dropped += 1,
                _ if !self.limit.allows(clocks.monotonic) => self.dropped += 1,
                RecordDevice::Shown(name) => self.push(&io, completed, name, resolver),
                RecordDevice::Unknown => self.unresolved.push((io, completed)),
            }
        }
    }

    /// Adds the records of devices that a scan has found in the meantime, and drops the rest.
    fn resolve<'a>(&mut self, device: impl Fn(u64) -> RecordDevice<'a>, resolver: &Resolver<'_>) {
        for (io, completed) in std::mem::take(&mut self.unresolved) {
            match device(io.record.key.device()) {
                RecordDevice::Hidden => {}
                RecordDevice::Shown(name) => self.push(&io, completed, name, resolver),
                RecordDevice::Unknown => self.dropped += 1,
            }
        }
    }

    fn push(&mut self, io: &SlowIoRecord, completed: SystemTime, device: &str, resolver: &Resolver<'_>) {
        let (record, kernel) = (&io.record, resolver.kernel);
        let latency = |ns: u64| (ns != UNKNOWN_NS).then(|| Duration::from_nanos(ns));
        let [admission, queue, total] = [record.admission_ns, record.queue_ns, record.total_ns].map(latency);
        let device_latency = total.zip(queue).map(|(total, queue)| total.saturating_sub(queue));
        self.number += 1;
        self.encoded.forget();
        let op = kernel.op_name(record.key.op());
        let io = SlowIo {
            number: self.number,
            completed,
            device: device.to_owned(),
            names: io.names.as_ref().map(|names| resolver.names(names, &op)).unwrap_or_default(),
            op,
            sector: record.sector,
            bytes: record.bytes,
            status: status::name(record.status as usize, kernel.statuses_since_6_10).into(),
            latencies: [admission, queue, device_latency, total],
            cpu: record.cpu,
            workload: (resolver.cgroup)(record.workload),
        };
        self.failures.add(&io);
        self.ios.push_back(io);
        if self.ios.len() > KEPT {
            self.ios.pop_front();
        }
    }

    /// Shares the records added since the last call with future snapshots.
    fn share(&mut self, dropped_by_probe: u64) {
        self.dropped_by_probe = dropped_by_probe;
        if self.shared.last().is_none_or(|io| io.number < self.number) {
            self.shared = self.ios.iter().cloned().collect();
        }
    }

    /// Returns the latest I/Os.
    pub(super) fn ios(&self) -> Arc<[SlowIo]> {
        Arc::clone(&self.shared)
    }

    /// Returns the number of I/Os that were not recorded.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped + self.dropped_by_probe
    }
}

/// Finds what a record refers to.
struct Resolver<'a> {
    kernel: &'a Kernel,
    host: &'a Host,
    with_files: bool,
    /// Path of a cgroup, by its serial number.
    cgroup: Box<dyn Fn(u64) -> Option<String> + 'a>,
    /// Read when the first file is named.
    mounts: OnceCell<MountPoints>,
}

impl<'a> Resolver<'a> {
    fn new(probe: &'a Probe, host: &'a Host, workloads: &'a WorkloadStore) -> Self {
        Self {
            kernel: &probe.kernel,
            host,
            with_files: probe.options.slow_names == SlowNames::File,
            cgroup: Box::new(|number| cgroup_path(workloads, probe, number)),
            mounts: OnceCell::new(),
        }
    }

    fn names(&self, names: &NamesRecord, op: &str) -> IoNames {
        let mounts = || self.mounts.get_or_init(|| MountPoints::read(self.host));
        names::describe(names, op, self.with_files.then(mounts))
    }
}

/// Returns the cgroup of a record, if it is known.
fn cgroup_path(workloads: &WorkloadStore, probe: &Probe, number: u64) -> Option<String> {
    let maps = probe.workloads.as_ref()?;
    match workloads.path(number) {
        // This is the cgroup's first I/O.
        "" => maps.cgroup(number).ok().flatten().map(|cgroup| cgroup.path).filter(|path| !path.is_empty()),
        path => Some(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::OnceCell,
        time::{Duration, SystemTime, UNIX_EPOCH},
    };

    use biolat_common::{
        series::Key,
        slow::{SlowRecord, UNKNOWN_NS},
    };
    use biolat_probe::{SlowIoRecord, kernel::Kernel};
    use biolat_system::host::Host;
    use biolat_testing::btf::modern;
    use prost::Message as _;

    use super::{super::state::record::State, Clocks, KEPT, PER_SECOND, RecordDevice, Resolver, SlowIoLog};

    const SDA: u64 = 1;
    const HIDDEN: u64 = 2;
    /// A device that only a later scan finds.
    const LATE: u64 = 3;
    const NEVER_FOUND: u64 = 4;

    fn device(id: u64) -> RecordDevice<'static> {
        match id {
            SDA => RecordDevice::Shown("sda"),
            HIDDEN => RecordDevice::Hidden,
            _ => RecordDevice::Unknown,
        }
    }

    /// The kernel, and a host without mounts.
    fn machine() -> (Kernel, Host) {
        (Kernel::from_btf(&modern("")).unwrap(), Host { procfs: "/nonexistent".into(), ..Host::default() })
    }

    fn resolver((kernel, host): &(Kernel, Host)) -> Resolver<'_> {
        let cgroup = Box::new(|_| Some("/a.service".to_owned()));
        Resolver { kernel, host, with_files: true, cgroup, mounts: OnceCell::new() }
    }

    fn record(device: u64, completed_ns: u64) -> SlowRecord {
        SlowRecord {
            completed_ns,
            key: Key::new(device, 0),
            sector: 1 << 40,
            admission_ns: 1_500,
            queue_ns: 1_000,
            total_ns: 5_000_000_001,
            workload: 0,
            bytes: 4096,
            status: 0,
            cpu: 7,
            padding: 0,
        }
    }

    fn ios(records: impl IntoIterator<Item = SlowRecord>) -> Vec<SlowIoRecord> {
        records.into_iter().map(|record| SlowIoRecord { record, names: None }).collect()
    }

    fn at(milliseconds: u64) -> Clocks {
        let monotonic = Duration::from_millis(milliseconds);
        Clocks { wall: UNIX_EPOCH + Duration::from_secs(1_000) + monotonic, monotonic }
    }

    fn wall(ns: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000) + Duration::from_nanos(ns)
    }

    /// Returns the numbers of the I/Os in the log.
    fn numbers(log: &mut SlowIoLog) -> Vec<u64> {
        log.share(0);
        log.ios().iter().map(|io| io.number).collect()
    }

    #[test]
    fn converts_records() {
        let mut log = SlowIoLog::default();
        let failed = SlowRecord { status: 7, key: Key::new(SDA, 2), ..record(SDA, 2_000_000) };
        let unsplit = SlowRecord { queue_ns: UNKNOWN_NS, admission_ns: UNKNOWN_NS, ..record(SDA, 3_000_000) };
        let untimed = SlowRecord { total_ns: UNKNOWN_NS, status: 10, ..unsplit };
        log.add(ios([failed, unsplit, untimed]), at(1_000), device, &resolver(&machine()));
        log.share(0);
        let ios = log.ios();
        let io = &ios[0];
        assert_eq!((io.number, io.completed, io.device.as_str()), (1, wall(2_000_000), "sda"));
        assert_eq!(
            (io.op.as_str(), &*io.status, io.sector, io.bytes, io.cpu),
            ("flush", "medium", 1 << 40, 4096, 7)
        );
        let ns = |io: usize| ios[io].latencies.map(|latency| latency.map(|latency| latency.as_nanos()));
        assert_eq!(ns(0), [Some(1_500), Some(1_000), Some(4_999_999_001), Some(5_000_000_001)]);
        assert_eq!((ios[1].op.as_str(), &*ios[1].status), ("read", "ok"));
        assert_eq!(ns(1), [None, None, None, Some(5_000_000_001)]);
        assert_eq!((ns(2), &*ios[2].status), ([None; 4], "ioerr"));
    }

    #[test]
    fn log_round_trips() {
        let mut log = SlowIoLog::default();
        let failed = SlowRecord { status: 7, queue_ns: UNKNOWN_NS, ..record(SDA, 2_000_000) };
        for count in 0..3 {
            log.share(0);
            let mut state = Vec::new();
            log.append_ios(&mut state);
            let State { slow_ios, .. } = State::decode(&*state).unwrap();
            let kept = SlowIoLog::from_records(&log.to_record(), slow_ios).unwrap();
            assert_eq!((kept.number, kept.dropped), (count, 0));
            assert_eq!(kept.ios(), log.ios());
            log.add(ios([failed]), at(1_000), device, &resolver(&machine()));
        }
    }

    #[test]
    fn time_of_day_follows_current_clock() {
        let clocks = Clocks { wall: UNIX_EPOCH + Duration::from_secs(9_000), ..at(10_000) };
        assert_eq!(clocks.time_of_day(9_500_000_000), UNIX_EPOCH + Duration::from_millis(8_999_500));
        assert_eq!(clocks.time_of_day(10_000_000_001), clocks.wall, "later than now, by another CPU's clock");
        let unset = Clocks { wall: UNIX_EPOCH, ..clocks };
        assert_eq!(unset.time_of_day(0), UNIX_EPOCH - Duration::from_secs(10));
    }

    #[test]
    fn keeps_latest_in_order_of_completion() {
        let mut log = SlowIoLog::default();
        let machine = machine();
        let resolver = resolver(&machine);
        log.add(ios([30, 10, 20].map(|at| record(SDA, at))), at(1), device, &resolver);
        log.share(0);
        let first = log.ios();
        assert_eq!([0, 1, 2].map(|place| first[place].completed), [10, 20, 30].map(wall));
        log.share(0);
        assert!(std::sync::Arc::ptr_eq(&first, &log.ios()), "nothing was added");

        for second in 1..=2 {
            let records = (0..PER_SECOND).map(|place| record(SDA, second * 1_000_000 + u64::from(place)));
            log.add(ios(records), at(second * 1_000 + 10), device, &resolver);
        }
        let kept = numbers(&mut log);
        assert_eq!((kept.len(), kept[0], kept[KEPT - 1]), (KEPT, 1_004, 2_003));
        assert!(kept.is_sorted());
        assert_eq!((first.len(), log.dropped()), (3, 0), "an older snapshot does not change");
    }

    #[test]
    fn limits_the_rate() {
        let mut log = SlowIoLog::default();
        let machine = machine();
        let resolver = resolver(&machine);
        let records = |count: u32| ios((0..count).map(|place| record(SDA, u64::from(place))));
        log.add(records(PER_SECOND + 300), at(5_000), device, &resolver);
        assert_eq!((numbers(&mut log).len(), log.dropped()), (1_000, 300));
        // A quarter of a second later.
        log.add(records(PER_SECOND), at(5_250), device, &resolver);
        assert_eq!((log.number, log.dropped()), (1_250, 300 + 750));
        log.add(records(PER_SECOND), at(9_000), device, &resolver);
        log.share(7);
        assert_eq!((log.number, log.dropped()), (2_250, 300 + 750 + 7));
    }

    #[test]
    fn logs_only_shown_devices() {
        let mut log = SlowIoLog::default();
        let machine = machine();
        let resolver = resolver(&machine);
        let records = [HIDDEN, LATE, SDA, NEVER_FOUND].map(|device| record(device, 1_000_000));
        log.add(ios(records), at(5), device, &resolver);
        assert_eq!((numbers(&mut log), log.dropped()), (vec![1], 0));
        let found = |id| if id == LATE { RecordDevice::Shown("sdb") } else { device(id) };
        log.resolve(found, &resolver);
        assert_eq!((numbers(&mut log), log.dropped()), (vec![1, 2], 1));
        assert_eq!(log.ios()[1].device, "sdb");
        assert_eq!(log.ios()[1].completed, wall(1_000_000));
        log.resolve(found, &resolver);
        assert_eq!(log.dropped(), 1);
    }
}
