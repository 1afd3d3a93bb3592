//! Code shared by the kernel tests: devices, load with known counts, daemons and their metrics.

pub(crate) mod awake;
pub(crate) mod biolat;
pub(crate) mod block;
pub(crate) mod bpf;
pub(crate) mod bpf_file_system;
pub(crate) mod browser;
pub(crate) mod cgroup;
pub(crate) mod daemon;
pub(crate) mod day;
pub(crate) mod day_page;
pub(crate) mod diskstats;
pub(crate) mod dm;
pub(crate) mod emulator;
pub(crate) mod fd_store;
pub(crate) mod figures;
pub(crate) mod file_system;
pub(crate) mod fio;
pub(crate) mod freezable;
pub(crate) mod http;
pub(crate) mod inflight;
pub(crate) mod kernel;
pub(crate) mod kernel_memory;
pub(crate) mod kubelet;
pub(crate) mod load;
pub(crate) mod loop_device;
pub(crate) mod machine;
pub(crate) mod md;
pub(crate) mod mount;
#[path = "../../support/native.rs"]
pub(crate) mod native;
pub(crate) mod nbd;
pub(crate) mod null_blk;
pub(crate) mod nvme_tcp;
pub(crate) mod offline_cpus;
pub(crate) mod passthrough;
pub(crate) mod prometheus;
#[path = "../../support/prometheus.rs"]
mod prometheus_server;
pub(crate) mod rcu_reader;
pub(crate) mod scsi_debug;
pub(crate) mod settled;
pub(crate) mod slow_log;
pub(crate) mod terminal;
pub(crate) mod tracing;
pub(crate) mod ublk;
pub(crate) mod unprivileged;

use std::{path::PathBuf, process::Command};

/// Runs a program, asserts that it succeeds, and returns its output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A temporary folder of this process, removed on drop.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// Creates the folder in memory if `fast`, otherwise in the directory for temporary files.
    pub(crate) fn new(name: &str, fast: bool) -> Self {
        let base = if fast { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let path = base.join(format!("biolat-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
