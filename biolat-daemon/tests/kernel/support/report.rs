//! A running `biolat-daemon report`.

use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    Folder,
    daemon::{program, wait_for},
};

/// A report without an end, which Ctrl-C ends.
pub(crate) struct Report {
    child: Child,
    output: PathBuf,
    _folder: Folder,
}

impl Report {
    /// Starts it and waits until it measures.
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        let folder = Folder::new(name, true);
        let (output, messages) = (folder.0.join("output"), folder.0.join("messages"));
        let mut command = Command::new(program());
        command.arg("report").args(arguments).stdin(Stdio::null());
        command.stdout(File::create(&output).unwrap()).stderr(File::create(&messages).unwrap());
        let report = Self { child: command.spawn().unwrap(), output, _folder: folder };
        let printed = || {
            let read = |path| std::fs::read_to_string(path).unwrap();
            format!("{}{}", read(&report.output), read(&messages))
        };
        wait_for("the report to begin", || {
            let printed = printed();
            printed.contains("tracing with its own probe") || printed.contains("reading biolat")
        });
        report
    }

    /// Ends it with Ctrl-C; returns its output.
    pub(crate) fn end(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let began = Instant::now();
        let status = self.child.wait().unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "Ctrl-C took {:?}", began.elapsed());
        assert_eq!(status.code(), Some(0));
        std::fs::read_to_string(&self.output).unwrap()
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
