//! Resources of this machine and of processes, as reported by the kernel.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{daemon::Daemon, figures::Figures};

pub(crate) const MIB: f64 = 1048576.0;

/// Returns the number of CPUs for which per-CPU maps have values.
pub(crate) fn possible_cpus() -> u64 {
    let range = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let last = range.trim().rsplit(['-', ',']).next().unwrap();
    last.parse::<u64>().unwrap() + 1
}

/// Returns the number of CPUs that a daemon started now would give counters. The nodes of test machines have equally many CPUs.
pub(crate) fn online_cpus() -> u64 {
    biolat_system::cpus::online_cpus(Path::new("/sys")).unwrap().len() as u64
}

/// Returns the memory of a process' arrays of counters, as accounted by the kernel.
pub(crate) fn counter_memory(pid: u32) -> u64 {
    const MAPPABLE: u64 = 1 << 10;
    memory_of_maps(pid, |flags| flags & MAPPABLE != 0)
}

/// Returns the memory of a process' BPF maps, as accounted by the kernel.
pub(crate) fn map_memory(pid: u32) -> u64 {
    memory_of_maps(pid, |_| true)
}

fn memory_of_maps(pid: u32, has_flags: impl Fn(u64) -> bool) -> u64 {
    let field = |text: &str, name: &str| -> Option<u64> {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?.trim();
        value.strip_prefix("0x").map_or_else(|| value.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
    };
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let maps = texts.filter(|text| field(text, "map_flags:").is_some_and(&has_flags));
    // A process may have several descriptors of a map.
    let bytes: BTreeMap<_, _> =
        maps.map(|text| (field(&text, "map_id:"), field(&text, "memlock:").unwrap())).collect();
    bytes.into_values().sum()
}

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
    let spare = ((1 << 20) / (online_cpus() * SERIES_BYTES)).clamp(4, 64);
    4 * (series + spare).div_ceil(4)
}

/// Returns the size in bytes of the counters of this many slots.
pub(crate) fn slot_bytes(slots: u64) -> u64 {
    slots * online_cpus() * SERIES_BYTES
}
