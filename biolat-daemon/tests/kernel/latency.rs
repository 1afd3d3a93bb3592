//! Latencies, against fio's own and against the kernel's sums.

use serde_json::Value;

use crate::support::{
    awake::Awake,
    books::READ,
    daemon::Daemon,
    figures::{grown, quantile_index},
    load,
    loop_device::LoopDevice,
    run,
    settled::settled,
};

/// The native index of a latency.
fn index_of(seconds: f64) -> i32 {
    (seconds.log2() * 8.0).ceil() as i32
}

fn median_agrees_with_fio(depth: u32, block: &str, engine: &str) {
    // A disk behind it and CPUs that are awake, so that what fio spends around a request is small beside it.
    let _awake = Awake::all_cpus();
    let device = LoopDevice::attach("fio", false);
    load::Target::open(&device.path()).fill();
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let before = settled(&daemon, &device.name);
    // At once on a CPU when its request has ended, whatever else this machine has to do.
    let output = run(
        "chrt",
        &[
            "--fifo",
            "1",
            "fio",
            "--name=reads",
            "--rw=randread",
            "--direct=1",
            &format!("--bs={block}"),
            &format!("--ioengine={engine}"),
            &format!("--iodepth={depth}"),
            "--runtime=3",
            "--time_based",
            "--output-format=json",
            "--lat_percentiles=1",
            "--clat_percentiles=1",
            &format!("--filename={}", device.path().display()),
        ],
    );
    let after = settled(&daemon, &device.name);
    let report: Value = serde_json::from_str(&output[output.find('{').unwrap()..]).unwrap();
    let fio = report["jobs"][0]["read"]["clat_ns"]["percentile"]["50.000000"].as_f64().unwrap() / 1e9;

    let buckets = grown(
        before.1.histogram("total", &device.name, "read"),
        after.1.histogram("total", &device.name, "read").unwrap(),
    );
    let requests = after.0.completions(READ) - before.0.completions(READ);
    let ours = quantile_index(&buckets, 0.5);
    println!(
        "depth {depth}: fio's median {:.1} us, bucket {}; ours {ours}; {requests} I/Os",
        fio * 1e6,
        index_of(fio)
    );
    assert!((ours - index_of(fio)).abs() <= 2, "fio {fio} s is in bucket {}, ours {ours}", index_of(fio));
    assert_eq!(requests, report["jobs"][0]["read"]["total_ios"].as_u64().unwrap());
}

#[test]
#[ignore = "needs root and fio: cargo xtask test"]
fn median_agrees_with_fio_at_depth_1() {
    // fio's clock for an asynchronous request starts only when it is submitted, by when this one may be half
    // done; that of a synchronous one covers the whole call.
    median_agrees_with_fio(1, "256k", "psync");
}

#[test]
#[ignore = "needs root and fio: cargo xtask test"]
fn median_agrees_with_fio_at_depth_32() {
    median_agrees_with_fio(32, "256k", "libaio");
}

/// Queue and device add up to the total, and the total to what the kernel itself has summed.
#[test]
#[ignore = "needs root and fio: cargo xtask test"]
fn sums_agree_with_each_other_and_with_the_kernels() {
    let device = LoopDevice::attach("sums", true);
    device.set_attribute("queue/wbt_lat_usec", "2000");
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let before = settled(&daemon, &device.name);
    run(
        "fio",
        &[
            "--name=reads",
            "--rw=randread",
            "--direct=1",
            "--bs=256k",
            "--ioengine=libaio",
            "--iodepth=128",
            "--runtime=3",
            "--time_based",
            &format!("--filename={}", device.path().display()),
        ],
    );
    let after = settled(&daemon, &device.name);
    let sum = |phase: &str| {
        let seconds = |figures: &crate::support::figures::Figures| {
            figures.histogram(phase, &device.name, "read").map_or(0.0, |histogram| histogram.sample_sum)
        };
        seconds(&after.1) - seconds(&before.1)
    };
    let (queue, in_device, total) = (sum("queue"), sum("device"), sum("total"));
    let counts = ["queue", "device", "total"]
        .map(|phase| after.1.histogram(phase, &device.name, "read").unwrap().sample_count);
    assert!(counts[0] == counts[1] && counts[1] == counts[2], "{counts:?}");
    assert!((queue + in_device - total).abs() < 1e-9 * 2.0, "{queue} + {in_device} = {total}");

    let kernel = after.0.seconds(READ) - before.0.seconds(READ);
    println!("total {total:.3} s, the kernel's own {kernel:.3} s");
    // The kernel takes the time a little later, when the request's bios have ended; it books milliseconds.
    assert!(total <= kernel + 0.002, "{total} s, and the kernel has {kernel} s");
    assert!(total > kernel * 0.98, "{total} s, and the kernel has {kernel} s");
}
