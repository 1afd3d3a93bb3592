//! A running `biolat`.

use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    Folder,
    daemon::{biolat, wait_for},
};

/// A command that runs until Ctrl-C.
pub(crate) struct Biolat {
    child: Child,
    output: PathBuf,
    _folder: Folder,
}

impl Biolat {
    /// Starts the command and waits until it is measuring.
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        let folder = Folder::new(name, true);
        let (output, messages) = (folder.0.join("output"), folder.0.join("messages"));
        let mut command = Command::new(biolat());
        command.args(arguments).stdin(Stdio::null());
        command.stdout(File::create(&output).unwrap()).stderr(File::create(&messages).unwrap());
        let running = Self { child: command.spawn().unwrap(), output, _folder: folder };
        let printed = || {
            let read = |path| std::fs::read_to_string(path).unwrap();
            format!("{}{}", read(&running.output), read(&messages))
        };
        wait_for("biolat to begin", || {
            let printed = printed();
            printed.contains("measuring on this host")
                || printed.contains(concat!("biolat-daemon ", env!("CARGO_PKG_VERSION")))
        });
        running
    }

    /// Stops it with Ctrl-C and returns its output.
    pub(crate) fn end(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let began = Instant::now();
        let status = self.child.wait().unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "Ctrl-C took {:?}", began.elapsed());
        assert_eq!(status.code(), Some(0));
        std::fs::read_to_string(&self.output).unwrap()
    }
}

impl Drop for Biolat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
