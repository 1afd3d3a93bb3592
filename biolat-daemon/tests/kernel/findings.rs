//! The findings of `biolat` on devices with known latencies.

use std::{thread, time::Duration};

use crate::support::{
    biolat::Biolat, block, cgroup::Hierarchy, daemon::Daemon, load::Target, nbd::Nbd, null_blk::NullBlk,
    prometheus::Prometheus,
};

const READS: u64 = 600;

/// Reads from each disk, four requests at a time.
fn read_all(disks: &[&NullBlk]) {
    thread::scope(|scope| {
        for disk in disks {
            for _ in 0..4 {
                scope.spawn(|| Target::open(&disk.path()).read(READS / 4));
            }
        }
    });
}

fn findings(disks: &[&NullBlk], name: &str) -> String {
    let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
    let running = Biolat::start(name, &["hist", "-d", &names.join(",")]);
    read_all(disks);
    in_words(&running.end())
}

/// Returns the findings at the end of the output, each on one line.
fn in_words(text: &str) -> String {
    text.split("Findings in").nth(1).unwrap_or_else(|| panic!("{text}")).replace("\n  ", " ")
}

/// One of three disks takes twenty times as long as the others.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_slow_device() {
    let disk_of = |ns| NullBlk::with_latency(ns, &[("submit_queues", "2")]);
    let (one, slow, other) = (disk_of(2_000_000), disk_of(40_000_000), disk_of(2_000_000));
    let text = findings(&[&one, &slow, &other], "slow");
    let expected = format!("{}: its reads are slower than those of 2 other devices of its kind", slow.name);
    assert!(text.contains(&expected), "{text}");
    let slowest = format!("The slowest of 3 devices with 500 I/Os or more is {}: p99 ", slow.name);
    assert!(text.contains(&slowest), "{text}");
    for quick in [&one, &other] {
        assert!(!text.contains(&format!("- {}: ", quick.name)), "{text}");
    }
}

/// A device with a queue depth of 1 and four readers: all four have a request allocated, and three of them wait.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn reports_time_in_queue() {
    let disk = NullBlk::with_latency(5_000_000, &[("submit_queues", "1"), ("hw_queue_depth", "1")]);
    block::set_attribute(&disk.name, "queue/scheduler", "mq-deadline");
    block::set_attribute(&disk.name, "queue/nr_requests", "16");
    let text = findings(&[&disk], "queue");
    assert!(text.contains("% of the total latency is time in the queue"), "{text}");
}

/// Covers the load and nothing else.
const WINDOW: &str = "8s";

/// The documented query for each workload's share of its drive's time.
const SHARES: &str = "sum by (instance, device, cgroup) (rate(biolat_workload_device_seconds_total[5m])) \
    / on (instance, device) group_left () (sum by (instance, device) (rate(biolat_workload_device_seconds_total[5m])) > 0)";

/// Returns the documented query for workloads that suffer from another one.
fn suffering_query() -> String {
    let documentation = include_str!("../../../docs/queries.md");
    assert!(documentation.contains(SHARES));
    let (_, query) = documentation.split_once("```promql workloads\n(\n").unwrap();
    let (query, _) = query.split_once("```").unwrap();
    format!("(\n{query}").replace("5m", WINDOW)
}

/// One cgroup keeps 16 writes in flight on a drive that serves one request at a time; another reads one block at a time.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_noisy_neighbor() {
    let device = Nbd::attach(0, |_| Duration::from_millis(3));
    let hierarchy = Hierarchy::open();
    let [backup, database] = ["/backup.service", "/database.service"].map(|path| hierarchy.create(path));
    let daemon = Daemon::start(&["--interval", "500ms", "--format", "native", "--device", &device.name]);
    let prometheus = Prometheus::in_guest("prometheus-neighbor", daemon.address, &[]);
    let running = Biolat::start("neighbor", &["who", "-d", &device.name]);
    let file = device.path().display().to_string();
    let fio = |options: &str| {
        let fixed = "--name=load --direct=1 --ioengine=psync --thread --size=64m --time_based --runtime=8";
        format!("exec fio {fixed} --filename={file} {options}")
    };
    let loads = [
        backup.spawn(&fio("--rw=write --bs=64k --numjobs=16")),
        database.spawn(&fio("--rw=randread --bs=4k")),
    ];
    for load in loads {
        let output = load.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let victims = prometheus.vector(&suffering_query());
    assert_eq!(victims.len(), 1, "{victims:?}");
    assert_eq!(victims[0]["metric"]["cgroup"], "/database.service");
    let shares = prometheus.vector(&SHARES.replace("5m", WINDOW));
    let share = |cgroup: &str| {
        let found = shares.iter().find(|series| series["metric"]["cgroup"] == cgroup);
        found.unwrap()["value"][1].as_str().unwrap().parse::<f64>().unwrap()
    };
    assert!(share("/backup.service") > 0.75 && share("/database.service") < 0.25, "{shares:?}");
    let text = running.end();
    println!("{text}");
    let table = text.split_once("workloads by share of the drive's time").unwrap().1;
    let place = |workload| table.find(workload).unwrap_or_else(|| panic!("{workload} is missing: {text}"));
    assert!(place("backup.service") < place("database.service"), "{text}");
    let words = in_words(&text);
    let expected = format!("{}: reads and writes of database.service take ", device.name);
    let (_, sentence) =
        words.split_once(&expected).unwrap_or_else(|| panic!("the finding is missing: {text}"));
    let (latency, _) = sentence.split_once(" (mean total latency)").unwrap();
    assert!(
        latency.ends_with(" ms") && sentence.contains("% of the drive's time goes to backup.service"),
        "{words}"
    );
}
