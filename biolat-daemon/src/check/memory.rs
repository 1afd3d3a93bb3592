//! Checks memory: the size of the probe's maps, the daemon's peak, available memory and limits.

use std::{fs, path::Path};

use biolat_common::mark::{self, Mark};
use biolat_model::text::format::mib;

use super::finding::Finding;

/// Approximate size of the maps other than counters and `MARKS`.
const OTHER_MAPS: u64 = 1 << 20;
/// The daemon's peak memory at startup, as a multiple of the kernel's BTF size.
const BTF_TIMES: u64 = 5;
/// Headroom below a limit.
const SPARE: u64 = 8 << 20;
/// The daemon's memory after startup.
const DAEMON: u64 = 6 << 20;

/// Size of the maps that hold counters.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapSize {
    pub(super) slots: u32,
    /// Number of CPUs with counters.
    pub(super) cpus: u64,
    pub(super) possible_cpus: u64,
    /// Size of one slot on these CPUs.
    pub(super) slot_bytes: u64,
    /// Size of the workload tables.
    pub(super) workload_bytes: u64,
    /// Size of the counters of volumes, for both roles.
    pub(super) volume_bytes: u64,
    /// Whether the understudy can be attached, which doubles the size of the counters.
    pub(super) has_understudy: bool,
}

impl MapSize {
    /// Size of the counters at startup.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.slots) * self.slot_bytes + self.workload_bytes + self.volume_bytes
    }

    /// Size of the counters once the understudy is attached.
    fn max_bytes(&self) -> u64 {
        let doubled = self.bytes() - self.volume_bytes;
        self.bytes() + if self.has_understudy { doubled } else { 0 }
    }

    /// Size of the maps that hold no counters.
    fn other_bytes(&self) -> u64 {
        let marks = u64::from(mark::lines(self.possible_cpus as u32)) * size_of::<Mark>() as u64;
        OTHER_MAPS + if self.has_understudy { marks } else { 0 }
    }

    /// The daemon's peak memory with BTF of this size: at startup, or later with the understudy.
    pub(super) fn peak(&self, btf_bytes: usize) -> u64 {
        let at_start = self.bytes() + (btf_bytes as u64 * BTF_TIMES).max(DAEMON);
        self.other_bytes() + at_start.max(self.max_bytes() + DAEMON)
    }
}

pub(super) fn counters(map_size: MapSize, available: Option<u64>) -> Finding {
    const ID: &str = "memory.counters";
    const SUBJECT: &str = "memory";
    let MapSize { slots, cpus, slot_bytes, workload_bytes, volume_bytes, has_understudy, .. } = map_size;
    let bytes = map_size.max_bytes();
    let counters = map_size.bytes() - workload_bytes - volume_bytes;
    let of = |bytes: u64, what: &str| {
        // Less would print as 0.0 MiB.
        if bytes < 52 << 10 { String::new() } else { format!(", and {} for {what}", mib(bytes)) }
    };
    let (workloads, volumes) = (of(workload_bytes, "workloads"), of(volume_bytes, "volumes"));
    let text = format!(
        "{} of counters: {slots} series x {cpus} CPUs x {} bytes{workloads}{volumes}{}",
        mib(counters),
        slot_bytes / cpus.max(1),
        if has_understudy { "; twice as much once the second program is attached" } else { "" }
    );
    match available {
        Some(available) if bytes > available => {
            Finding::fail(ID, SUBJECT, format!("{text}, but only {} are available", mib(available)))
                .step("exclude devices with --device-exclude")
        }
        Some(available) if bytes > available / 20 => {
            Finding::note(ID, SUBJECT, format!("{text}, of {} available", mib(available)))
                .step("exclude devices with --device-exclude")
        }
        _ => Finding::ok(ID, SUBJECT, text),
    }
}

/// Reads `MemAvailable` from `/proc/meminfo`.
pub(super) fn available(procfs: &Path) -> Option<u64> {
    let text = fs::read_to_string(procfs.join("meminfo")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(value.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Checks the cgroup's memory limit, if there is one.
pub(super) fn limit(limit: Option<u64>, needed: u64) -> Option<Finding> {
    const ID: &str = "memory.limit";
    const SUBJECT: &str = "memory limit";
    let limit = limit?;
    let text = format!("{} for this cgroup; biolat needs {}", mib(limit), mib(needed));
    Some(if limit >= needed {
        Finding::ok(ID, SUBJECT, text)
    } else {
        let enough = (needed + SPARE).next_multiple_of(32 << 20) >> 20;
        Finding::fail(ID, SUBJECT, text)
            .step(format!(
                "in a container: --memory={enough}m; in a pod: resources: {{limits: {{memory: {enough}Mi}}}}"
            ))
            .step(format!("in a systemd unit: MemoryMax={enough}M"))
    })
}

/// Returns the lowest memory limit of this process's cgroup and its ancestors.
pub(super) fn group_limit(sysfs: &Path, procfs: &Path) -> Option<u64> {
    let groups = fs::read_to_string(procfs.join("self/cgroup")).ok()?;
    let root = sysfs.join("fs/cgroup");
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let (base, file) = if controllers.is_empty() {
            (root.clone(), "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (root.join("memory"), "memory.limit_in_bytes")
        } else {
            return Vec::new();
        };
        let group = base.join(path.trim_start_matches('/'));
        let groups = group.ancestors().take_while(|group| group.starts_with(&base));
        groups
            .filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok())
            .collect()
    });
    // cgroup v1 expresses "no limit" as a very large number.
    limits.min().filter(|&limit| limit < 1 << 60)
}

/// Checks the limit on locked memory. Only for kernels that count maps against it.
pub(super) fn locked(limit: u64, may_raise: bool, map_size: MapSize) -> Finding {
    const ID: &str = "memory.locked";
    const SUBJECT: &str = "locked memory";
    let needed = map_size.max_bytes() + map_size.other_bytes();
    if may_raise || limit == libc::RLIM_INFINITY {
        Finding::ok(ID, SUBJECT, "no limit")
    } else if limit >= needed {
        Finding::ok(
            ID,
            SUBJECT,
            format!("{} of {}; this kernel counts BPF maps against this limit", mib(needed), mib(limit)),
        )
    } else {
        let text = format!(
            "limit {}, but the probe's maps need {}, which this kernel counts against it",
            mib(limit),
            mib(needed)
        );
        Finding::fail(ID, SUBJECT, text).step(
            "in the shell that starts biolat: `ulimit -l unlimited`; in a systemd unit: LimitMEMLOCK=infinity",
        )
    }
}

#[cfg(test)]
mod tests {
    use biolat_testing::Tree;

    use super::{
        super::finding::Verdict::{Fail, Note, Ok as Fine},
        BTF_TIMES, MapSize, available, counters, group_limit, limit, locked,
    };

    const WIDE: MapSize = MapSize {
        slots: 48,
        cpus: 384,
        possible_cpus: 384,
        slot_bytes: 384 * 5888,
        workload_bytes: 0,
        volume_bytes: 0,
        has_understudy: false,
    };
    const SMALL: MapSize = MapSize {
        slots: 68,
        cpus: 2,
        possible_cpus: 2,
        slot_bytes: 6400,
        workload_bytes: 0,
        volume_bytes: 0,
        has_understudy: false,
    };
    const MIB: u64 = 1 << 20;

    /// The figures also appear in README and ARCHITECTURE.
    #[test]
    fn compares_counters_with_available_memory() {
        let finding = counters(WIDE, None);
        assert_eq!(finding.text, "103.5 MiB of counters: 48 series x 384 CPUs x 5888 bytes");
        for (available, verdict) in [(3000 * MIB, Fine), (1000 * MIB, Note), (100 * MIB, Fail)] {
            let finding = counters(WIDE, Some(available));
            assert_eq!((finding.id, finding.verdict), ("memory.counters", verdict));
            assert_eq!(finding.fix.is_empty(), verdict == Fine);
        }
    }

    #[test]
    fn understudy_doubles_the_counters() {
        let both = MapSize { has_understudy: true, ..WIDE };
        let finding = counters(both, Some(200 * MIB));
        assert_eq!(finding.verdict, Fail, "103.5 MiB would be enough for one program");
        let expected = "x 5888 bytes; twice as much once the second program is attached, but only 200.0 MiB are available";
        assert!(finding.text.ends_with(expected), "{finding:?}");
        // The counters of volumes do not double: they have both programs' from the beginning.
        let with_volumes = MapSize { volume_bytes: 8 * MIB, ..both };
        let text = counters(with_volumes, None).text;
        assert!(text.contains("x 5888 bytes, and 8.0 MiB for volumes; twice as much"), "{text}");
        assert_eq!(with_volumes.max_bytes() - both.max_bytes(), 8 * MIB);
        // With few series, the peak is at startup. `MARKS` takes 4 KiB per CPU.
        let more_counters = WIDE.bytes() + 6 * MIB - BTF_TIMES * 5_500_000;
        assert_eq!(both.peak(5_500_000) - WIDE.peak(5_500_000), more_counters + 512 * 4096);
        let both = MapSize { has_understudy: true, ..SMALL };
        assert_eq!(both.peak(5_500_000) - SMALL.peak(5_500_000), 2 * 4096);
    }

    #[test]
    fn compares_peak_with_memory_limit() {
        assert!((25 * MIB..30 * MIB).contains(&SMALL.peak(5_500_000)));
        assert_eq!(limit(None, MIB), None);
        assert_eq!(limit(Some(64 * MIB), 40 * MIB).unwrap().verdict, Fine);
        let finding = limit(Some(32 * MIB), 40 * MIB - 1).unwrap();
        assert_eq!((finding.id, finding.verdict), ("memory.limit", Fail));
        assert!(format!("{:?}", finding.fix).contains("--memory=64m"), "{finding:?}");
    }

    #[test]
    fn lowest_limit_of_all_ancestors_counts() {
        let tree = Tree::new("groups", &[]);
        let lowest = |groups: &str| {
            tree.write("self/cgroup", groups.as_bytes());
            group_limit(&tree.0, &tree.0)
        };
        tree.write("fs/cgroup/a/b/memory.max", b"max\n");
        assert_eq!(lowest("0::/a/b\n"), None);
        tree.write("fs/cgroup/a/memory.max", b"8000\n");
        assert_eq!(lowest("0::/a/b\n"), Some(8000));
        tree.write("fs/cgroup/a/b/memory.max", b"9000\n");
        assert_eq!(lowest("0::/a/b\n"), Some(8000));
        assert_eq!(lowest("0::/elsewhere\n"), None);
        tree.write("fs/cgroup/memory/c/memory.limit_in_bytes", b"9223372036854771712\n");
        assert_eq!(lowest("5:cpu:/\n4:memory:/c\n0::/\n"), None);
        tree.write("fs/cgroup/memory/memory.limit_in_bytes", b"5000\n");
        assert_eq!(lowest("5:cpu:/\n4:hugetlb,memory:/c\n0::/\n"), Some(5000));
    }

    #[test]
    fn compares_maps_with_locked_memory() {
        assert_eq!(locked(64 << 10, true, SMALL).verdict, Fine);
        assert_eq!(locked(libc::RLIM_INFINITY, false, SMALL).text, "no limit");
        assert_eq!(locked(2 * MIB, false, SMALL).verdict, Fine);
        let finding = locked(64 << 10, false, SMALL);
        assert_eq!((finding.id, finding.verdict), ("memory.locked", Fail));
        assert!(format!("{:?}", finding.fix).contains("ulimit -l unlimited"), "{finding:?}");
    }

    #[test]
    fn available_memory() {
        let tree = Tree::new("meminfo", &[]);
        assert_eq!(available(&tree.0), None);
        tree.write("meminfo", b"MemTotal:  3000 kB\nMemAvailable:   2000 kB\n");
        assert_eq!(available(&tree.0), Some(2_048_000));
    }
}
