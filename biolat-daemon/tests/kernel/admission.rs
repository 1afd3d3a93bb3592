//! Admission latency: admission plus total is the latency seen by the program doing the I/O.

use std::{fs, thread, time::Instant};

use crate::support::{
    Folder, block,
    daemon::Daemon,
    diskstats::READ,
    kernel::{self, Ability},
    load::Target,
    null_blk::NullBlk,
    run,
    settled::{compare, settled},
};

const READERS: u64 = 64;

/// Time that this thread spent on a CPU or waiting for one.
fn runnable_seconds() -> f64 {
    let times = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let ns = times.split_whitespace().take(2).map(|time| time.parse::<f64>().unwrap());
    ns.sum::<f64>() / 1e9
}

/// Mean latencies of reads, in seconds.
struct Means {
    admission: f64,
    total: f64,
    /// Latency measured by the reading threads.
    of_readers: f64,
    /// The part of that latency spent on a CPU or waiting for one.
    runnable: f64,
}

impl Means {
    /// Asserts that admission and total add up to the readers' latency.
    fn assert_agreement(&self) {
        let Self { admission, total, of_readers, runnable } = self;
        assert!(admission > total, "{admission} s before the allocation, {total} s after it");
        // A slow machine delays readers after their I/O has completed.
        assert!(
            ((of_readers - runnable) * 0.95..*of_readers).contains(&(admission + total)),
            "{admission} s and {total} s, the readers measured {of_readers} s, {runnable} s of it on a CPU or waiting for one"
        );
    }
}

/// Reads from many threads at once.
fn read_by_many(disk: &NullBlk, rounds: u64) -> Means {
    let name = disk.name.as_str();
    let daemon = Daemon::of(name);
    let before = settled(&daemon, name);
    let [seconds, runnable] = thread::scope(|scope| {
        let read = |reader: u64| {
            let target = Target::open(&disk.path());
            let (began, runnable_before) = (Instant::now(), runnable_seconds());
            for round in 0..rounds {
                // Far apart, to prevent merging.
                target.try_read_at((reader * rounds + round) << 18, 4096).unwrap();
            }
            [began.elapsed().as_secs_f64(), runnable_seconds() - runnable_before]
        };
        let readers: Vec<_> = (0..READERS).map(|reader| scope.spawn(move || read(reader))).collect();
        let times = readers.into_iter().map(|reader| reader.join().unwrap());
        times.fold([0.0, 0.0], |[seconds, runnable], time| [seconds + time[0], runnable + time[1]])
    });
    let after = settled(&daemon, name);
    let growth = compare(name, &before, &after);
    assert_eq!((growth.of(READ), growth.missed), (READERS * rounds, 0));
    for phase in ["admission", "total"] {
        assert_eq!(growth.latencies(phase, "read"), READERS * rounds, "{phase}");
    }
    assert!(after.figures.has_phase(name, "admission"));
    let mean = |seconds: f64| seconds / (READERS * rounds) as f64;
    let means = Means {
        admission: mean(growth.seconds("admission", "read")),
        total: mean(growth.seconds("total", "read")),
        of_readers: mean(seconds),
        runnable: mean(runnable),
    };
    println!(
        "admission {:.5} s, total {:.5} s, the readers measured {:.5} s, {:.5} s of it on a CPU or waiting for one",
        means.admission, means.total, means.of_readers, means.runnable
    );
    means
}

/// Whether the kernel takes the admission timestamp only on devices with io.cost, and only after the io.cost delay.
fn timestamp_needs_io_cost() -> bool {
    !kernel::has(Ability::SubmissionTimestamps)
}

/// Most readers have to wait for one of a few tags.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn tag_wait_is_admission() {
    for depth in ["4", "16"] {
        let few_tags = [("hw_queue_depth", depth), ("submit_queues", "1")];
        // Throughput does not depend on the number of tags, and is low enough for an emulated machine.
        let disk = NullBlk::with_latency(depth.parse::<u64>().unwrap() * 4_000_000, &few_tags);
        block::set_attribute(&disk.name, "queue/scheduler", "none");
        // The limit is too high to delay these reads.
        let _cost = timestamp_needs_io_cost().then(|| IoCost::limit(&disk.name, 1_000_000));
        read_by_many(&disk, 10).assert_agreement();
    }
}

/// Moves this process into a cgroup that io.cost limits on a device; the root cgroup has no limits.
struct IoCost {
    root: Folder,
}

impl IoCost {
    /// Limits the device to this many random reads per second.
    fn limit(device: &str, reads_per_second: u64) -> Self {
        let cost = Self { root: Folder::new("cgroup", true) };
        run("mount", &["-t", "cgroup2", "none", cost.root.0.to_str().unwrap()]);
        let number = block::attribute(device, "dev");
        cost.write("cgroup.subtree_control", "+io");
        let iops =
            format!("rseqiops={reads_per_second} rrandiops={reads_per_second} wseqiops=100 wrandiops=100");
        cost.write(
            "io.cost.model",
            &format!("{number} ctrl=user model=linear rbps=1000000000 wbps=1000000000 {iops}"),
        );
        cost.write("io.cost.qos", &format!("{number} enable=1 ctrl=user min=100 max=100"));
        fs::create_dir(cost.root.0.join("limited")).unwrap();
        cost.write("limited/cgroup.procs", &std::process::id().to_string());
        cost
    }

    fn write(&self, file: &str, value: &str) {
        fs::write(self.root.0.join(file), value).unwrap_or_else(|error| panic!("{file} = {value}: {error}"));
    }
}

impl Drop for IoCost {
    fn drop(&mut self) {
        let _ = fs::write(self.root.0.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(self.root.0.join("limited"));
        let _ = std::process::Command::new("umount").arg(&self.root.0).output();
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn io_cost_wait_is_admission() {
    if kernel::is_skipped_without(Ability::IoCost) {
        return;
    }
    let disk = NullBlk::with_latency(1_000_000, &[("submit_queues", "1")]);
    block::set_attribute(&disk.name, "queue/scheduler", "none");
    let _cost = IoCost::limit(&disk.name, 200);
    let means = read_by_many(&disk, 10);
    if timestamp_needs_io_cost() {
        assert!(means.admission + means.total < means.of_readers / 2.0);
        return kernel::skip("this kernel takes the admission timestamp after the io.cost wait");
    }
    means.assert_agreement();
}
