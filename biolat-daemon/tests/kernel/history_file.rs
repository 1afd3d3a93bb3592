//! A history file that survives the daemon.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use biolat_common::series::Phase;
use biolat_model::{api::ApiHistory, histogram::Histogram, snapshot::Snapshot, text::time::unix_seconds};

use crate::{
    history::{assert_sums, get, ios},
    support::{
        Folder,
        awake::Awake,
        daemon::{Daemon, program, wait_for},
        fd_store::FdStore,
        load::Target,
        loop_device::LoopDevice,
        mount::Mount,
        settled::settled,
    },
};

fn arguments<'a>(device: &'a str, file: &'a str) -> [&'a str; 6] {
    ["--interval", "100ms", "--device", device, "--history-file", file]
}

fn history(daemon: &Daemon) -> ApiHistory {
    get(daemon, "/api/v1/history?from=0")
}

/// Daemons are killed and stopped during I/O: each I/O is in exactly one interval, and each interval begins where the previous
/// one ended.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn history_has_no_gap_after_restart() {
    let device = LoopDevice::attach("history-file", true);
    let (store, folder) = (FdStore::new("history-store"), Folder::new("history-files", true));
    let file = folder.0.join("history");
    let arguments = arguments(&device.name, file.to_str().unwrap());
    let _awake = Awake::all_cpus();
    let target = Target::open(&device.path());
    let mut daemon = Daemon::start_command(&mut store.command(&arguments));
    for round in 0..6 {
        target.read(300);
        target.write(70);
        wait_for("some intervals", || history(&daemon).intervals.len() > 5 * (round + 1));
        if round % 2 == 0 {
            // Drop sends SIGKILL.
            drop(daemon);
        } else {
            daemon.terminate();
        }
        target.read(30);
        thread::sleep(Duration::from_millis(300));
        daemon = Daemon::start_command(&mut store.command(&arguments));
        wait_for("its first interval", || history(&daemon).intervals.len() > 5 * (round + 1) + 1);
    }
    let _ = settled(&daemon, &device.name);
    let snapshot: Snapshot = get(&daemon, "/api/v1/snapshot");
    wait_for("an interval after the last I/O", || {
        history(&daemon).intervals.last().is_some_and(|interval| interval.ended > snapshot.taken)
    });
    let intervals = history(&daemon).intervals;
    let totals = snapshot.devices[0].series.iter().map(|op| &op.histograms[Phase::Total as usize]);
    let counted: u64 = totals.map(Histogram::count).sum();
    assert!(counted >= 6 * 400, "{counted}");
    assert_eq!(ios(&intervals, &device.name), counted);
    assert_sums(&intervals, &snapshot);
    for pair in intervals.windows(2) {
        let [ended, began] = [pair[0].ended, pair[1].began].map(unix_seconds);
        assert!((began - ended).abs() < 0.01, "{ended} {began}");
    }
}

/// The daemon continues without the file, and logs the reason in one line.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn logs_unusable_history_file() {
    let folder = Folder::new("history-files", true);
    let of_others = folder.0.join("diary");
    fs::write(&of_others, "dear diary").unwrap();
    let small = Mount::new("history-small", &["-t", "tmpfs", "-o", "size=8k", "tmpfs"]);
    let read_only = Mount::new("history-read-only", &["-t", "tmpfs", "-o", "ro", "tmpfs"]);
    let on = |mount: &Mount| Path::new(mount.place()).join("history");
    for (path, expected) in [
        (
            of_others.clone(),
            "is not a biolat history, and is left unchanged: keeping the history in memory only",
        ),
        (
            folder.0.join("none/history"),
            "No such file or directory (os error 2): keeping the history in memory only",
        ),
        (on(&read_only), "Read-only file system (os error 30): keeping the history in memory only"),
        (
            on(&small),
            "No space left on device (os error 28): keeping it in memory, trying again every minute",
        ),
    ] {
        let device = LoopDevice::attach("history-file", true);
        let daemon = Daemon::start(&arguments(&device.name, path.to_str().unwrap()));
        Target::open(&device.path()).read(100);
        let expected = |line: &&String| line.contains(expected);
        wait_for("the line", || daemon.log().iter().any(|line| expected(&line)));
        wait_for("the history", || ios(&history(&daemon).intervals, &device.name) >= 100);
        let log = daemon.log();
        assert_eq!(log.iter().filter(expected).count(), 1, "{log:#?}");
    }
    assert_eq!(fs::read(&of_others).unwrap(), b"dear diary");
}

/// Two daemons are configured with the same file: the second takes over the history once the first has exited.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn takes_over_locked_file_when_free() {
    let folder = Folder::new("history-files", true);
    let file = folder.0.join("history");
    let device = LoopDevice::attach("history-file", true);
    let arguments = arguments(&device.name, file.to_str().unwrap());
    let first = Daemon::start(&arguments);
    let target = Target::open(&device.path());
    target.read(100);
    wait_for("the first I/Os", || ios(&history(&first).intervals, &device.name) == 100);
    let second = Daemon::start(&arguments);
    let lines = |text: &str| second.log().iter().filter(|line| line.contains(text)).count();
    wait_for("the line", || lines("another process has it locked") == 1);
    target.read(10);
    wait_for("the next I/Os", || ios(&history(&first).intervals, &device.name) == 110);
    wait_for("the I/Os in the other daemon", || ios(&history(&second).intervals, &device.name) == 10);
    first.terminate();
    target.read(1);
    wait_for("the file", || lines("resumed the history in") == 1);
    assert_eq!(lines("another process has it locked"), 1);
    wait_for("the last I/O", || ios(&history(&second).intervals, &device.name) == 111);
    second.terminate();
    let third = Daemon::start(&arguments);
    wait_for("the file to be read", || ios(&history(&third).intervals, &device.name) == 111);
}

/// The file is unlinked, or exceeds the file size limit: each is logged in one line, and the daemon continues.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn logs_removed_or_limited_history_file() {
    let folder = Folder::new("history-files", true);
    let file = folder.0.join("history");
    let device = LoopDevice::attach("history-file", true);
    let target = Target::open(&device.path());
    for limit in ["unlimited", "1"] {
        let script = format!("ulimit -f {limit}; exec \"$0\" --listen 127.0.0.1:0 \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(program()).args(arguments(&device.name, file.to_str().unwrap()));
        let daemon = Daemon::start_command(&mut command);
        target.read(100);
        wait_for("the history", || ios(&history(&daemon).intervals, &device.name) >= 100);
        let lines = |text: &str| daemon.log().iter().filter(|line| line.contains(text)).count();
        let expected = match limit {
            "unlimited" => {
                fs::remove_file(&file).unwrap();
                "was removed: it will be lost when biolat-daemon stops; restart it to start a new file"
            }
            _ => "File too large (os error 27): keeping it in memory, trying again every minute",
        };
        wait_for("the line", || lines(expected) == 1);
        let intervals = history(&daemon).intervals.len();
        wait_for("more intervals", || history(&daemon).intervals.len() > intervals + 5);
        assert_eq!(lines(expected), 1);
        assert_eq!(daemon.terminate().0.code(), Some(0));
    }
}
