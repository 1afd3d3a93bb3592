//! Volumes: dm, md and RAM disks, measured as their users see them.

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use biolat_probe::{possible_cpus, volume_bytes};
use serde_json::Value;

use crate::support::{
    block, bpf,
    daemon::{Daemon, program, wait_for},
    diskstats::{DISCARD, Fields, READ, Stat, WRITE},
    dm::Mapped,
    figures::Figures,
    kernel::{self, Ability},
    load::Target,
    md::Array,
    null_blk::NullBlk,
    nvme_tcp::TwoPaths,
    run,
};

const SECTORS: u64 = 256 << 11;
const BLOCK: u64 = 4096;

fn disk() -> NullBlk {
    NullBlk::in_memory(&[("submit_queues", "2")])
}

fn daemon() -> Daemon {
    Daemon::start(&["--interval", "200ms", "--device", ".*"])
}

fn linear(disk: &NullBlk) -> Mapped {
    Mapped::create("line", &format!("0 {SECTORS} linear /dev/{} 0", disk.name))
}

fn ios(figures: &Figures, volume: &str, op: &str) -> u64 {
    figures.latencies("volume", volume, op)
}

fn bytes(figures: &Figures, volume: &str, op: &str) -> u64 {
    figures.value("biolat_volume_io_bytes_total", &[("device", volume), ("op", op)]) as u64
}

fn wait_until_shown(daemon: &Daemon, volume: &str) {
    wait_for(volume, || Figures::scrape(daemon.address).has_device(volume));
}

/// Direct I/O from two CPUs: what is counted equals the disk statistics and what was asked for.
fn check_counts(kind: &str, volume: &str) {
    const READS: u64 = 400;
    const WRITES: u64 = 200;
    let daemon = daemon();
    wait_until_shown(&daemon, volume);
    let before = (daemon.fresh(), Stat::of(volume));
    let path = block::path(volume);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let target = Target::open(&path);
                target.write(WRITES / 2);
                target.read(READS / 2);
            });
        }
    });
    // raid5 has the attribute, but some kernels refuse the call.
    let has_discards = block::number(volume, "queue/discard_max_bytes") > 0 && kind != "raid5";
    if has_discards {
        Target::open(&path).discard(128 << 20, 5);
    }
    let after = (daemon.fresh(), Stat::of(volume));
    let grown = |op| {
        (
            ios(&after.0, volume, op) - ios(&before.0, volume, op),
            bytes(&after.0, volume, op) - bytes(&before.0, volume, op),
        )
    };
    let in_statistics = |group: Fields| {
        (
            after.1.completions(group) - before.1.completions(group),
            after.1.bytes(group).unwrap() - before.1.bytes(group).unwrap(),
        )
    };
    let (reads, writes, discards) = (grown("read"), grown("write"), grown("discard"));
    println!("{kind}: {reads:?} reads, {writes:?} writes, {discards:?} discards");
    // The kernel may refuse a few runs until the understudies are attached.
    let lost =
        |figures: &Figures, reason| figures.value("biolat_volume_lost_ios_total", &[("reason", reason)]);
    let refused = (lost(&after.0, "recursion") - lost(&before.0, "recursion")) as u64;
    let agrees = |counted: u64, expected: u64| counted <= expected && counted + refused >= expected;
    // Something else may read the volume's partition table.
    assert!(agrees(reads.0, READS) || (READS..READS + 16).contains(&reads.0), "{kind}: {reads:?}");
    assert!(agrees(writes.0, WRITES) && writes.1 == writes.0 * BLOCK, "{kind}: {writes:?}");
    if has_discards {
        assert!(agrees(discards.0, 5), "{kind}: {discards:?}");
    }
    // RAM disks without statistics count nothing.
    if after.1.all_completions() > 0 && refused == 0 {
        assert_eq!(reads, in_statistics(READ), "{kind}");
        assert_eq!(writes, in_statistics(WRITE), "{kind}");
        // Neither zram nor md accounts discards.
        if has_discards && volume.starts_with("dm") {
            assert_eq!(discards, in_statistics(DISCARD), "{kind}");
        }
        assert_eq!(lost(&after.0, "evicted"), 0.0, "{kind}");
    }
    assert!(after.0.histogram("total", volume, "read").is_none(), "{kind}: counted as a drive");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn check_lists_volumes_and_their_memory() {
    let one = disk();
    let mapped = Mapped::create("listed", &format!("0 {SECTORS} linear /dev/{} 0", one.name));
    let output =
        Command::new(program()).args(["check", "--json", "--listen", "127.0.0.1:0"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = document["findings"].as_array().unwrap();
    let listed = findings.iter().find(|finding| finding["id"] == "volumes.measured").unwrap();
    assert_eq!(listed["verdict"], "ok", "{listed}");
    let expected = format!("{} (listed, dm on {})", mapped.name, one.name);
    assert!(listed["text"].as_str().unwrap().contains(&expected), "{listed}");

    let bytes = |volumes| {
        let daemon =
            Daemon::start(&["--volumes", volumes, "--device", &format!("{}|{}", one.name, mapped.name)]);
        daemon.fresh().value("biolat_map_bytes", &[]) as u64
    };
    let (with, without) = (bytes("auto"), bytes("off"));
    assert_eq!(with - without, volume_bytes(possible_cpus().unwrap()), "{with}, {without}");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn counts_equal_those_of_dm() {
    for module in ["dm-crypt", "dm-delay", "dm-snapshot", "dm-thin-pool"] {
        run("modprobe", &[module]);
    }
    let (one, other) = (disk(), disk());
    let check = |kind: &str, table: &str| {
        let mapped = Mapped::create("counted", table);
        check_counts(kind, &mapped.name);
    };
    check("linear", &format!("0 {SECTORS} linear /dev/{} 0", one.name));
    let key = "00112233445566778899aabbccddeeff".repeat(2);
    check("crypt", &format!("0 {SECTORS} crypt aes-xts-plain64 {key} 0 /dev/{} 0", one.name));
    check("delay", &format!("0 {SECTORS} delay /dev/{} 0 1", one.name));
    let legs = format!("/dev/{} 0 /dev/{} 0", one.name, other.name);
    check("striped", &format!("0 {} striped 2 128 {legs}", 2 * SECTORS));
    check("snapshot", &format!("0 {SECTORS} snapshot /dev/{} /dev/{} N 8", one.name, other.name));
    // Each volume on another one, as LVM on LUKS.
    let below = Mapped::create("below", &format!("0 {SECTORS} linear /dev/{} 0", one.name));
    check("linear on linear", &format!("0 {SECTORS} linear /dev/{} 0", below.name));
    drop(below);
    // A pool creates its metadata if there are zeros.
    Target::open(&other.path()).zero(0, 1);
    let pool =
        Mapped::create("pool", &format!("0 {SECTORS} thin-pool /dev/{} /dev/{} 128 0", other.name, one.name));
    run("dmsetup", &["message", "pool", "0", "create_thin 0"]);
    check("thin", &format!("0 {SECTORS} thin /dev/{} 0", pool.name));
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn counts_equal_those_of_md() {
    for level in [0, 1, 5, 10] {
        let disks = [disk(), disk(), disk(), disk()];
        let count = if level == 5 { 3 } else { 2 };
        let _array = Array::create(level, &disks[..count]);
        // Such an array may pass its bios on, and then nothing tells when they end.
        if level == 0 && !kernel::has(Ability::Raid0Ends) {
            let daemon = daemon();
            wait_until_shown(&daemon, "md0");
            Target::open(&block::path("md0")).read(100);
            wait_for("the array to disappear", || !Figures::scrape(daemon.address).has_device("md0"));
            assert!(daemon.log().iter().any(|line| line.contains("does not report the end of its I/Os")));
            continue;
        }
        check_counts(&format!("raid{level}"), "md0");
    }
}

/// As LVM on LUKS on an array: each layer counts the same I/O.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn each_layer_of_a_stack_counts() {
    run("modprobe", &["dm-crypt"]);
    let disks = [disk(), disk()];
    let _array = Array::create(1, &disks);
    let sectors = block::number("md0", "size");
    let key = "00112233445566778899aabbccddeeff".repeat(2);
    let secret = Mapped::create("secret", &format!("0 {sectors} crypt aes-xts-plain64 {key} 0 /dev/md0 0"));
    let data = Mapped::create("data", &format!("0 {sectors} linear /dev/{} 0", secret.name));
    let daemon = daemon();
    let layers = ["md0", &secret.name, &data.name];
    layers.iter().for_each(|layer| wait_until_shown(&daemon, layer));
    let before = daemon.fresh();
    Target::open(&block::path(&data.name)).write(300);
    let after = daemon.fresh();
    for layer in layers {
        assert_eq!(ios(&after, layer, "write") - ios(&before, layer, "write"), 300, "{layer}");
    }
    let seconds =
        |layer: &str| after.seconds("volume", layer, "write") - before.seconds("volume", layer, "write");
    let [array, encrypted, logical] = layers.map(seconds);
    assert!(array <= encrypted && encrypted <= logical, "{array} {encrypted} {logical}");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn ram_disks_are_counted_on_request() {
    run("modprobe", &["brd", "rd_nr=1", "rd_size=262144"]);
    run("modprobe", &["zram"]);
    fs::write("/sys/block/zram0/disksize", "268435456").unwrap();
    let hidden = Daemon::start(&["--interval", "200ms"]);
    assert!(!hidden.fresh().has_device("zram0"), "hidden by default");
    drop(hidden);
    let daemon = Daemon::start(&["--interval", "200ms", "--volumes", "on"]);
    let figures = daemon.fresh();
    assert!(figures.has_device("zram0") && figures.has_device("ram0"));
    drop(daemon);
    check_counts("zram", "zram0");
    check_counts("brd", "ram0");
    run("modprobe", &["--remove", "brd"]);
    fs::write("/sys/block/zram0/reset", "1").unwrap();
}

/// Every read is told as long as its caller waited for it.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn latency_is_what_the_caller_waits() {
    run("modprobe", &["dm-delay"]);
    let disk = disk();
    let mapped = Mapped::create("late", &format!("0 {SECTORS} delay /dev/{} 0 100", disk.name));
    let daemon = daemon();
    wait_until_shown(&daemon, &mapped.name);
    let before = daemon.fresh();
    let target = Target::open(&block::path(&mapped.name));
    let began = Instant::now();
    target.read(20);
    let waited = began.elapsed().as_secs_f64();
    let after = daemon.fresh();
    assert_eq!(ios(&after, &mapped.name, "read") - ios(&before, &mapped.name, "read"), 20);
    let told = after.seconds("volume", &mapped.name, "read") - before.seconds("volume", &mapped.name, "read");
    println!("waited {waited:.4} s, told {told:.4} s");
    assert!(told >= 20.0 * 0.1, "{told}");
    assert!(told <= waited && told >= 0.95 * waited, "{told} of {waited}");
}

/// One I/O of its user is one I/O, with all of its bytes, in however many pieces the volume passes it on.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn split_io_counts_once() {
    let (one, other) = (disk(), disk());
    let table = format!("0 {} striped 2 128 /dev/{} 0 /dev/{} 0", 2 * SECTORS, one.name, other.name);
    let mapped = Mapped::create("striped", &table);
    let daemon = daemon();
    wait_until_shown(&daemon, &mapped.name);
    let before = daemon.fresh();
    let target = Target::open(&block::path(&mapped.name));
    for number in 0..100 {
        target.try_read_at(number << 18, 256 << 10).unwrap();
    }
    let after = daemon.fresh();
    let volume = mapped.name.as_str();
    assert_eq!(ios(&after, volume, "read") - ios(&before, volume, "read"), 100);
    assert_eq!(bytes(&after, volume, "read") - bytes(&before, volume, "read"), 100 << 18);
}

/// The time for which a volume is suspended belongs to the latency of the I/O that waits.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn waits_while_suspended_count() {
    let disk = disk();
    let mapped = linear(&disk);
    let daemon = daemon();
    wait_until_shown(&daemon, &mapped.name);
    let before = daemon.fresh();
    run("dmsetup", &["suspend", "--nolockfs", "line"]);
    thread::scope(|scope| {
        let path = block::path(&mapped.name);
        let reader = scope.spawn(move || Target::open(&path).read(1));
        thread::sleep(Duration::from_millis(600));
        run("dmsetup", &["resume", "line"]);
        reader.join().unwrap();
    });
    let after = daemon.fresh();
    assert_eq!(ios(&after, &mapped.name, "read") - ios(&before, &mapped.name, "read"), 1);
    let told = after.seconds("volume", &mapped.name, "read") - before.seconds("volume", &mapped.name, "read");
    assert!((0.5..1.5).contains(&told), "{told}");
}

/// Where a program may be preempted, the kernel then refuses to run it on that CPU. In an emulated machine, where programs take
/// long, with many writers on two CPUs, that is frequent.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn understudies_count_refused_runs() {
    const BLOCKS: u64 = 2_000;
    if kernel::has(Ability::UnpreemptedRuns) {
        return kernel::skip("this kernel does not preempt programs");
    }
    let disk = disk();
    let mapped = linear(&disk);
    let daemon = daemon();
    wait_until_shown(&daemon, &mapped.name);
    let path = block::path(&mapped.name);
    let load = || {
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| Target::open(&path).write(BLOCKS / 8));
            }
        });
    };
    for _ in 0..500 {
        load();
        if bpf::volume_links(daemon.pid()) == 4 {
            break;
        }
    }
    assert_eq!(bpf::volume_links(daemon.pid()), 4, "no run was refused");
    let before = daemon.fresh();
    for _ in 0..10 {
        load();
    }
    let after = daemon.fresh();
    let lost = |figures: &Figures| figures.value("biolat_volume_lost_ios_total", &[]) as u64;
    let (counted, lost) = (
        ios(&after, &mapped.name, "write") - ios(&before, &mapped.name, "write"),
        lost(&after) - lost(&before),
    );
    println!("{counted} of {} counted, at most {lost} lost", 10 * BLOCKS);
    assert!(counted <= 10 * BLOCKS && counted + lost >= 10 * BLOCKS, "{counted} counted, {lost} lost");
    // If a task is preempted in each of both programs, the bios of a third one are lost.
    assert!(counted >= 99 * BLOCKS / 10, "{counted}");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn failed_ios_are_counted() {
    let mapped = Mapped::create("broken", &format!("0 {SECTORS} error"));
    let daemon = daemon();
    wait_until_shown(&daemon, &mapped.name);
    let failed = |figures: &Figures| {
        let device = [("device", mapped.name.as_str())];
        figures.value("biolat_volume_failed_ios_total", &device) as u64
    };
    let before = failed(&daemon.fresh());
    let target = Target::open(&block::path(&mapped.name));
    for _ in 0..7 {
        assert!(target.try_write_at(0, 4096).is_err());
    }
    let after = daemon.fresh();
    assert_eq!(failed(&after) - before, 7);
    let errors = [("device", mapped.name.as_str()), ("op", "write"), ("status", "ioerr")];
    assert_eq!(after.value("biolat_volume_io_errors_total", &errors), 7.0);
}

/// A volume is measured from when it appears, and a new one of the same name begins at zero. Without any, no program of a bio is
/// attached.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn programs_are_attached_only_for_volumes() {
    let disk = disk();
    let daemon = daemon();
    assert_eq!(bpf::volume_links(daemon.pid()), 0);
    let mapped = linear(&disk);
    wait_until_shown(&daemon, &mapped.name);
    assert_eq!(bpf::volume_links(daemon.pid()), 2);
    let info = [("device", mapped.name.as_str()), ("label", "line")];
    assert_eq!(daemon.fresh().value("biolat_device_info", &info), 1.0);
    Target::open(&block::path(&mapped.name)).write(10);
    assert!(ios(&daemon.fresh(), &mapped.name, "write") >= 10);
    let name = mapped.name.clone();
    drop(mapped);
    wait_for("the volume to go", || !Figures::scrape(daemon.address).has_device(&name));
    assert_eq!(bpf::volume_links(daemon.pid()), 0);
    let again = linear(&disk);
    wait_until_shown(&daemon, &again.name);
    assert_eq!(ios(&daemon.fresh(), &again.name, "write"), 0);
}

/// A table is replaced under load, which changes the size: the volume stays the same, and all of its I/O is counted.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn resized_volume_keeps_its_counts() {
    let disk = disk();
    let mapped = Mapped::create("line", &format!("0 {} linear /dev/{} 0", SECTORS / 2, disk.name));
    let daemon = daemon();
    wait_until_shown(&daemon, &mapped.name);
    let path = block::path(&mapped.name);
    let before = daemon.fresh();
    thread::scope(|scope| {
        let load = scope.spawn(|| Target::open(&path).write_at(0, 4096));
        load.join().unwrap();
        let load = scope.spawn(|| {
            let target = Target::open(&path);
            for _ in 0..500 {
                target.write_at(8192, 4096);
            }
        });
        let table = format!("0 {SECTORS} linear /dev/{} 0", disk.name);
        run("dmsetup", &["suspend", "--noudevsync", "line"]);
        run("dmsetup", &["reload", "line", "--table", &table]);
        run("dmsetup", &["resume", "--noudevsync", "line"]);
        load.join().unwrap();
    });
    let after = daemon.fresh();
    assert_eq!(ios(&after, &mapped.name, "write") - ios(&before, &mapped.name, "write"), 501);
}

/// An NVMe multipath device is the sum of its paths.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn multipath_head_is_the_sum_of_its_paths() {
    let device = TwoPaths::connect();
    let daemon = Daemon::start(&["--interval", "200ms", "--device", "nvme.*"]);
    let head = device.head.as_str();
    wait_until_shown(&daemon, head);
    let before = daemon.fresh();
    let target = Target::open(&block::path(head));
    target.write(100);
    device.disconnect_second();
    target.read(300);
    let after = daemon.fresh();
    let grown =
        |device: &str, op| after.latencies("volume", device, op) - before.latencies("volume", device, op);
    assert_eq!((grown(head, "write"), grown(head, "read")), (100, 300));
    let of_paths: u64 = device
        .paths
        .iter()
        .map(|path| after.latencies("total", path, "read") - before.latencies("total", path, "read"))
        .sum();
    assert_eq!(of_paths, 300);
}

/// With `--volumes off`, nothing is loaded; an unknown value is an error that lists the values.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn volumes_can_be_switched_off() {
    let disk = disk();
    let mapped = linear(&disk);
    let daemon = Daemon::start(&["--interval", "200ms", "--volumes", "off"]);
    assert!(!daemon.fresh().has_device(&mapped.name));
    assert_eq!(bpf::volume_links(daemon.pid()), 0);
    let wrong = Command::new(program()).args(["--volumes", "maybe"]).output().unwrap();
    assert!(!wrong.status.success());
    let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(error.contains("auto, on, off"), "{error}");
}
