//! This process as `/proc/self` shows it.

use std::{fs, path::Path};

use crate::snapshot::Process;

/// Reads what there is; what cannot be read is zero.
#[must_use]
pub(crate) fn read(procfs: &Path) -> Process {
    let own = procfs.join("self");
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let boot = text(&procfs.join("stat"));
    let mut process = from_stat(&text(&own.join("stat")), boot_time(&boot)).unwrap_or_default();
    process.open_fds = fs::read_dir(own.join("fd")).map_or(0, |entries| entries.count() as u64);
    process.max_fds = max_fds(&text(&own.join("limits"))).unwrap_or(0);
    process
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

/// Seconds since the epoch.
fn boot_time(stat: &str) -> u32 {
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok()).unwrap_or(0)
}

fn max_fds(limits: &str) -> Option<u64> {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

fn system(name: libc::c_int) -> u64 {
    // SAFETY: no precondition.
    unsafe { libc::sysconf(name) }.max(1).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{boot_time, from_stat, max_fds, read};

    #[test]
    fn fields() {
        let stat = "42 (a) b) S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 3 0 1000 4096000 250 0 0";
        let process = from_stat(stat, 100).unwrap();
        assert_eq!((process.cpu_seconds, process.start_time_seconds), (3.0, 110.0));
        assert_eq!((process.virtual_bytes, process.resident_bytes), (4_096_000, 250 * 4096));
        assert_eq!(boot_time("cpu 1\nbtime 1700000000\n"), 1_700_000_000);
        assert_eq!(
            max_fds("Max open files            1024                 4096                 files\n"),
            Some(1024)
        );
    }

    #[test]
    fn this_process() {
        let process = read(Path::new("/proc"));
        assert!(process.resident_bytes > 100_000 && process.open_fds > 2 && process.start_time_seconds > 1e9);
    }
}
