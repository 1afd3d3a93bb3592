//! I/O by workload, that is, by the cgroup that the kernel charges. In every scrape, the workloads must add up to their device.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    counts::FILESYSTEMS,
    support::{
        biolat::Biolat,
        block,
        cgroup::Hierarchy,
        daemon::{Daemon, wait_for},
        diskstats::{READ, WRITE},
        http,
        load::{StopFlag, Target, keep_busy},
        loop_device::LoopDevice,
        machine::counter_memory,
        mount::Mount,
        settled::{compare, settled},
    },
};

/// Returns a command that reads or writes this many 4 KiB blocks one after another, one I/O each.
fn direct_io(device: &str, op: &str, count: u64) -> String {
    let path = block::path(device);
    match op {
        "read" => format!("dd if={} of=/dev/null bs=4096 count={count} iflag=direct", path.display()),
        _ => format!("dd if=/dev/zero of={} bs=4096 count={count} oflag=direct", path.display()),
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn counts_ios_per_cgroup() {
    let device = LoopDevice::attach("workloads", true);
    let name = device.name.as_str();
    let hierarchy = Hierarchy::open();
    let daemon = Daemon::of(name);
    let before = settled(&daemon, name);
    let outer = hierarchy.create("/biolat-test.slice");
    hierarchy.delegate(&outer);
    let reader = hierarchy.create("/biolat-test.slice/reader.service");
    let writer = hierarchy.create("/biolat-test.slice/writer.service");
    reader.run(&direct_io(name, "read", 700));
    writer.run(&direct_io(name, "write", 300));
    writer.run(&direct_io(name, "read", 50));
    let after = settled(&daemon, name);
    let growth = compare(name, &before, &after);
    // I/Os missed by the probe can belong to any cgroup.
    let ios = |cgroup: &str, op| after.figures.workload_ios(name, op, cgroup);
    for (cgroup, op, expected) in [(&reader, "read", 700), (&writer, "write", 300), (&writer, "read", 50)] {
        let counted = ios(&cgroup.path, op);
        assert!(
            counted <= expected && counted + growth.missed >= expected,
            "{op}s of {}: {counted} of {expected}",
            cgroup.path
        );
        let labels = [("device", name), ("op", op), ("cgroup", cgroup.path.as_str())];
        assert_eq!(after.figures.value("biolat_workload_io_bytes_total", &labels), counted as f64 * 4096.0);
    }
    assert_eq!(ios(&reader.path, "write") + ios(&outer.path, "read"), 0);
    let info = [("cgroup", reader.path.as_str())];
    let label = |wanted| after.figures.label("biolat_workload_info", &info, wanted).unwrap();
    assert_eq!((label("kind"), label("unit")), ("service".to_owned(), "reader.service".to_owned()));
}

/// Buffered writes are charged to the writer (with cgroup v2), the journal and metadata to the kernel.
#[test]
#[ignore = "needs root, ext4 and xfs: cargo xtask test"]
fn writeback_is_charged_to_writer() {
    for filesystem in FILESYSTEMS {
        check_writeback(filesystem);
    }
}

fn check_writeback(filesystem: &str) {
    let device = LoopDevice::attach("workloads", true);
    let name = device.name.as_str();
    let hierarchy = Hierarchy::open();
    let mount = Mount::with_new(filesystem, name, &device.path());
    let daemon = Daemon::of(name);
    let writer = hierarchy.create("/biolat-writer");
    let file = Path::new(mount.place()).join("file");
    writer.run(&format!("dd if=/dev/zero of={} bs=1048576 count=16 conv=fsync", file.display()));
    let after = settled(&daemon, name);
    let bytes = |cgroup| {
        let labels = [("device", name), ("op", "write"), ("cgroup", cgroup)];
        let found = after.figures.metrics("biolat_workload_io_bytes_total", &labels);
        found.first().map_or(0.0, |metric| metric.counter.as_ref().unwrap().value)
    };
    let (writers, kernels) = (bytes(writer.path.as_str()), bytes("/"));
    println!(
        "{filesystem}, version {}: {writers} bytes of the writer, {kernels} bytes of the kernel",
        hierarchy.version
    );
    if hierarchy.version == 2 {
        // With xfs, the process that syncs writes the log.
        assert!(writers >= (15 << 20) as f64 && (kernels > 0.0 || filesystem == "xfs"));
    } else {
        assert!(writers + kernels >= (15 << 20) as f64);
    }
}

/// A loop device's file is on another disk; both disks attribute the I/O to the cgroup that uses the loop device.
#[test]
#[ignore = "needs root and ext4: cargo xtask test"]
fn loop_device_preserves_cgroup() {
    let below = LoopDevice::attach("workloads-below", true);
    let mount = Mount::new_ext4(&below.name, &below.path());
    let above = LoopDevice::attach_in(mount.folder(), true);
    let hierarchy = Hierarchy::open();
    let daemon = Daemon::of("loop.*");
    let before = [&above, &below].map(|device| settled(&daemon, &device.name));
    let writer = hierarchy.create("/biolat-above");
    writer.run(&direct_io(&above.name, "write", 200));
    for (device, before) in [&above, &below].into_iter().zip(&before) {
        let after = settled(&daemon, &device.name);
        let missed = compare(&device.name, before, &after).missed;
        let counted = after.figures.workload_ios(&device.name, "write", &writer.path);
        assert!(counted + missed >= 200, "{}: {counted}, {missed} missed", device.name);
    }
}

/// More live cgroups than there is room for: the first ones are shown individually, and no I/O of the rest is lost.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn cgroups_without_room_count_as_other() {
    const CGROUPS: u64 = 60;
    const ROOM: usize = 32;
    let device = LoopDevice::attach("workloads", true);
    let name = device.name.as_str();
    let hierarchy = Hierarchy::open();
    let room = ROOM.to_string();
    let daemon = Daemon::start(&["--interval", "200ms", "--device", name, "--workloads", &room]);
    let before = settled(&daemon, name);
    let (stop, mut cgroups) = (StopFlag::default(), Vec::new());
    thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        scope.spawn(|| keep_busy(&device.path(), &stop));
        for number in 0..CGROUPS {
            let cgroup = hierarchy.create(&format!("/biolat-job-{number}"));
            cgroup.run(&direct_io(name, "read", 10));
            cgroups.push(cgroup);
            if number % 10 == 0 {
                // Workloads also add up under load.
                daemon.fresh();
            }
        }
    });
    let after = settled(&daemon, name);
    let growth = compare(name, &before, &after);
    assert!(growth.of(READ) >= CGROUPS * 10);
    let ios = |cgroup: &str| after.figures.workload_ios(name, "read", cgroup);
    let known = (0..CGROUPS).filter(|number| ios(&format!("/biolat-job-{number}")) > 0);
    let known: Vec<_> = known.collect();
    // The load's own cgroup needs room, and the root may too.
    assert!((ROOM - 3..=ROOM).contains(&known.len()), "{known:?}");
    assert_eq!(known[..ROOM - 3], Vec::from_iter(0..ROOM as u64 - 3));
    let others = ios("other");
    let expected = (CGROUPS - known.len() as u64) * 10;
    assert!(others <= expected && others + growth.missed >= expected, "{others} of {expected}");
    let room = |name: &str| after.figures.value(name, &[]);
    assert_eq!(room("biolat_workload_no_room_ios_total"), others as f64);
    assert_eq!(
        (room("biolat_workload_places_used"), room("biolat_workload_places_free")),
        (ROOM as f64, 0.0)
    );
    let log = daemon.log();
    assert_eq!(log.iter().filter(|line| line.contains("no room for every cgroup")).count(), 1, "{log:?}");
}

/// Short-lived jobs, each with a few I/Os, never take a service's room: none of its I/O is attributed to `other`. The jobs that
/// ended first make room for the next ones.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn live_cgroup_keeps_its_room() {
    const ROOM: usize = 16;
    let device = LoopDevice::attach("workloads", true);
    let name = device.name.as_str();
    let hierarchy = Hierarchy::open();
    let room = ROOM.to_string();
    let daemon = Daemon::start(&["--interval", "100ms", "--device", name, "--workloads", &room]);
    let before = settled(&daemon, name);
    let service = hierarchy.create("/biolat-db.service");
    // Longer than the interval at which paths are recorded again.
    let (began, mut reads, mut jobs) = (Instant::now(), 0, 0);
    while began.elapsed() < Duration::from_secs(15) {
        service.run(&direct_io(name, "read", 2));
        reads += 2;
        for _ in 0..3 {
            let job = hierarchy.create(&format!("/biolat-job-{jobs}"));
            job.run(&direct_io(name, "read", 1));
            jobs += 1;
        }
        thread::sleep(Duration::from_millis(400));
    }
    let after = settled(&daemon, name);
    let missed = compare(name, &before, &after).missed;
    let counted = after.figures.workload_ios(name, "read", &service.path);
    println!("{jobs} jobs; {counted} of {reads} reads of the service, {missed} missed");
    assert!(jobs > 3 * ROOM);
    assert!(counted <= reads && counted + missed >= reads, "{counted} of {reads}");
    let last = after.figures.workload_ios(name, "read", &format!("/biolat-job-{}", jobs - 1));
    assert!(last + missed >= 1, "the last job is missing");
    let [used, free] = ["used", "free"].map(|state| {
        let name = format!("biolat_workload_places_{state}");
        after.figures.value(&name, &[]) as usize
    });
    assert_eq!(used + free, ROOM);
    let others = after.figures.workload_ios(name, "read", "other");
    assert_eq!(after.figures.value("biolat_workload_no_room_ios_total", &[]), others as f64);
}

/// Paths are recorded as UTF-8, up to ten levels of 127 bytes: cgroups with the same recorded path are one workload, and none of
/// their I/O is attributed to `other`.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn cgroups_with_same_path_are_one_workload() {
    let device = LoopDevice::attach("workloads", true);
    let name = device.name.as_str();
    let hierarchy = Hierarchy::open();
    let daemon = Daemon::of(name);
    let before = settled(&daemon, name);
    let long = format!("/{}", "biolat".repeat(25));
    let pair = ["a", "b"].map(|end| hierarchy.create(&format!("{long}{end}")));
    thread::scope(|scope| {
        for cgroup in &pair {
            scope.spawn(|| {
                for _ in 0..30 {
                    cgroup.run(&direct_io(name, "read", 20));
                    thread::sleep(Duration::from_millis(100));
                }
            });
        }
    });
    let after = settled(&daemon, name);
    let missed = compare(name, &before, &after).missed;
    let counted = after.figures.workload_ios(name, "read", &long[..128]);
    assert!(counted <= 1200 && counted + missed >= 1200, "{counted} of 1200");
    assert_eq!(after.figures.workload_ios(name, "read", "other"), 0);
    let log = daemon.log();
    assert!(!log.iter().any(|line| line.contains("no room for every cgroup")), "{log:?}");
}

/// An idle cgroup is not marked as gone. A removed one is, and is still shown.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn marks_removed_cgroup_as_gone_but_not_idle_one() {
    let device = LoopDevice::attach("workloads", true);
    let name = device.name.as_str();
    let hierarchy = Hierarchy::open();
    let daemon = Daemon::of(name);
    let [idle, removed] = ["/biolat-idle", "/biolat-removed"].map(|path| hierarchy.create(path));
    for cgroup in [&idle, &removed] {
        cgroup.run(&direct_io(name, "read", 10));
    }
    let is_gone = |path: &str| {
        let answer = http::get(daemon.address, "/api/v1/snapshot", "").unwrap();
        let snapshot: Value = serde_json::from_slice(&answer.body).unwrap();
        let workloads = snapshot["workloads"].as_array().unwrap().clone();
        let found = workloads.iter().find(|workload| workload["cgroup"] == path)?;
        found["gone"].as_bool()
    };
    for path in [&idle.path, &removed.path] {
        wait_for("its I/O", || is_gone(path).is_some());
    }
    for _ in 0..5 {
        daemon.fresh();
        assert_eq!([&idle.path, &removed.path].map(|path| is_gone(path)), [Some(false); 2]);
    }
    let path = removed.path.clone();
    drop(removed);
    wait_for("the end of a cgroup", || is_gone(&path) == Some(true));
    assert_eq!(is_gone(&idle.path), Some(false));
}

/// Only cgroup v1 allows a cgroup to be renamed.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn shows_new_name_of_renamed_cgroup() {
    let device = LoopDevice::attach("workloads", true);
    let name = device.name.as_str();
    let hierarchy = Hierarchy::open();
    let daemon = Daemon::of(name);
    let mut cgroup = hierarchy.create("/biolat-old.service");
    cgroup.run(&direct_io(name, "read", 100));
    let ios = |path: &str| daemon.fresh().workload_ios(name, "read", path);
    wait_for("its I/Os", || ios("/biolat-old.service") > 0);
    let renamed = cgroup.rename("/biolat-new.service");
    assert_eq!(renamed.is_ok(), hierarchy.version == 1, "{renamed:?}");
    if renamed.is_ok() {
        // The probe records a cgroup's path when the cgroup does I/O.
        let (began, limit) = (Instant::now(), Duration::from_secs(25));
        while ios("/biolat-new.service") <= 100 {
            assert!(began.elapsed() < limit, "no new name within {limit:?}");
            cgroup.run(&direct_io(name, "read", 1));
        }
        assert_eq!(ios("/biolat-old.service"), 0);
    }
}

/// A restarted service has a new cgroup with the same path: its counters continue.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn recreated_cgroup_continues() {
    let device = LoopDevice::attach("workloads", true);
    let name = device.name.as_str();
    let hierarchy = Hierarchy::open();
    let daemon = Daemon::of(name);
    let ios = || {
        let figures = daemon.fresh();
        figures.workload_ios(name, "read", "/biolat-again.service")
    };
    for round in 1..=3 {
        let cgroup = hierarchy.create("/biolat-again.service");
        cgroup.run(&direct_io(name, "read", 100));
        wait_for("its I/Os", || ios() > (round - 1) * 100);
        drop(cgroup);
        let counted = ios();
        assert!(counted <= round * 100 && counted + 5 >= round * 100, "{counted} in round {round}");
    }
}

/// No latency includes the wait for `io.max`, but the stalled time does, and the tool names the workload.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn stalled_time_includes_wait_for_io_max() {
    const STALLED: &str = "biolat_workload_io_stalled_seconds_total";
    let device = LoopDevice::attach("workloads", true);
    let name = device.name.as_str();
    let hierarchy = Hierarchy::open();
    let root = hierarchy.root.to_str().unwrap();
    let daemon = Daemon::start(&["--interval", "200ms", "--device", name, "--cgroupfs", root]);
    let outer = hierarchy.create("/biolat-test.slice");
    hierarchy.delegate(&outer);
    let cgroup = hierarchy.create("/biolat-test.slice/limited.service");
    cgroup.run(&direct_io(name, "read", 10));
    wait_for("its I/O", || daemon.fresh().workload_ios(name, "read", &cgroup.path) >= 10);
    if hierarchy.version == 1 {
        assert!(daemon.fresh().metrics(STALLED, &[]).is_empty());
        return;
    }
    outer.limit(&block::attribute(name, "dev"), 100);
    let counted = || {
        let figures = daemon.fresh();
        ["some", "full"].map(|kind| figures.value(STALLED, &[("cgroup", &cgroup.path), ("kind", kind)]))
    };
    let (counted_before, before) = (counted(), cgroup.stalled());
    let address = daemon.address.to_string();
    let tool = Biolat::start("limited", &["hist", "-d", name, "--host", &address]);
    let began = Instant::now();
    cgroup.run(&direct_io(name, "read", 500));
    let elapsed = began.elapsed().as_secs_f64();
    let text = tool.end();
    let (counted, after) = (counted(), cgroup.stalled());
    for kind in 0..2 {
        let expected = (after[kind] - before[kind]).as_secs_f64();
        let growth = counted[kind] - counted_before[kind];
        println!("stalled for {expected} s of {elapsed} s, counted {growth} s");
        // The kernel averages over the CPUs that the task was on, so a task that moves between two counts for half at least.
        assert!(expected > 0.4 * elapsed && (growth - expected).abs() < 0.1 * expected);
    }
    let words = text.replace("\n  ", " ");
    let (_, finding) = words.split_once("limited.service waits for io.max: stalled ").expect(&text);
    let (share, _) = finding.split_once(" % of the time, while its I/O takes ").expect(&text);
    assert!((40..=100).contains(&share.parse::<u32>().unwrap()), "{text}");
    assert!(!words.contains("biolat-test.slice waits"), "{text}");
    assert!(daemon.fresh().metrics(STALLED, &[("cgroup", "/")]).is_empty());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn disabled_workloads_take_no_memory() {
    let device = LoopDevice::attach("workloads", true);
    let name = device.name.as_str();
    let memory = |daemon: &Daemon| counter_memory(daemon.pid());
    let with = memory(&Daemon::of(name));
    let daemon = Daemon::start(&["--interval", "200ms", "--device", name, "--workloads", "off"]);
    let before = settled(&daemon, name);
    assert!(with > memory(&daemon) + (100 << 10));
    let target = Target::open(&device.path());
    target.read(2000);
    target.write(1000);
    let after = settled(&daemon, name);
    let growth = compare(name, &before, &after);
    assert_eq!((growth.of(READ), growth.of(WRITE)), (2000, 1000));
    assert!(after.figures.metrics("biolat_workload_ios_total", &[]).is_empty());
}
