//! systemd: notifications, the watchdog and socket activation.

use std::{
    fs::File,
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{fs::symlink, net::UnixDatagram, process::CommandExt as _},
    },
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    Folder,
    daemon::{Daemon, command, program, wait_for},
    figures::Figures,
    http,
    rcu_reader::RcuReader,
    run,
};

#[test]
#[ignore = "needs root: cargo xtask test"]
fn notifies_start_watchdog_and_stop() {
    let folder = Folder::new("notify", true);
    let path = folder.0.join("socket");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut buffer = [0; 64];
    let mut heard = || {
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let daemon = Daemon::start_command(
        command(&["--interval", "100ms"]).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000"),
    );
    assert_eq!(heard(), "READY=1");
    for _ in 0..5 {
        assert_eq!(heard(), "WATCHDOG=1");
    }
    assert_eq!(daemon.terminate().0.code(), Some(0));
    while heard() != "STOPPING=1" {}
}

/// A collection waits for runs of the probe: a restart or a longer interval would not help.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn waiting_collection_feeds_watchdog() {
    const WATCHDOG: Duration = Duration::from_secs(2);
    let folder = Folder::new("waits", true);
    let path = folder.0.join("socket");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut command = command(&["--interval", "500ms"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    // Loaded first, because verification takes long in an emulated machine, and collections would work in the meantime.
    let reader = RcuReader::load(Duration::from_secs(6));
    let daemon = Daemon::start_command(&mut command);
    let before = daemon.fresh();
    let longest = thread::scope(|scope| {
        let holder = scope.spawn(|| reader.run());
        let (mut fed, mut longest) = (Instant::now(), Duration::ZERO);
        while !holder.is_finished() {
            socket.recv(&mut [0; 64]).unwrap();
            longest = longest.max(fed.elapsed());
            fed = Instant::now();
        }
        longest
    });
    assert!(longest < WATCHDOG, "the watchdog was not fed for {longest:?}: {:#?}", daemon.log());
    let after = daemon.fresh();
    let log = daemon.log();
    let lines = |text: &str| log.iter().filter(|line| line.contains(text)).count();
    assert_eq!((lines("grace period has not ended"), lines("raise --interval")), (1, 0), "{log:#?}");
    let grown = |name| after.value(name, &[]) - before.value(name, &[]);
    assert_eq!(grown("biolat_collect_overruns_total"), 0.0);
    let collections = |figures: &Figures| {
        let metrics = figures.metrics("biolat_collect_duration_seconds", &[]);
        let histogram = metrics[0].histogram.as_ref().unwrap();
        (histogram.sample_count, histogram.sample_sum)
    };
    let ((count_before, worked_before), (count, worked)) = (collections(&before), collections(&after));
    // Two a second, except for most of the six seconds.
    let elapsed = (after.taken() - before.taken()).as_secs_f64();
    assert!(((count - count_before) as f64) < 2.0 * elapsed - 4.0, "no collection waited for seconds");
    // On a slow machine, collections work during much of the remaining time.
    let worked = worked - worked_before;
    assert!(worked < elapsed - 4.0, "collections worked for {worked} of {elapsed} s");
}

/// Simulates a drive that does not respond and blocks the collector.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn hung_collector_does_not_feed_watchdog() {
    assert_watchdog_is_not_fed("hangs", |folder| {
        // A disk with an attribute that blocks on read.
        let block = folder.0.join("stuck");
        std::fs::create_dir_all(block.join("sick/mq")).unwrap();
        run("mkfifo", &[block.join("sick/dev").to_str().unwrap()]);
        std::fs::rename(block, folder.0.join("block")).unwrap();
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn failing_collections_do_not_feed_watchdog() {
    assert_watchdog_is_not_fed("fails", |_| {});
}

/// Replaces the test's `/sys/block`; the watchdog must then not be fed.
fn assert_watchdog_is_not_fed(name: &str, replace: impl FnOnce(&Folder)) {
    let folder = Folder::new(name, true);
    for name in ["block", "kernel"] {
        symlink(format!("/sys/{name}"), folder.0.join(name)).unwrap();
    }
    let path = folder.0.join("socket");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut command = command(&["--interval", "100ms", "--sysfs", folder.0.to_str().unwrap()]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "600000");
    let daemon = Daemon::start_command(&mut command);
    std::fs::remove_file(folder.0.join("block")).unwrap();
    replace(&folder);
    wait_for("the watchdog to be starved", || {
        daemon.log().iter().any(|line| line.contains("no collection has succeeded for"))
    });
    let mut buffer = [0; 64];
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut buffer).is_ok() {}
    thread::sleep(Duration::from_secs(1));
    assert!(socket.recv(&mut buffer).is_err(), "the watchdog was fed");
    let (status, took) = daemon.terminate();
    assert!(status.code() == Some(0) && took < Duration::from_secs(2), "{status:?} after {took:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn does_not_feed_watchdog_of_other_process() {
    let folder = Folder::new("notify", true);
    let path = folder.0.join("socket");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut command = command(&["--interval", "100ms"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "10000").env("WATCHDOG_PID", "1");
    let daemon = Daemon::start_command(&mut command);
    let mut buffer = [0; 64];
    assert_eq!(socket.recv(&mut buffer).unwrap(), "READY=1".len());
    daemon.fresh();
    daemon.terminate();
    let length = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"STOPPING=1");
}

/// Returns a command that starts a daemon and passes it this descriptor as its only socket.
fn with(socket: impl Into<OwnedFd>, arguments: &[&str]) -> Command {
    // LISTEN_PID is known only in the child.
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""]).arg(program()).args(arguments);
    command.env("LISTEN_FDS", "1");
    let socket = socket.into();
    let pass_fds = move || {
        // If the socket is already descriptor 3, dup2 does not clear close-on-exec. SAFETY: plain numbers; nothing else in the
        // child owns these descriptors.
        if unsafe { libc::dup2(socket.as_raw_fd(), 3) < 0 || libc::fcntl(3, libc::F_SETFD, 0) < 0 } {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: both calls are async-signal-safe.
    unsafe { command.pre_exec(pass_fds) };
    command
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn serves_passed_socket() {
    let (socket, address) = listener();
    let daemon = Daemon::start_command(&mut with(socket, &["--interval", "100ms"]));
    assert_eq!(daemon.address, address);
    let served = daemon.log().iter().filter(|line| line.contains("serving on")).count();
    assert_eq!(served, 1, "it serves on another address as well");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn serves_passed_socket_and_address() {
    let (socket, handed_over) = listener();
    let (free, asked_for) = listener();
    drop(free);
    let daemon = Daemon::start_command(&mut with(socket, &["--listen", &asked_for.to_string()]));
    for address in [handed_over, asked_for] {
        assert_eq!(http::get(address, "/-/healthy", "").unwrap().status, 200);
    }
    drop(daemon);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn rejects_other_files() {
    let file = File::open("/dev/null").unwrap();
    let folder = Folder::new("notify", true);
    let datagrams = UnixDatagram::bind(folder.0.join("socket")).unwrap();
    for command in [&mut with(file, &[]), &mut with(datagrams, &[])] {
        let output = command.output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert!(printed.contains("socket 3, passed by systemd, does not listen on TCP"), "{printed}");
    }
}
