//! Completions that occur while the probe is already running on their CPU. Since Linux 7.0, a kernel with preemptible RCU can
//! preempt the probe in any task; before that, this was rare. The kernel refuses to run the first program for such a completion;
//! the understudy counts it.
//!
//! The oracle is the disk statistics: counted, lost and missed add up to all completions, and hardly any are lost.

mod nvme_tcp;
mod removal;

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::IoSliceMut,
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use caps::{
    Capability::{CAP_BPF, CAP_PERFMON},
    CapsHashSet,
};

use crate::support::{
    Folder, block,
    bpf::refused_requeues,
    bpf_file_system::BpfFileSystem,
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat},
    kernel::{self, Ability},
    load::{StopFlag, pin_to_cpu},
    null_blk::NullBlk,
    scsi_debug::{Fault, ScsiDebug},
    settled::{Moment, settled},
    unprivileged,
};

/// The CPU on which everything happens.
const CPU: usize = 1;
const LOAD: Duration = Duration::from_secs(4);
const BLOCK: usize = 4096;

/// Duration of a load whose completions are compared with the disk statistics.
fn load_time() -> Duration {
    std::env::var("BIOLAT_TEST_LOAD").map_or(LOAD, |seconds| Duration::from_secs(seconds.parse().unwrap()))
}

/// Whether the kernel preempts programs on tracepoints.
fn preempts_programs() -> bool {
    !kernel::has(Ability::UnpreemptedRuns)
}

fn exceeds_loss_limit(lost: u64, completions: u64) -> bool {
    lost * 1000 > completions
}

/// A file for direct reads of single blocks, one at a time.
struct Reader {
    file: File,
    flags: i32,
    block: Box<AlignedBlock>,
    number: i64,
}

#[repr(align(4096))]
struct AlignedBlock([u8; BLOCK]);

impl Reader {
    fn open(device: &str) -> Self {
        let file =
            OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(block::path(device)).unwrap();
        Self { file, flags: 0, block: Box::new(AlignedBlock([0; BLOCK])), number: 0 }
    }

    /// Polls for completions if the device has a polling queue.
    fn polling(device: &str) -> Self {
        Self { flags: libc::RWF_HIPRI, ..Self::open(device) }
    }

    fn read(&mut self) {
        self.number += 1;
        let place = self.number * 7919 % 1024 * BLOCK as i64;
        let buffer = IoSliceMut::new(&mut self.block.0);
        // SAFETY: an `IoSliceMut` is an `iovec`, and the buffer lives until the call returns.
        let read =
            unsafe { libc::preadv2(self.file.as_raw_fd(), (&raw const buffer).cast(), 1, place, self.flags) };
        assert_eq!(read, BLOCK as isize, "{}", std::io::Error::last_os_error());
    }

    fn read_until(&mut self, stop: &StopFlag) {
        while !stop.is_set() {
            (0..16).for_each(|_| self.read());
        }
    }
}

/// Takes the CPU from all normal tasks for 0.5 ms out of every 2.5 ms.
fn interrupt_often(cpu: usize, stop: &StopFlag) {
    pin_to_cpu(cpu);
    become_realtime();
    while !stop.is_set() {
        thread::sleep(Duration::from_millis(2));
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(500) {}
    }
}

fn become_realtime() {
    // SAFETY: passes a plain struct, and affects only the calling thread.
    unsafe {
        let parameters = libc::sched_param { sched_priority: 50 };
        assert_eq!(libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters), 0);
    }
}

/// Lifts the CPU limits on real-time tasks until dropped. Holds the settings and their previous values.
struct Unthrottled(Vec<(PathBuf, String)>);

const RT_RUNTIME: (&str, &str) = ("/proc/sys/kernel/sched_rt_runtime_us", "-1");

impl Unthrottled {
    fn new() -> Self {
        Self::set(&[RT_RUNTIME])
    }

    /// Also disables the fair server, which reserves a twentieth of the CPU time for other tasks (since 6.12).
    fn without_fair_server() -> Self {
        let fair_server = format!("/sys/kernel/debug/sched/fair_server/cpu{CPU}/runtime");
        Self::set(&[RT_RUNTIME, (&fair_server, "0")])
    }

    fn set(settings: &[(&str, &str)]) -> Self {
        let set = |(path, value): &(&str, &str)| {
            let before = fs::read_to_string(path).unwrap();
            fs::write(path, value).unwrap_or_else(|error| panic!("{path} = {value}: {error}"));
            (PathBuf::from(path), before)
        };
        Self(settings.iter().map(set).collect())
    }
}

impl Drop for Unthrottled {
    fn drop(&mut self) {
        for (path, before) in &self.0 {
            let _ = fs::write(path, before.trim());
        }
    }
}

/// How many times the kernel refused to run a daemon's programs, read from their fdinfo files.
struct Refusals(BTreeMap<u64, PathBuf>);

impl Refusals {
    fn of(daemon: &Daemon) -> Self {
        /// `BPF_PROG_TYPE_TRACING`.
        const TRACING: u64 = 26;
        let entries = fs::read_dir(format!("/proc/{}/fdinfo", daemon.pid())).unwrap();
        let programs = entries.map(|entry| entry.unwrap().path());
        let programs = programs.filter(|path| number(path, "prog_type:") == Some(TRACING));
        Self(programs.filter_map(|path| Some((number(&path, "prog_id:")?, path))).collect())
    }

    fn read(&self) -> u64 {
        self.0.values().filter_map(|path| number(path, "recursion_misses:")).sum()
    }
}

fn number(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Switches the kernel's preemption mode. Returns false if the kernel does not support this mode.
fn set_preemption(mode: &str) -> bool {
    const SWITCH: &str = "/sys/kernel/debug/sched/preempt";
    fs::write(SWITCH, mode).is_ok()
        && fs::read_to_string(SWITCH).is_ok_and(|modes| modes.contains(&format!("({mode})")))
}

/// Growth of several devices' figures.
#[derive(Debug, Default)]
struct Growth {
    completions: u64,
    counted: u64,
    sizes: u64,
    workloads: u64,
    missed: u64,
    lost: u64,
}

impl Growth {
    fn of(daemon: &Daemon, devices: &[&str], before: &[Moment]) -> Self {
        let mut growth = Self::default();
        for (device, before) in devices.iter().zip(before) {
            let after = settled(daemon, device);
            let grown = |figure: &dyn Fn(&Moment) -> u64| figure(&after) - figure(before);
            let counted = grown(&|moment| moment.figures.count(device, READ));
            let completions = grown(&|moment| moment.diskstats.completions(READ));
            assert!(counted <= completions, "{device}: {counted} counted, {completions} completed");
            growth.completions += completions;
            growth.counted += counted;
            growth.sizes += grown(&|moment| moment.figures.sizes(device, "read").values().sum());
            growth.workloads += grown(&|moment| {
                let figures = &moment.figures;
                let cgroups = figures.cgroups(device, "read");
                cgroups.iter().map(|cgroup| figures.workload_ios(device, "read", cgroup)).sum()
            });
            growth.missed += grown(&|moment| moment.figures.missed(device));
            growth.lost = grown(&|moment| moment.figures.lost("recursion"));
        }
        growth
    }
}

/// Compares the devices' figures with the disk statistics: nothing is counted twice, and nothing is missing.
fn compare(daemon: &Daemon, devices: &[&str], before: &[Moment]) -> Growth {
    let mut growth = Growth::default();
    // The loss count is final only after a few collections.
    for _ in 0..20 {
        growth = Growth::of(daemon, devices, before);
        if growth.counted + growth.lost + growth.missed == growth.completions {
            assert_eq!((growth.sizes, growth.workloads), (growth.counted, growth.counted), "{growth:?}");
            return growth;
        }
    }
    panic!("counted + lost + missed differs from the disk statistics: {growth:?}");
}

/// Runs readers of these devices and a real-time task on one CPU, in each preemption mode.
fn check(daemon: &Daemon, devices: &[&str], open: impl Fn(&str) -> Reader + Sync) {
    let _unthrottled = Unthrottled::new();
    let refusals = Refusals::of(daemon);
    let mut refused = 0;
    for mode in ["lazy", "full"].into_iter().filter(|mode| set_preemption(mode)) {
        // The first refused completions, which cause the understudy to be attached, are lost.
        load(devices, &open, || wait_for_refusal(daemon));
        let before: Vec<_> = devices.iter().map(|device| settled(daemon, device)).collect();
        let refused_before = refusals.read();
        load(devices, &open, || thread::sleep(load_time()));
        let growth = compare(daemon, devices, &before);
        refused = refusals.read() - refused_before;
        println!("{mode}: {refused} refused of {}, {growth:?}", growth.completions);
        assert!(!exceeds_loss_limit(growth.lost, growth.completions), "{growth:?}");
        if preempts_programs() {
            assert!(refused >= 20, "the load is too light");
            assert!(growth.lost * 10 <= refused, "the understudy did not count them: {growth:?}");
        }
    }
    assert!(preempts_programs() || refused == 0 || is_attached(daemon));
}

/// Provokes refused completions, with interrupts and, where possible, preempted tasks, until the understudy is attached. Does
/// nothing on kernels that do not refuse any.
pub(crate) fn attach_understudy(daemon: &Daemon) {
    if !kernel::has(Ability::RecursionGuard) {
        return;
    }
    let (task, timer) = (in_task(), NullBlk::with_latency(10_000, &[("submit_queues", "2")]));
    load(&[&task.name, &timer.name], &Reader::open, || {
        wait_for("the understudy", || is_attached(daemon));
    });
}

fn wait_for_refusal(daemon: &Daemon) {
    if preempts_programs() {
        wait_for("the understudy", || is_attached(daemon));
    } else {
        thread::sleep(Duration::from_secs(1));
    }
}

fn is_attached(daemon: &Daemon) -> bool {
    daemon.log().iter().any(|line| line.contains("from now on a second program counts such completions"))
}

fn load(devices: &[&str], open: &(impl Fn(&str) -> Reader + Sync), wait: impl FnOnce()) {
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let _stop = stop.set_on_drop();
        for device in devices {
            scope.spawn(|| read_on_cpu(&mut open(device), &stop));
        }
        scope.spawn(|| interrupt_often(CPU, &stop));
        wait();
    });
}

fn read_on_cpu(reader: &mut Reader, stop: &StopFlag) {
    pin_to_cpu(CPU);
    reader.read_until(stop);
}

/// Wakes up at random times until the completion of this real-time task's own read is refused, which shows that the task
/// interrupted the probe. Returns false if that never happens.
fn interrupt_probe(reader: &mut Reader, refusals: &Refusals, wakeups: u64) -> bool {
    (0..wakeups).any(|number| {
        thread::sleep(Duration::from_micros(50 + number * 7919 % 1500));
        let refused = refusals.read();
        reader.read();
        refusals.read() > refused
    })
}

fn daemon() -> Daemon {
    Daemon::start(&["--interval", "100ms", "--device", ".*"])
}

/// A device that completes I/O in the submitting task.
fn in_task() -> NullBlk {
    NullBlk::new(&[("irqmode", "0"), ("submit_queues", "2")])
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn two_readers_on_one_cpu() {
    let (one, two) = (in_task(), in_task());
    check(&daemon(), &[&one.name, &two.name], Reader::open);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn polling_reader_and_plain_reader() {
    if !NullBlk::can_poll() {
        return kernel::skip("null_blk has no polling queues");
    }
    let polled = NullBlk::new(&[("irqmode", "0"), ("submit_queues", "2"), ("poll_queues", "2")]);
    let other = in_task();
    check(&daemon(), &[&polled.name, &other.name], |device| {
        if device == polled.name { Reader::polling(device) } else { Reader::open(device) }
    });
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn nvme_drive_and_reader() {
    let (task, timer) = (in_task(), NullBlk::with_latency(10_000, &[("submit_queues", "2")]));
    check(&daemon(), &[&task.name, &timer.name, &block::device_with("device/serial", "solo")], Reader::open);
}

/// The chart runs the daemon with these capabilities.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn two_capabilities_are_enough_for_the_understudy() {
    let folder = Folder::new("preemption", true);
    let capabilities = CapsHashSet::from([CAP_BPF, CAP_PERFMON]);
    let mut command = unprivileged::command(&unprivileged::copy(&folder), capabilities);
    let daemon = Daemon::start_command(command.args(["--device", "nullb.*"]));
    let (one, two) = (in_task(), in_task());
    check(&daemon, &[&one.name, &two.name], Reader::open);
}

/// Requeues have their own program, without an understudy. Every time the kernel refuses to run this program is counted.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn counts_refused_requeues() {
    const LONGEST: Duration = Duration::from_secs(60);
    let Some(drive) = ScsiDebug::load() else { return };
    let _unthrottled = Unthrottled::new();
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &drive.name]);
    set_preemption("full");
    let began = Instant::now();
    drive.inject(Fault::Busy, 2);
    load(&[drive.name.as_str(); 4], &Reader::open, || {
        let stop = StopFlag::default();
        thread::scope(|scope| {
            let _stop = stop.set_on_drop();
            // Preempts the other tasks at any point, and causes requeues of its own.
            scope.spawn(|| {
                become_realtime();
                read_on_cpu(&mut Reader::open(&drive.name), &stop);
            });
            while refused_requeues(daemon.pid()) == 0 && began.elapsed() < LONGEST {
                thread::sleep(Duration::from_millis(100));
            }
        });
    });
    drive.inject(Fault::Busy, 0);
    let figures = settled(&daemon, &drive.name).figures;
    let refused = refused_requeues(daemon.pid());
    let counted = figures.value("biolat_requeues_total", &[("op", "read")]);
    println!("{refused} requeues refused, {counted} counted, in {:.1?}", began.elapsed());
    assert_eq!(figures.value("biolat_lost_requeues_total", &[]), refused as f64);
    assert!(counted > 0.0);
    if preempts_programs() {
        assert!(refused > 0, "the load is too light");
    }
}

/// The next daemon continues the counts of both programs, even with a different probe.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn keeps_understudy() {
    if !preempts_programs() {
        return kernel::skip("this kernel does not preempt the probe");
    }
    let _unthrottled = Unthrottled::new();
    let (one, two) = (in_task(), in_task());
    let devices = [one.name.as_str(), &two.name];
    let bpf = BpfFileSystem::mount("preemption-bpf");
    let start = |more: &[&str]| {
        let pin = bpf.path().to_str().unwrap();
        Daemon::start(&[&["--interval", "100ms", "--device", "nullb.*", "--pin", pin], more].concat())
    };
    let mut daemon = Some(start(&[]));
    load(&devices, &Reader::open, || wait_for_refusal(daemon.as_ref().unwrap()));
    let before: Vec<_> = devices.iter().map(|device| settled(daemon.as_ref().unwrap(), device)).collect();
    load(&devices, &Reader::open, || {
        for _ in 0..3 {
            drop(daemon.take());
            thread::sleep(LOAD / 8);
            daemon = Some(start(&[]));
            thread::sleep(LOAD / 8);
        }
    });
    let kept = daemon.take().unwrap();
    assert!(
        kept.log().iter().any(|line| line.contains("resumed the previous daemon's counters")),
        "{:#?}",
        kept.log()
    );
    assert!(!is_attached(&kept), "it was attached already: {:#?}", kept.log());
    let growth = compare(&kept, &devices, &before);
    println!("{growth:?}");
    assert!(!exceeds_loss_limit(growth.lost, growth.completions), "{growth:?}");
    drop(kept);
    // Other options need another probe, which replaces the kept one.
    load(&devices, &Reader::open, || {
        let replaced = start(&["--slow", "10s"]);
        wait_for_refusal(&replaced);
        daemon = Some(replaced);
    });
    // Completions between the two probes count as missed, except where a loss from before the understudy was attached already
    // accounts for them, so there is no exact sum.
    let daemon = daemon.unwrap();
    for (device, before) in devices.iter().zip(&before) {
        let after = settled(&daemon, device);
        let counted = after.figures.count(device, READ) - before.figures.count(device, READ);
        let completions = after.diskstats.completions(READ) - before.diskstats.completions(READ);
        println!("{device}: {counted} of {completions} with another probe");
        assert!((completions * 9 / 10..=completions).contains(&counted), "{counted} of {completions}");
    }
}

/// A real-time task wakes up at random times. If the completion of its own read is refused, it has interrupted the probe: it then
/// holds on to the CPU, so the probe cannot continue.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn probe_is_held_up_for_300_ms() {
    const HOLD: Duration = Duration::from_millis(300);
    let wakeups = if preempts_programs() { 5_000 } else { 500 };
    let _unthrottled = Unthrottled::new();
    let (victim, canary) = (in_task(), in_task());
    let devices = [victim.name.as_str(), &canary.name];
    let daemon = Daemon::start(&["--interval", "100ms", "--device", "nullb.*"]);
    let refusals = Refusals::of(&daemon);
    load(&devices, &Reader::open, || wait_for_refusal(&daemon));
    let before: Vec<_> = devices.iter().map(|device| settled(&daemon, device)).collect();

    let mut holds = 0;
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let stopper = stop.set_on_drop();
        scope.spawn(|| read_on_cpu(&mut Reader::open(&victim.name), &stop));
        let trap = scope.spawn(|| {
            pin_to_cpu(CPU);
            become_realtime();
            let mut reader = Reader::open(&canary.name);
            while holds < 5 && interrupt_probe(&mut reader, &refusals, wakeups) {
                let began = Instant::now();
                while began.elapsed() < HOLD {
                    reader.read();
                }
                holds += 1;
            }
        });
        trap.join().unwrap();
        drop(stopper);
    });
    let growth = compare(&daemon, &devices, &before);
    let reads = before[1].diskstats.completions(READ);
    let reads = Stat::of(&canary.name).completions(READ) - reads;
    println!("{holds} holds, {reads} reads by the holding task, {growth:?}");
    assert_eq!(holds, if preempts_programs() { 5 } else { 0 });
    assert_eq!(growth.lost, 0, "{growth:?}");
}
