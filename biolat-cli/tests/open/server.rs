//! A running `biolat open`.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::http;

/// Killed on drop.
pub(crate) struct Open {
    pub(crate) child: Child,
    /// The line it printed.
    pub(crate) line: String,
    pub(crate) address: SocketAddr,
}

pub(crate) fn command(file: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_biolat"));
    command.arg("open").arg(file).env("TZ", "UTC");
    command
}

impl Open {
    pub(crate) fn start(file: &Path) -> Self {
        Self::run(&mut command(file))
    }

    /// Starts the command and waits until it is serving.
    pub(crate) fn run(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split_once('/'));
        let address = address.expect("an address").0.parse().unwrap();
        Self { child, line, address }
    }

    pub(crate) fn get(&self, path: &str) -> http::Answer {
        http::get(self.address, path, "").unwrap()
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}");
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Stops it like Ctrl-C.
    pub(crate) fn interrupt(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
