//! Helpers for running `biolat`. Servers, snapshots and certificates are shared with the daemon's tests.

#![allow(dead_code, reason = "the daemon's tests use all of it")]

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Output},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

#[path = "../../../biolat-daemon/tests/support/certificates.rs"]
pub(crate) mod certificates;
#[path = "../../../biolat-daemon/tests/support/history.rs"]
pub(crate) mod history;
#[path = "../../../biolat-daemon/tests/support/server.rs"]
pub(crate) mod server;
#[path = "../../../biolat-daemon/tests/support/snapshots.rs"]
pub(crate) mod snapshots;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_biolat");

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BIOLAT_")) {
        command.env_remove(name);
    }
    command.env_remove("COLUMNS").args(arguments);
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// The output of a command that succeeds.
pub(crate) fn works(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Sends SIGINT, like Ctrl-C.
pub(crate) fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

/// Sends SIGINT, like Ctrl-C. The program must exit soon, successfully and without output.
pub(crate) fn ends_on_ctrl_c(child: Child) {
    let began = Instant::now();
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

/// Runs a shell line in 400 MiB of address space, where `$0` is the program.
pub(crate) fn run_in_400_mib(line: &str, arguments: &[&str]) -> Output {
    let script = format!("ulimit -v 400000; exec {line}");
    Command::new("sh").args(["-c", &script, PROGRAM]).args(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Joins wrapped text into one line.
pub(crate) fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Checks the exit code, and the only line on standard error.
pub(crate) fn fails(output: &Output, expected: &[&str]) {
    fails_with(output, 1, expected);
}

/// Checks for a usage error.
pub(crate) fn is_refused(output: &Output, expected: &[&str]) {
    fails_with(output, 2, expected);
}

fn fails_with(output: &Output, code: i32, expected: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(output.stdout.is_empty() && !stderr.contains("panicked"), "{stderr}");
    for part in expected {
        assert!(stderr.contains(part), "{stderr} does not contain: {part}");
    }
}

/// A server that answers every request with these bytes.
pub(crate) fn server_of(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(bytes);
            });
        }
    });
    address
}
