//! Latencies agree with fio and with the kernel's sums.

use crate::support::{
    awake::Awake,
    block::set_attribute,
    daemon::Daemon,
    diskstats::READ,
    figures::{Figures, grown, index_of, quantile_index},
    fio::Report,
    load,
    loop_device::LoopDevice,
    settled::settled,
};

fn median_agrees_with_fio(depth: u32, block: &str, engine: &str) {
    // Uses a disk and keeps all CPUs awake, so fio's own time per request is comparatively small.
    let _awake = Awake::all_cpus();
    let device = LoopDevice::attach("fio", false);
    load::Target::open(&device.path()).fill();
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let before = settled(&daemon, &device.name);
    let (block, engine, depth) =
        (format!("--bs={block}"), format!("--ioengine={engine}"), format!("--iodepth={depth}"));
    let options = [block.as_str(), &engine, &depth, "--runtime=3", "--time_based"];
    let report = Report::of_reads(&device.path(), &options);
    let after = settled(&daemon, &device.name);
    let fio = report.median();

    let buckets = grown(
        before.figures.histogram("total", &device.name, "read"),
        after.figures.histogram("total", &device.name, "read").unwrap(),
    );
    let requests = after.diskstats.completions(READ) - before.diskstats.completions(READ);
    let ours = quantile_index(&buckets, 0.5);
    println!(
        "{depth}: fio's median is {:.1} us, in bucket {}, ours in {ours}; {requests} I/Os",
        fio * 1e6,
        index_of(fio)
    );
    assert!((ours - index_of(fio)).abs() <= 2, "fio {fio} s is in bucket {}, ours {ours}", index_of(fio));
    assert_eq!(requests, report.requests());
}

#[test]
#[ignore = "needs root and fio: cargo xtask test"]
fn median_agrees_with_fio_at_depth_1() {
    // fio starts timing an asynchronous request when the submission returns, and by then it can be half done; for a synchronous
    // request it times the whole call.
    median_agrees_with_fio(1, "256k", "psync");
}

#[test]
#[ignore = "needs root and fio: cargo xtask test"]
fn median_agrees_with_fio_at_depth_32() {
    median_agrees_with_fio(32, "256k", "libaio");
}

/// Queue and device add up to the total, and the total agrees with the kernel's sum.
#[test]
#[ignore = "needs root and fio: cargo xtask test"]
fn sums_agree_with_kernel() {
    let device = LoopDevice::attach("sums", true);
    set_attribute(&device.name, "queue/wbt_lat_usec", "2000");
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let before = settled(&daemon, &device.name);
    let options = ["--bs=256k", "--ioengine=libaio", "--iodepth=128", "--runtime=3", "--time_based"];
    Report::of_reads(&device.path(), &options);
    let after = settled(&daemon, &device.name);
    let sum = |phase: &str| {
        let seconds = |figures: &Figures| figures.seconds(phase, &device.name, "read");
        seconds(&after.figures) - seconds(&before.figures)
    };
    let (queue, in_device, total) = (sum("queue"), sum("device"), sum("total"));
    let counts = ["queue", "device", "total"]
        .map(|phase| after.figures.histogram(phase, &device.name, "read").unwrap().sample_count);
    assert!(counts[0] == counts[1] && counts[1] == counts[2], "{counts:?}");
    assert!((queue + in_device - total).abs() < 1e-9 * 2.0, "{queue} + {in_device} = {total}");

    let kernel = after.diskstats.seconds(READ) - before.diskstats.seconds(READ);
    println!("total {total:.3} s, the kernel's {kernel:.3} s");
    // The kernel reads the clock slightly later, after ending the request's bios, and accounts in milliseconds.
    assert!(total <= kernel + 0.002, "{total} s, the kernel accounted {kernel} s");
    assert!(total > kernel * 0.98, "{total} s, the kernel accounted {kernel} s");
}
