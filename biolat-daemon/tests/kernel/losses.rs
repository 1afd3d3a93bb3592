//! I/O that cannot be measured is counted as lost, by reason.

use std::thread;

use biolat_collect::{
    collector::Collector,
    device::{self, IdKind},
};
use biolat_common::{
    lost::{LEFT, TAKEN},
    series::Phase,
};
use biolat_model::{
    device::{Group, Selection},
    snapshot::{DeviceView, Snapshot},
};
use biolat_probe::{Options, Probe, btf::Btf, kernel_btf};
use biolat_system::host::Host;

use crate::support::{
    block::set_attribute,
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat},
    kernel::{Ability, is_skipped_without, kernel},
    load::Target,
    loop_device::LoopDevice,
    settled::settled,
};

#[test]
#[ignore = "needs root: cargo xtask test"]
fn io_without_iostats_is_lost() {
    let device = LoopDevice::attach("iostats", true);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let target = Target::open(&device.path());
    target.read(10);
    let before = settled(&daemon, &device.name).figures;
    assert!(before.has_phase(&device.name, "total"));

    set_attribute(&device.name, "queue/iostats", "0");
    target.read(500);
    let off = settled(&daemon, &device.name).figures;
    assert_eq!(off.lost("iostats_off") - before.lost("iostats_off"), 500);
    assert_eq!(off.count(&device.name, READ), before.count(&device.name, READ));
    for name in ["queue", "device", "total"] {
        assert!(!off.has_phase(&device.name, name), "{name}");
    }

    // A daemon that starts now logs the problem, with the command that enables iostats.
    let late = Daemon::start(&["--device", &device.name]);
    let command = format!("echo 1 > /sys/block/{}/queue/iostats", device.name);
    assert!(late.log().iter().any(|line| line.ends_with(&command)), "{:?}", late.log());

    set_attribute(&device.name, "queue/iostats", "1");
    target.read(20);
    let on = settled(&daemon, &device.name).figures;
    assert_eq!(on.count(&device.name, READ) - off.count(&device.name, READ), 20);
    assert_eq!(on.lost("iostats_off"), off.lost("iostats_off"));
    assert!(on.has_phase(&device.name, "total"));
}

fn host() -> Host {
    Host::default()
}

/// Returns a probe that always reads a dispatch time of zero, as the kernel leaves it in requests of a queue without statistics.
/// Not every machine has such a queue. The first member is zero without io.cost, the second in every request of a bio, but newer
/// verifiers do not let a program calculate with it.
fn probe_without_dispatch_times() -> Probe {
    let types = kernel_btf(&host()).unwrap();
    let mut kernel = kernel().clone();
    let btf = Btf::parse(&types).unwrap();
    let zero = ["alloc_time_ns", "end_io_data"].iter().find_map(|name| btf.member_offset("request", name));
    kernel.layout.io_start_time_ns = zero.unwrap();
    let options = Options { sizes: false, workloads: 0, ..Options::default() };
    Probe::attach(kernel, &host(), 4, &options).unwrap()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn total_is_complete_without_dispatch_times() {
    let device = LoopDevice::attach("stamps", true);
    let selection = Selection::new(Some(&device.name), None).unwrap();
    // Sends passthrough commands, for which the member is not zero.
    let found = device::scan(&host().sysfs, IdKind::of(&kernel().layout), |_| None).unwrap();
    let before = Stat::of(&device.name).completions(READ);
    let target = Target::open(&device.path());
    let probe = probe_without_dispatch_times();
    target.read(100);
    wait_for("the disk statistics", || Stat::of(&device.name).completions(READ) >= before + 100);
    // From here on the series is in the table, so both paths of the probe are tested.
    let mut collector = Collector::new(host(), selection, found, probe).unwrap();
    collector.collect().unwrap();
    target.read(200);
    wait_for("the disk statistics", || Stat::of(&device.name).completions(READ) >= before + 300);
    let snapshot = collector.collect().unwrap();
    let view = view(&snapshot, &device.name);
    assert_eq!(view.phases[1..], [false, false, true]);
    let series = view.series.iter().find(|series| series.op == "read").unwrap();
    assert_eq!(series.histograms.each_ref().map(|histogram| histogram.count())[1..], [0, 0, 300]);
    assert!(series.histograms[Phase::Total as usize].sum_ns > 300 * 500);
    assert_eq!(missed_reads(&snapshot, &device.name), 0);
    let lost = snapshot.lost.iter().filter(|(reason, count)| **count > 0 && **reason != "passthrough");
    assert_eq!(lost.collect::<Vec<_>>(), []);
}

fn view<'a>(snapshot: &'a Snapshot, device: &str) -> &'a DeviceView {
    snapshot.devices.iter().find(|view| view.device.name == device).unwrap()
}

fn reads(snapshot: &Snapshot, device: &str) -> u64 {
    let series = &view(snapshot, device).series;
    series.iter().find(|series| series.op == "read").unwrap().histograms[2].count()
}

fn missed_reads(snapshot: &Snapshot, device: &str) -> u64 {
    view(snapshot, device).unseen[&Group::Read]
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn audit_detects_detached_probe() {
    let device = LoopDevice::attach("audit", true);
    let selection = Selection::new(Some(&device.name), None).unwrap();
    let mut collector = Collector::attach(host(), selection, Options::default()).unwrap();
    let target = Target::open(&device.path());
    collector.collect().unwrap();
    let accounted = Stat::of(&device.name).completions(READ);
    target.read(100);
    let before = collector.collect().unwrap();
    assert_eq!((reads(&before, &device.name), missed_reads(&before, &device.name)), (100, 0));

    drop(collector.probe_mut().take_links());
    target.read(250);
    wait_for("the disk statistics", || Stat::of(&device.name).completions(READ) == accounted + 350);
    let after = collector.collect().unwrap();
    assert_eq!(reads(&after, &device.name), 100);
    assert_eq!(missed_reads(&after, &device.name), 250, "one collection must be enough");
}

/// Both programs run on each completion.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn understudy_counts_nothing_twice() {
    const THREADS: u64 = 8;
    const READS: u64 = 5_000;
    // No understudy is loaded.
    if is_skipped_without(Ability::RecursionGuard) {
        return;
    }
    let device = LoopDevice::attach("understudy", true);
    let selection = Selection::new(Some(&device.name), None).unwrap();
    let mut collector = Collector::attach(host(), selection, Options::default()).unwrap();
    let map_bytes = collector.health().map_bytes;
    collector.probe_mut().add_understudy_counters().unwrap();
    assert_eq!(collector.health().map_bytes, 2 * map_bytes, "the understudy needs as many counters");
    wait_for("the end of the runs in progress", || collector.probe_mut().attach_understudy().unwrap());
    assert!(!collector.probe_mut().lacks_understudy());
    let accounted = Stat::of(&device.name).completions(READ);
    let before = reads(&collector.collect().unwrap(), &device.name);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| Target::open(&device.path()).read(READS));
        }
    });
    wait_for("the disk statistics", || {
        Stat::of(&device.name).completions(READ) == accounted + THREADS * READS
    });
    // Completions left to the understudy are not lost; the loss count is final after a few collections.
    let (mut counted, mut lost) = (0, 0);
    for _ in 0..5 {
        let snapshot = collector.collect().unwrap();
        counted = reads(&snapshot, &device.name) - before + missed_reads(&snapshot, &device.name);
        lost = snapshot.lost["recursion"];
    }
    let losses = collector.probe_mut().maps.losses().unwrap();
    println!("{counted} counted, {lost} lost, {} left, {} taken", losses[LEFT], losses[TAKEN]);
    assert_eq!(counted + lost, THREADS * READS);
    assert!(losses[TAKEN] >= losses[LEFT] && losses[TAKEN] < THREADS * READS / 100);
}
