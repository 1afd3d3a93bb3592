//! Resource usage of this process according to `/proc/self`, and its limit on open files.

use std::{fs, path::Path, time::Duration};

use biolat_model::snapshot::Process;
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};

use crate::c_library::{clock_ticks_per_second, page_size};

/// Reads `/proc/self`; `None` if that is not possible.
pub fn read(procfs: &Path) -> Option<Process> {
    let stat = fs::read_to_string(procfs.join("self/stat")).ok()?;
    let process = from_stat(&stat, boot_time())?;
    Some(Process { open_fds: open_fds(procfs)?, max_fds: max_fds(), ..process })
}

/// Returns the number of files that this process has open.
pub fn open_fds(procfs: &Path) -> Option<u64> {
    Some(fs::read_dir(procfs.join("self/fd")).ok()?.count() as u64)
}

/// Parses proc_pid_stat(5). Fields are located from the end of the command name, which can contain anything.
fn from_stat(stat: &str, boot_time: u64) -> Option<Process> {
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = clock_ticks_per_second() as f64;
    Some(Process {
        cpu_seconds: (field(14)? as f64 + field(15)? as f64) / ticks,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)?.saturating_mul(page_size()),
        start_time_seconds: boot_time as f64 + field(22)? as f64 / ticks,
        ..Process::default()
    })
}

/// Returns the boot time in seconds since the epoch. `/proc/stat` contains it too, but the kernel adds up all interrupts of all
/// CPUs to generate that file.
fn boot_time() -> u64 {
    let now = |clock| {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    };
    now(ClockId::Realtime).saturating_sub(now(ClockId::Boottime)).as_secs()
}

/// Returns the maximum number of files that this process can have open.
pub fn max_fds() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the limit up to which this process can raise its own limit on a resource.
pub fn hard_limit(resource: Resource) -> u64 {
    getrlimit(resource).maximum.unwrap_or(u64::MAX)
}

/// Raises the limit on open files to the hard limit. Each connection and each map of series needs a descriptor.
pub fn raise_file_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If that fails, the limit stays unchanged.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::{collection::vec, prelude::*};

    use super::{boot_time, from_stat, page_size, read};

    #[test]
    fn parses_stat() {
        let stat = "42 (a) b) S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 3 0 1000 4096000 250 0 0";
        let process = from_stat(stat, 100).unwrap();
        assert_eq!((process.cpu_seconds, process.start_time_seconds), (3.0, 110.0));
        assert_eq!((process.virtual_bytes, process.resident_bytes), (4_096_000, 250 * page_size()));
        let stat = std::fs::read_to_string("/proc/stat").unwrap();
        let kernels = stat.lines().find_map(|line| line.strip_prefix("btime ")).unwrap();
        assert!(boot_time().abs_diff(kernels.parse().unwrap()) <= 1);
    }

    #[test]
    fn reads_this_process() {
        assert!(read(Path::new("/nothing")).is_none());
        let process = read(Path::new("/proc")).unwrap();
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        assert_eq!(process.max_fds.to_string(), files.split_whitespace().next().unwrap());
        assert!(process.resident_bytes > 100_000 && process.open_fds > 2 && process.start_time_seconds > 1e9);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn parses_any_stat_without_panic(name in "\\PC{0,15}", fields in vec("[0-9]{0,20}|-1|R|\\PC{0,3}", 0..60)) {
            let _ = from_stat(&format!("1 ({name}) {}", fields.join(" ")), 0);
        }
    }
}
