//! Resources of this machine and of processes, as reported by the kernel.

use std::{fs, path::PathBuf, time::Duration};

use super::{daemon::Daemon, figures::Figures};

pub(crate) const MIB: f64 = 1048576.0;

/// Returns the number of CPUs for which per-CPU maps have values.
pub(crate) fn possible_cpus() -> u64 {
    let range = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let last = range.trim().rsplit(['-', ',']).next().unwrap();
    last.parse::<u64>().unwrap() + 1
}

/// Returns the memory of a process' BPF maps of one type, as accounted by the kernel.
pub(crate) fn map_memory(pid: u32, map_type: u32) -> u64 {
    let field = |text: &str, name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let maps = texts.filter(|text| field(text, "map_type:") == Some(u64::from(map_type)));
    maps.map(|text| field(&text, "memlock:").unwrap()).sum()
}

pub(crate) const PER_CPU_ARRAY: u32 = 6;

/// Counts the open files of a process, including maps but not sockets.
fn open_files(pid: u32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| !target.to_string_lossy().starts_with("socket:")).count()
}

/// Returns a number from the status file of a process.
pub(crate) fn status(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// CPU time of a thread.
pub(crate) struct ThreadCpuTime {
    schedstat: PathBuf,
}

impl ThreadCpuTime {
    /// Finds the only thread of a process with this name.
    pub(crate) fn of(pid: u32, name: &str) -> Self {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|entry| entry.unwrap().path());
        let has_name = |path: &PathBuf| {
            fs::read_to_string(path.join("comm")).is_ok_and(|found| found.trim_end() == name)
        };
        let found: Vec<_> = threads.filter(has_name).collect();
        assert_eq!(found.len(), 1, "threads named {name}");
        Self { schedstat: found[0].join("schedstat") }
    }

    pub(crate) fn read(&self) -> Duration {
        let numbers = fs::read_to_string(&self.schedstat).unwrap();
        Duration::from_nanos(numbers.split_whitespace().next().unwrap().parse().unwrap())
    }
}

/// Resource use of a daemon.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) slots: f64,
    files: usize,
    resident: f64,
}

impl Resources {
    pub(crate) fn of(daemon: &Daemon, figures: &Figures) -> Self {
        Self {
            slots: figures.value("biolat_series_slots", &[]),
            files: open_files(daemon.pid()),
            resident: figures.value("process_resident_memory_bytes", &[]),
        }
    }

    /// Asserts that the daemon uses no more than in the `first` measurement, apart from quarantined slots and pages kept by the
    /// allocator or the page cache: identical runs used 5.8 to 9.8 MiB. Leaking one series for each of 5,000 devices would take
    /// 35 MiB.
    pub(crate) fn assert_no_growth_since(&self, first: &Self) {
        println!("{first:?}, then {self:?}");
        let chunks = |resources: &Self| resources.slots / 4.0;
        assert!(
            self.files as f64 - chunks(self) <= first.files as f64 - chunks(first),
            "{first:?}, then {self:?}"
        );
        assert!(self.resident <= first.resident * 1.1 + 6.0 * MIB, "{first:?}, then {self:?}");
    }
}

const SERIES_BYTES: u64 = 5888;

/// Returns the number of slots that this many series need according to the formula in ARCHITECTURE.md, as long as no device
/// appears or disappears.
pub(crate) fn slots(series: u64) -> u64 {
    let spare = ((1 << 20) / (possible_cpus() * SERIES_BYTES)).clamp(4, 64);
    4 * (series + spare).div_ceil(4)
}

/// Returns the size in bytes of per-CPU maps with this many slots.
pub(crate) fn slot_bytes(slots: u64) -> u64 {
    slots * possible_cpus() * SERIES_BYTES
}
