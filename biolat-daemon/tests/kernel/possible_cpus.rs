//! A typical cloud VM: far more possible CPUs than online ones. It has two NUMA nodes, with two online CPUs each.

use std::{fs, path::Path};

use biolat_system::cpus::CpuNodes;

use crate::{
    scale::check_reads_and_writes,
    support::{
        daemon::Daemon,
        diskstats::READ,
        fd_store::FdStore,
        load::{Target, pin_to_cpu},
        machine::{MIB, map_memory, online_cpus, possible_cpus},
        null_blk::NullBlk,
        offline_cpus::{OfflineCpus, read_on},
    },
};

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn counts_4_drives_on_4_of_128_cpus() {
    assert_eq!((online_cpus(), possible_cpus()), (4, 128));
    check_reads_and_writes(128, 4, 2);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn all_maps_take_at_most_8_mib() {
    let disks: Vec<_> = (0..4).map(|_| NullBlk::in_memory(&[("submit_queues", "2")])).collect();
    let daemon = Daemon::start(&["--interval", "500ms", "--device", "nullb.*"]);
    for disk in &disks {
        let target = Target::open(&disk.path());
        target.read(10);
        target.write(10);
    }
    daemon.fresh();
    let bytes = map_memory(daemon.pid()) as f64;
    println!("all maps: {:.2} MiB", bytes / MIB);
    assert!(bytes <= 8.0 * MIB, "{bytes} bytes");
}

/// The memory of BPF arrays on each of the two nodes, in bytes.
fn memory_on_nodes() -> [u64; 2] {
    let areas = fs::read_to_string("/proc/vmallocinfo").unwrap();
    let of_arrays = areas.lines().filter(|line| line.contains("bpf_map_area") || line.contains("array_map"));
    let mut pages = [0; 2];
    for field in of_arrays.flat_map(str::split_whitespace) {
        for (node, prefix) in ["N0=", "N1="].into_iter().enumerate() {
            pages[node] += field.strip_prefix(prefix).map_or(0, |number| number.parse::<u64>().unwrap());
        }
    }
    pages.map(|pages| pages * 4096)
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn counters_are_on_nodes_of_their_cpus() {
    let nodes = CpuNodes::read(Path::new("/sys"));
    assert_eq!([0, 1, 2, 3].map(|cpu| nodes.of(cpu)), [Some(0), Some(0), Some(1), Some(1)]);
    // Otherwise, memory would be allocated on the node where the daemon happens to run.
    pin_to_cpu(0);
    let before = memory_on_nodes();
    let daemon = Daemon::of("nullb.*");
    let bytes = daemon.fresh().value("biolat_map_bytes", &[]) as u64;
    let after = memory_on_nodes();
    let [first, second] = [0, 1].map(|node| after[node] - before[node]);
    println!("{bytes} bytes of counters; {first} and {second} bytes more on the nodes");
    assert!(second >= bytes / 2 && second < bytes / 2 + bytes / 8, "{second} bytes");
    assert!(first >= bytes / 2, "{first} bytes");
}

/// While all CPUs of a bank are offline, its node is unknown.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn daemon_that_starts_with_node_offline_counts_on_it_later() {
    let new_disk = || NullBlk::in_memory(&[("submit_queues", "1"), ("irqmode", "0")]);
    let store = FdStore::new("node-store");
    let arguments = ["--interval", "200ms", "--device", "nullb.*"];
    let disk = new_disk();
    let daemon = Daemon::start_command(&mut store.command(&arguments));
    read_on(2, &disk, 10);
    let before = daemon.fresh();
    daemon.terminate();
    let offline = OfflineCpus::begin(&[2, 3]);
    let daemon = Daemon::start_command(&mut store.command(&arguments));
    let more: Vec<_> = (0..4).map(|_| new_disk()).collect();
    daemon.fresh();
    drop(offline);
    let between = daemon.fresh();
    let slots = |figures: &crate::support::figures::Figures| figures.value("biolat_series_slots", &[]);
    assert!(slots(&between) > slots(&before), "{} slots", slots(&between));
    read_on(2, &disk, 30);
    more.iter().for_each(|disk| read_on(3, disk, 20));
    let after = daemon.fresh();
    assert_eq!(after.count(&disk.name, READ) - between.count(&disk.name, READ), 30);
    for disk in &more {
        assert_eq!(after.count(&disk.name, READ) - between.count(&disk.name, READ), 20, "{}", disk.name);
    }
    assert_eq!(after.lost("no_room"), 0);
}
