//! A daemon that is killed while one of its threads waits for a hung drive. The process remains until the drive responds; the
//! next daemon does not wait for it.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use biolat_common::series::Phase;
use biolat_model::{api::ApiHistory, histogram::Histogram, snapshot::Snapshot, text::time::unix_seconds};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    history::{assert_sums, get, ios},
    kept_probe::Random,
    support::{
        Folder,
        awake::Awake,
        bpf::programs,
        bpf_file_system::BpfFileSystem,
        daemon::{Daemon, command, program, wait_for},
        diskstats::READ,
        freezable::Freezable,
        load::Target,
        loop_device::LoopDevice,
        settled::{compare, settled},
    },
};

/// A thread, as its directory in `/proc`.
struct Task(PathBuf);

impl Task {
    fn all(pid: u32) -> Vec<Self> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        tasks.map(|task| Self(task.unwrap().path())).collect()
    }

    fn name(&self) -> String {
        fs::read_to_string(self.0.join("comm")).unwrap_or_default().trim().to_owned()
    }

    /// Returns the state letter: `D` while it waits for a drive, `Z` after it has exited.
    fn state(&self) -> Option<char> {
        fs::read_to_string(self.0.join("stat")).ok()?.rsplit_once(") ")?.1.chars().next()
    }

    /// Returns the targets of the thread's file descriptors, except the standard streams.
    fn open(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.0.join("fd")) else { return Vec::new() };
        let paths = entries.map(|entry| entry.unwrap().path());
        let others = paths
            .filter(|path| !["0", "1", "2"].map(Path::new).contains(&Path::new(path.file_name().unwrap())));
        others.filter_map(|path| fs::read_link(path).ok()).collect()
    }
}

/// Whether the thread that writes the history is waiting for the drive.
fn is_hung(daemon: &Daemon) -> bool {
    Task::all(daemon.pid()).iter().any(|task| task.name() == "history" && task.state() == Some('D'))
}

fn history(daemon: &Daemon) -> ApiHistory {
    get(daemon, "/api/v1/history?from=0")
}

fn has_line(daemon: &Daemon, text: &str) -> bool {
    daemon.log().iter().any(|line| line.contains(text))
}

/// Sends a fatal signal, and waits until only the hung thread is left.
fn end(daemon: &Daemon, signal: Signal) {
    kill_process(Pid::from_raw(daemon.pid().cast_signed()).unwrap(), signal).unwrap();
    wait_for("the other threads to end", || {
        Task::all(daemon.pid()).iter().all(|task| matches!(task.state(), Some('D' | 'Z') | None))
    });
    thread::sleep(Duration::from_millis(200));
}

/// With pins, the next daemon continues the counts; it takes over the history when the drive responds.
#[test]
#[ignore = "needs root, ext4 and fsfreeze: cargo xtask test"]
fn next_daemon_starts_at_once_and_takes_over_history_later() {
    let (device, drive) = (LoopDevice::attach("hung-history", true), Freezable::attach("history-drive"));
    let bpf = BpfFileSystem::mount("hung-history-bpf");
    let file = Path::new(drive.place()).join("history");
    let arguments = [
        "--interval",
        "100ms",
        "--device",
        &device.name,
        "--pin",
        bpf.path().to_str().unwrap(),
        "--history-file",
        file.to_str().unwrap(),
    ];
    let _awake = Awake::all_cpus();
    let target = Target::open(&device.path());
    let killed = Daemon::start(&arguments);
    let before = settled(&killed, &device.name);
    target.read(100);
    wait_for("the history to be written", || fs::metadata(&file).is_ok_and(|file| file.len() > 2000));
    let frozen = drive.freeze();
    target.read(50);
    wait_for("the thread to hang", || is_hung(&killed));
    end(&killed, Signal::KILL);
    assert!(is_hung(&killed), "the hang was too short for this test");
    target.read(30);

    let began = Instant::now();
    let address = killed.address.to_string();
    let mut next = Command::new(program());
    let next = Daemon::start_command(next.args(["--listen", &address]).args(arguments));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(has_line(&next, "resumed the previous daemon's counters"), "{:#?}", next.log());
    target.read(7);
    assert_eq!(compare(&device.name, &before, &settled(&next, &device.name)).of(READ), 187);
    wait_for("intervals in memory", || history(&next).intervals.len() > 3);
    assert!(is_hung(&killed) && !has_line(&next, "resumed the history"), "{:#?}", next.log());

    drop(frozen);
    wait_for("the file to be read", || has_line(&next, "resumed the history"));
    let length = fs::metadata(&file).unwrap().len();
    let second = file.with_extension("2");
    wait_for("the history to be written again", || {
        fs::metadata(&file).unwrap().len() > length || fs::metadata(&second).unwrap().len() > 2000
    });
    drop(killed);
    // Nothing is missing, and each interval begins where the previous one ended.
    assert_whole(&next, &device.name);
    next.terminate();
    let last = Daemon::start(&arguments);
    wait_for("the file to be read", || has_line(&last, "resumed the history"));
    assert_whole(&last, &device.name);
}

/// Asserts that the history contains all counted I/Os and has no gaps.
fn assert_whole(daemon: &Daemon, device: &str) {
    let _ = settled(daemon, device);
    let snapshot: Snapshot = get(daemon, "/api/v1/snapshot");
    wait_for("an interval after the last I/O", || {
        history(daemon).intervals.last().is_some_and(|interval| interval.ended > snapshot.taken)
    });
    let intervals = history(daemon).intervals;
    let totals = snapshot.devices[0].series.iter().map(|op| &op.histograms[Phase::Total as usize]);
    let counted: u64 = totals.map(Histogram::count).sum();
    assert_eq!(ios(&intervals, device), counted);
    assert_sums(&intervals, &snapshot);
    for pair in intervals.windows(2) {
        let [ended, began] = [pair[0].ended, pair[1].began].map(unix_seconds);
        assert!((began - ended).abs() < 0.01, "{ended} {began}");
    }
}

/// Without pins, nothing of the probe remains. (After SIGABRT all of it would, because the thread that writes the core file waits
/// for the hung one.)
#[test]
#[ignore = "needs root, ext4, fsfreeze and bpftool: cargo xtask test"]
fn hung_process_holds_no_shared_resources() {
    let drive = Freezable::attach("history-drive");
    let device = LoopDevice::attach("hung-history", true);
    let hangs = std::env::var("BIOLAT_TEST_HANGS").map_or(2, |hangs| hangs.parse().unwrap());
    let mut random = Random::default();
    for (hang, signal) in (0..hangs).zip([Signal::KILL, Signal::TERM].into_iter().cycle()) {
        let file = Path::new(drive.place()).join(format!("history-{}", hang % 4));
        let others = programs();
        let mut start = command(&["--interval", "100ms", "--device", &device.name]);
        let daemon = Daemon::start_command(start.args(["--history-file", file.to_str().unwrap()]));
        wait_for("the history to be written", || fs::metadata(&file).is_ok_and(|file| file.len() > 500));
        thread::sleep(Duration::from_micros(random.below(200_000)));
        let frozen = drive.freeze();
        wait_for("the thread to hang", || is_hung(&daemon));
        end(&daemon, signal);
        let tasks = Task::all(daemon.pid());
        let hung: Vec<_> = tasks.iter().filter(|task| task.state() == Some('D')).map(Task::name).collect();
        assert_eq!(hung, ["history"], "after {signal:?}");
        wait_for("the kernel to free the probe", || programs().is_subset(&others));
        TcpListener::bind(daemon.address).unwrap();
        assert!(is_hung(&daemon), "{signal:?}: the process ended too early for this test");
        drop(frozen);
    }
}

/// No thread that reads or writes files holds a socket or part of the probe.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn threads_with_file_io_have_own_descriptors() {
    let folder = Folder::new("descriptors", true);
    let device = LoopDevice::attach("descriptors", true);
    let (history, web_config) = (folder.0.join("history"), folder.0.join("web.yml"));
    fs::write(&web_config, "http_server_config:\n  headers:\n    X-Frame-Options: deny\n").unwrap();
    let daemon = Daemon::start(&[
        "--interval",
        "100ms",
        "--device",
        &device.name,
        "--history-file",
        history.to_str().unwrap(),
        "--web-config",
        web_config.to_str().unwrap(),
    ]);
    wait_for("the history to be written", || fs::metadata(&history).is_ok_and(|file| file.len() > 500));
    daemon.fresh();
    let tasks = Task::all(daemon.pid());
    let mut names: Vec<_> = tasks.iter().map(Task::name).collect();
    let allowed = |open: &Path| open == Path::new("anon_inode:[eventfd]") || open.starts_with(&folder.0);
    let has_others = |task: &&Task| task.open().iter().any(|open| !allowed(open));
    let with_others: Vec<_> = tasks.iter().filter(has_others).map(Task::name).collect();
    names.retain(|name| !with_others.contains(name));
    names.sort();
    names.dedup();
    assert_eq!(names, ["history", "sysfs", "tokio-rt-worker"]);
    assert_eq!(
        with_others.len(),
        3,
        "expected only the serving, collecting and grace period threads: {with_others:?}"
    );
}
