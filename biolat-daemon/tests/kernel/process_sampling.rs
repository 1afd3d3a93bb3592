//! `biolat processes --io` prints a sample of the I/Os if there are too many. Emulated machines are too slow for that.

use serde_json::Value;

use crate::{
    processes::{lines, number},
    support::{awake::Awake, biolat::Biolat, loop_device::LoopDevice, run},
};

/// At a high rate each line stands for several I/Os, and their sum is the number of I/Os.
#[test]
#[ignore = "needs root and fio: cargo xtask test"]
fn samples_single_ios_at_a_high_rate() {
    let device = LoopDevice::attach("processes", true);
    let _awake = Awake::all_cpus();
    let running = Biolat::start("processes", &["processes", "--io", "-j", "-d", &device.name]);
    let file = format!("--filename={}", device.path().display());
    let deep = ["--ioengine=libaio", "--iodepth=32", "--direct=1", "--bs=4k", "--output-format=json", &file];
    let output =
        run("fio", &[&["--name=reads", "--rw=randread", "--runtime=2", "--time_based"], &deep[..]].concat());
    let report: Value = serde_json::from_str(&output[output.find('{').unwrap()..]).unwrap();
    let all = number(&report["jobs"][0]["read"], "total_ios");
    assert!(all > 40_000, "too slow to test: {all} reads in 2 s");
    let ios = lines(&running.end());
    let shown: u64 = ios.iter().map(|io| number(io, "one_of")).sum();
    assert!(ios.len() < 40_000, "{} lines", ios.len());
    // None was dropped, or they would be missing from the sum.
    assert!(shown.abs_diff(all) < all / 50, "{shown} of {all}");
}
