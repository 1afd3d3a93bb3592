//! Faults around the daemon: system calls, standard error, file descriptors.

use std::{
    collections::BTreeMap,
    io::{self, Read as _},
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    awake::Awake,
    bpf_file_system::BpfFileSystem,
    daemon::{Daemon, program, wait_for},
    diskstats::{READ, Stat},
    figures::Figures,
    http,
    load::Target,
    loop_device::LoopDevice,
    settled::{compare, settled},
};

/// Maximum number of slots taken by unresolved devices and ended series.
const TRANSIENT_SLOTS: f64 = 64.0;

/// Every fifth bpf(2) call of the daemon fails with ENOMEM while devices come and go. Nothing is lost permanently: afterwards
/// there is room for as many series as before, and no I/O that was shown is counted again under an unknown device.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn failed_system_calls_lose_no_slots_or_counts() {
    let device = LoopDevice::attach("faults", true);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let _awake = Awake::all_cpus();
    Target::open(&device.path()).read(200);
    let before = settled(&daemon, &device.name).figures;
    let pid = daemon.pid().to_string();
    let mut strace = Command::new("strace")
        .args(["--quiet=all", "-f", "-p", &pid, "-e", "trace=bpf", "-e", "inject=bpf:error=ENOMEM:when=3+5"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("failures", || {
        Figures::scrape(daemon.address).value("biolat_collect_failures_total", &[]) > 0.0
    });
    let reads = |figures: &Figures| {
        figures.histogram("total", &device.name, "read").map_or(0, |histogram| histogram.sample_count)
    };
    let accounted_before = Stat::of(&device.name).completions(READ) - reads(&before);
    // Keyed by the time of the device's first collection, because the last snapshot is still served while collections fail.
    let mut shown = BTreeMap::new();
    for round in 0..30 {
        let figures = Figures::scrape(daemon.address);
        if let Some(histogram) = figures.histogram("total", &device.name, "read") {
            let created = histogram.start_timestamp.as_ref().unwrap();
            shown.insert((created.seconds, created.nanos), histogram.sample_count);
        }
        device.detach();
        thread::sleep(Duration::from_millis(120));
        device.attach_another(if round % 2 == 0 { "b" } else { "a" });
        Target::open(&device.path()).read(20);
        thread::sleep(Duration::from_millis(120));
    }
    kill_process(Pid::from_child(&strace), Signal::TERM).unwrap();
    strace.wait().unwrap();

    // Longer than a device can stay unresolved.
    thread::sleep(Duration::from_millis(2500));
    device.detach();
    wait_for("the series to end", || daemon.fresh().histogram("total", &device.name, "read").is_none());
    let ended = daemon.fresh();
    let unknown = ended.lost("unknown_device") - before.lost("unknown_device");
    let total = Stat::of(&device.name).completions(READ) - accounted_before;
    let shown: u64 = shown.values().sum();
    println!("{total} completions: {shown} shown in time, {unknown} of an unknown device");
    assert!(
        shown + unknown <= total,
        "{shown} shown, {unknown} unknown, {total} in total: {:?}",
        daemon.log()
    );
    let accounted = Stat::of(&device.name).completions(READ);
    device.attach_another("c");
    Target::open(&device.path()).read(100);
    wait_for("the new series", || daemon.fresh().histogram("total", &device.name, "read").is_some());
    let last = settled(&daemon, &device.name);
    let missed = last.figures.missed(&device.name);
    assert_eq!(reads(&last.figures) + missed, last.diskstats.completions(READ) - accounted);
    assert_eq!(last.figures.lost("no_room"), before.lost("no_room"), "{:?}", daemon.log());
    let slots = |figures: &Figures| figures.value("biolat_series_slots", &[]);
    assert!(
        slots(&ended) <= slots(&before) + TRANSIENT_SLOTS,
        "{} slots, {} before",
        slots(&ended),
        slots(&before)
    );
}

/// A daemon that cannot pin its new probe exits, and the previously pinned probe keeps counting for the next daemon.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn failed_upgrade_leaves_previous_probe() {
    let (device, bpf) = (LoopDevice::attach("unkept", true), BpfFileSystem::mount("unkept-bpf"));
    let name = device.name.as_str();
    let folder = bpf.path().to_str().unwrap();
    let arguments = ["--interval", "100ms", "--device", name, "--pin", folder];
    let _awake = Awake::all_cpus();
    let daemon = Daemon::start(&arguments);
    let before = settled(&daemon, name);
    drop(daemon);
    let failed = Command::new("strace")
        .args(["--quiet=all", "-f", "-o", "/dev/null", "-e", "inject=?mkdir,mkdirat:error=ENOSPC"])
        .arg(program())
        .args(["--listen", "127.0.0.1:0", "--slow", "100ms"])
        .args(arguments)
        .output()
        .unwrap();
    let log = String::from_utf8(failed.stderr).unwrap();
    assert!(failed.status.code() == Some(1) && log.contains("cannot create "), "{log}");
    assert!(!log.contains("cannot list"), "{log}");
    assert_eq!(bpf.probes(), 1);
    Target::open(&device.path()).read(50);
    let daemon = Daemon::start(&arguments);
    assert!(daemon.log().iter().any(|line| line.contains("and its probe")), "{:#?}", daemon.log());
    assert_eq!(compare(name, &before, &settled(&daemon, name)).of(READ), 50);
}

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Standard error is a full pipe that nobody reads.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn stalled_log_blocks_nothing() {
    let device = LoopDevice::attach("stalled", true);
    let (mut reader, writer) = io::pipe().unwrap();
    // Fills the pipe and leaves it full.
    let mut yes = Command::new("yes").stdout(writer.try_clone().unwrap()).spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    yes.kill().unwrap();
    yes.wait().unwrap();
    // The log, which states the address, cannot be read, so pick a free port here.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut child = KilledOnDrop(
        Command::new(program())
            .args(["--listen", &address.to_string(), "--interval", "100ms", "--device", &device.name])
            .stderr(writer)
            .spawn()
            .unwrap(),
    );
    wait_for("the first collection", || http::get(address, "/-/ready", "").is_ok_and(|a| a.status == 200));
    let before = Figures::scrape(address).taken();
    for round in 0..5 {
        device.detach();
        thread::sleep(Duration::from_millis(100));
        device.attach_another(if round % 2 == 0 { "b" } else { "a" });
        thread::sleep(Duration::from_millis(100));
    }
    let after = Figures::scrape(address).taken();
    assert!(after - before > Duration::from_millis(700), "collections stopped: {:?}", after - before);

    // When the pipe is read again, the next line reports the number of dropped lines.
    let log = Arc::new(Mutex::new(String::new()));
    let shared = Arc::clone(&log);
    thread::spawn(move || {
        let mut text = vec![0; 1 << 16];
        while let Ok(read) = reader.read(&mut text) {
            let lines = String::from_utf8_lossy(&text[..read]).replace("y\n", "");
            shared.lock().unwrap().push_str(&lines);
        }
    });
    device.detach();
    wait_for("the number of dropped lines", || {
        log.lock().unwrap().contains("log lines before this were dropped")
    });
    let began = Instant::now();
    kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
    assert!(child.0.wait().unwrap().success());
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}
