//! Requests by size, and latencies by size band.

use serde_json::Value;

use crate::support::{
    awake::Awake,
    block,
    daemon::Daemon,
    diskstats::{DISCARD, READ, WRITE},
    load::Target,
    loop_device::LoopDevice,
    machine::{counter_memory, online_cpus},
    run,
    settled::{Growth, compare, settled},
};

/// Block sizes for fio, each with the exponent of its size bucket and its band.
const MIX: [(&str, i32, &str); 8] = [
    ("512", 9, "le_4KiB"),
    ("1k", 10, "le_4KiB"),
    ("4k", 12, "le_4KiB"),
    ("4608", 13, "le_16KiB"),
    ("16k", 14, "le_16KiB"),
    ("20k", 15, "le_64KiB"),
    ("256k", 18, "le_256KiB"),
    ("512k", 19, "le_1MiB"),
];

const EACH: u64 = 100;

/// Runs one fio job per size, with direct I/O, one request at a time to prevent merging.
fn direct_io_of_each_size(device: &str, rw: &str) {
    for (size, ..) in MIX {
        let file = format!("--filename={}", block::path(device).display());
        let (rw, size) = (format!("--rw={rw}"), format!("--bs={size}"));
        let count = format!("--number_ios={EACH}");
        let fixed = ["--name=sizes", "--direct=1", "--ioengine=psync", "--blockalign=4k", "--size=128m"];
        let output = run("fio", &[&fixed[..], &["--output-format=json", &file, &rw, &size, &count]].concat());
        let report: Value = serde_json::from_str(&output[output.find('{').unwrap()..]).unwrap();
        let op = if rw.ends_with("read") { "read" } else { "write" };
        assert_eq!(report["jobs"][0][op]["total_ios"], EACH);
    }
}

fn assert_mix(growth: &Growth<'_>, op: &str) {
    // I/Os missed by the probe can be of any size.
    let short = |counted: u64, expected: u64| counted <= expected && counted + growth.missed >= expected;
    let (sizes, bands) = (growth.sizes(op), growth.bands(op));
    let expected = |is_of: &dyn Fn(i32, &str) -> bool| {
        EACH * MIX.iter().filter(|(_, exponent, band)| is_of(*exponent, band)).count() as u64
    };
    for (_, exponent, band) in MIX {
        let of_size = expected(&|other, _| other == exponent);
        assert!(short(sizes.get(&exponent).copied().unwrap_or(0), of_size), "{op}s: {sizes:?}");
        let of_band = expected(&|_, other| other == band);
        assert!(short(bands.get(band).copied().unwrap_or(0), of_band), "{op}s: {bands:?}");
    }
    let all: u64 = sizes.values().sum();
    assert!(
        short(all, EACH * MIX.len() as u64) && all == bands.values().sum::<u64>(),
        "{sizes:?}, {bands:?}"
    );
}

#[test]
#[ignore = "needs root and fio: cargo xtask test"]
fn counts_sizes_by_bucket_and_band() {
    let device = LoopDevice::attach("sizes", true);
    // Prevents splitting of the largest requests in the mix.
    block::set_attribute(&device.name, "queue/max_sectors_kb", "1280");
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let _awake = Awake::all_cpus();
    for (rw, op) in [("randread", "read"), ("randwrite", "write")] {
        let before = settled(&daemon, &device.name);
        direct_io_of_each_size(&device.name, rw);
        let after = settled(&daemon, &device.name);
        let growth = compare(&device.name, &before, &after);
        growth.assert_few_missed();
        assert_mix(&growth, op);
    }
}

/// Discards have sizes, but no bands.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn discards_have_sizes() {
    let device = LoopDevice::attach("sizes", true);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let _awake = Awake::all_cpus();
    let before = settled(&daemon, &device.name);
    let target = Target::open(&device.path());
    target.discard(0, 20);
    let after = settled(&daemon, &device.name);
    let growth = compare(&device.name, &before, &after);
    let sizes = growth.sizes("discard");
    assert_eq!(growth.of(DISCARD), sizes.values().sum::<u64>() + growth.missed);
    assert!(sizes[&16] + growth.missed >= 20, "{sizes:?}");
    assert!(growth.bands("discard").is_empty());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn disabled_sizes_take_no_memory() {
    let device = LoopDevice::attach("sizes", true);
    let name = device.name.as_str();
    let memory = |daemon: &Daemon| counter_memory(daemon.pid());
    let with = Daemon::start(&["--interval", "100ms", "--device", name]);
    let slots = with.fresh().value("biolat_series_slots", &[]) as u64;
    let with = memory(&with);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", name, "--sizes", "off"]);
    let _awake = Awake::all_cpus();
    let before = settled(&daemon, name);
    assert_eq!(before.figures.value("biolat_series_slots", &[]) as u64, slots);
    // Each chunk of four slots is rounded up to whole pages.
    let (less, expected) = (with - memory(&daemon), slots * online_cpus() * 1664);
    assert!(less.abs_diff(expected) <= slots / 4 * 4096, "{less} bytes instead of {expected}");
    let target = Target::open(&device.path());
    target.read(2000);
    target.write(1000);
    let after = settled(&daemon, name);
    let growth = compare(name, &before, &after);
    assert_eq!((growth.of(READ), growth.of(WRITE)), (2000, 1000));
    for family in ["biolat_io_size_bytes", "biolat_size_device_latency_seconds"] {
        assert!(after.figures.metrics(family, &[]).is_empty(), "{family}");
    }
}
