//! The findings of `report` on devices whose latency is known.

use std::{thread, time::Duration};

use crate::support::{block, cgroup::Hierarchy, load::Target, nbd::Nbd, null_blk::NullBlk, report::Report};

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
    let report = Report::start(name, &["-d", &names.join(",")]);
    read_all(disks);
    in_words(&report.end())
}

/// The findings of a report, each in one line.
fn in_words(text: &str) -> String {
    text.split("Findings in").nth(1).unwrap_or_else(|| panic!("{text}")).replace("\n  ", " ")
}

/// One of three disk_of twenty times as long as the others.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn the_slow_device_is_named() {
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

/// A device with a queue depth of 1, and four readers. All four have a request: three wait.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn time_in_the_queue_is_reported() {
    let disk = NullBlk::with_latency(5_000_000, &[("submit_queues", "1"), ("hw_queue_depth", "1")]);
    block::set_attribute(&disk.name, "queue/scheduler", "mq-deadline");
    block::set_attribute(&disk.name, "queue/nr_requests", "16");
    let text = findings(&[&disk], "queue");
    assert!(text.contains("% of the total latency is time in the queue"), "{text}");
}

/// One cgroup keeps 16 writes in a drive that serves one request at a time, another reads one block at a time.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn a_noisy_neighbor_is_named() {
    let device = Nbd::attach(0, |_| Duration::from_millis(3));
    let hierarchy = Hierarchy::open();
    let [backup, database] = ["/backup.service", "/database.service"].map(|path| hierarchy.create(path));
    let report = Report::start("neighbor", &["--who", "-d", &device.name]);
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
    let text = report.end();
    println!("{text}");
    let table = text.split_once("workloads by share of the drive's time").unwrap().1;
    let place = |workload| table.find(workload).unwrap_or_else(|| panic!("no {workload}: {text}"));
    assert!(place("backup.service") < place("database.service"), "{text}");
    let words = in_words(&text);
    let expected = format!("{}: reads and writes of database.service take ", device.name);
    let (_, sentence) = words.split_once(&expected).unwrap_or_else(|| panic!("no such finding: {text}"));
    let (latency, _) = sentence.split_once(" (mean total latency)").unwrap();
    assert!(
        latency.ends_with(" ms") && sentence.contains("% of the drive's time goes to backup.service"),
        "{words}"
    );
}
