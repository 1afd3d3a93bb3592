//! This process as `/proc/self` shows it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::snapshot::Process;

/// Reads what there is; what cannot be read is zero.
pub(crate) struct Reader {
    own: PathBuf,
    /// Seconds since the epoch. To tell it the kernel sums up every interrupt of every CPU, so it is asked once.
    boot_time: u32,
}

impl Reader {
    #[must_use]
    pub(crate) fn new(procfs: &Path) -> Self {
        Self { own: procfs.join("self"), boot_time: boot_time(&text(&procfs.join("stat"))) }
    }

    #[must_use]
    pub(crate) fn read(&self) -> Process {
        let mut process = from_stat(&text(&self.own.join("stat")), self.boot_time).unwrap_or_default();
        process.open_fds = fs::read_dir(self.own.join("fd")).map_or(0, |entries| entries.count() as u64);
        process.max_fds = max_fds();
        process
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Fields as in proc_pid_stat(5), counted from behind the command's name, which may hold anything.
fn from_stat(stat: &str, boot_time: u32) -> Option<Process> {
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = system(libc::_SC_CLK_TCK) as f64;
    Some(Process {
        cpu_seconds: (field(14)? + field(15)?) as f64 / ticks,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * system(libc::_SC_PAGESIZE),
        start_time_seconds: f64::from(boot_time) + field(22)? as f64 / ticks,
        ..Process::default()
    })
}

fn boot_time(stat: &str) -> u32 {
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok()).unwrap_or(0)
}

fn max_fds() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the struct.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}

fn system(name: libc::c_int) -> u64 {
    // SAFETY: no precondition.
    unsafe { libc::sysconf(name) }.max(1).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Reader, boot_time, from_stat};

    #[test]
    fn fields() {
        let stat = "42 (a) b) S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 3 0 1000 4096000 250 0 0";
        let process = from_stat(stat, 100).unwrap();
        assert_eq!((process.cpu_seconds, process.start_time_seconds), (3.0, 110.0));
        assert_eq!((process.virtual_bytes, process.resident_bytes), (4_096_000, 250 * 4096));
        assert_eq!(boot_time("cpu 1\nbtime 1700000000\n"), 1_700_000_000);
    }

    #[test]
    fn this_process() {
        let process = Reader::new(Path::new("/proc")).read();
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        assert_eq!(process.max_fds.to_string(), files.split_whitespace().next().unwrap());
        assert!(process.resident_bytes > 100_000 && process.open_fds > 2 && process.start_time_seconds > 1e9);
    }
}
