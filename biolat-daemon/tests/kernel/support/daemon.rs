//! A daemon, started the way a user would start it.

use std::{
    ffi::OsString,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

pub(crate) use biolat_testing::wait_for;
use rustix::process::{Pid, Signal, kill_process};

use super::{figures::Figures, http};

/// A running daemon, killed on drop.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

/// Returns the path of the daemon: `BIOLAT_TEST_DAEMON` on a machine that did not build it.
pub(crate) fn program() -> OsString {
    std::env::var_os("BIOLAT_TEST_DAEMON").unwrap_or_else(|| env!("CARGO_BIN_EXE_biolat-daemon").into())
}

/// Returns the path of the terminal tool, which is next to the daemon.
pub(crate) fn biolat() -> OsString {
    PathBuf::from(program()).with_file_name("biolat").into()
}

/// Returns the daemon's command, listening on any free port.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["--listen", "127.0.0.1:0"]).args(arguments);
    command
}

impl Daemon {
    /// Starts a daemon for the matching devices, with a short interval.
    pub(crate) fn of(devices: &str) -> Self {
        Self::start(&["--interval", "200ms", "--device", devices])
    }

    /// Starts a daemon and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_command(&mut command(arguments))
    }

    pub(crate) fn start_command(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut seen = Vec::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else { panic!("the daemon exited: {seen:?}") };
            let address = line.split_once("serving on http://").and_then(|(_, rest)| {
                rest.split_once("/metrics").and_then(|(address, _)| address.parse().ok())
            });
            seen.push(line);
            if let Some(address) = address {
                break address;
            }
        };
        let log = Arc::new(Mutex::new(seen));
        let shared = Arc::clone(&log);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                shared.lock().unwrap().push(line);
            }
        });
        let daemon = Self { child, address, log };
        wait_for("the daemon to be ready", || {
            http::get(daemon.address, "/-/ready", "").is_ok_and(|a| a.status == 200)
        });
        daemon
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Returns metrics read from the kernel after this call: the second collection to end from now.
    pub(crate) fn fresh(&self) -> Figures {
        let mut figures = Figures::scrape(self.address);
        for _ in 0..2 {
            let last = figures.taken();
            wait_for("a new collection", || {
                figures = Figures::scrape(self.address);
                figures.taken() > last
            });
        }
        figures
    }

    /// Sends SIGTERM, as a service manager would. Returns the exit status and the time until the exit.
    pub(crate) fn terminate(mut self) -> (ExitStatus, Duration) {
        let began = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        (self.child.wait().unwrap(), began.elapsed())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the daemon's log: {:#?}", self.log());
        }
    }
}
