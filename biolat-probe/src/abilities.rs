//! What kernels can do, and how to find out. Nothing in biolat depends on a kernel's release number, because distributions
//! backport: the releases and commits here are documentation.

use std::fmt;

use biolat_system::host::Host;

use crate::{
    btf::{Btf, tracepoint},
    programs::COMPLETE,
};

/// Something that not every kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Ability {
    TracepointTypes,
    RingBuffers,
    BpfCapability,
    FlushStatistics,
    ProgramRuns,
    CgroupChargedMaps,
    ModuleTypes,
    Raid0Ends,
    DiskSequences,
    DispatchedScans,
    CompletionStatuses,
    RecursionGuard,
    ShortVerification,
    PassthroughStatistics,
    PassthroughTimestamps,
    SubmissionTimestamps,
    UnpreemptedRuns,
    Cgroups,
    IoCost,
    IoUring,
    Zones,
}

/// What is known about an [`Ability`].
pub struct Row {
    pub ability: Ability,
    /// Stable name, for programs.
    pub name: &'static str,
    found_by: Evidence,
    pub kernels: Kernels,
    /// Title of the commit that introduced or removed it.
    pub commit: &'static str,
    /// What biolat does on a kernel without it.
    pub without: &'static str,
}

/// The mainline kernels with an ability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    From(&'static str),
    UpTo(&'static str),
    /// Those built with an option.
    With(&'static str),
}

/// How to find out whether a kernel has an ability.
enum Evidence {
    Struct(&'static str),
    Member(&'static str, &'static str),
    Enumerator(&'static str),
    Typedef(&'static str),
    Tracepoint(&'static str),
    /// The type of a tracepoint's argument; the first is number 1.
    Argument(&'static str, usize, &'static str),
    /// The kernel knows the capability with this number.
    Capability(u32),
    Not(&'static Self),
    Any(&'static [Self]),
    All(&'static [Self]),
}

use Evidence::{All, Any, Argument, Capability, Enumerator, Member, Not, Struct, Tracepoint, Typedef};
use Kernels::{From, UpTo, With};

const DOES_NOT_START: &str = "biolat does not start";

/// What biolat cannot do without.
pub const REQUIRED: [Ability; 3] = [Ability::TracepointTypes, Ability::RingBuffers, Ability::BpfCapability];

/// All abilities, in the order of [`Ability`].
pub static ALL: [Row; 21] = [
    Row {
        ability: Ability::TracepointTypes,
        name: "tracepoint_types",
        found_by: Tracepoint(COMPLETE),
        kernels: From("5.5"),
        commit: "bpf: Add typecast to raw_tracepoints to help BTF generation",
        without: DOES_NOT_START,
    },
    Row {
        ability: Ability::RingBuffers,
        name: "ring_buffers",
        found_by: Enumerator("BPF_MAP_TYPE_RINGBUF"),
        kernels: From("5.8"),
        commit: "bpf: Implement BPF ring buffer and verifier support for it",
        without: DOES_NOT_START,
    },
    Row {
        ability: Ability::BpfCapability,
        name: "bpf_capability",
        found_by: Capability(39),
        kernels: From("5.8"),
        commit: "bpf, capability: Introduce CAP_BPF",
        without: DOES_NOT_START,
    },
    Row {
        ability: Ability::FlushStatistics,
        name: "flush_statistics",
        found_by: Enumerator("STAT_FLUSH"),
        kernels: From("5.5"),
        commit: "block: add iostat counters for flush requests",
        without: "flushes are counted but not audited: the disk statistics do not include them",
    },
    Row {
        ability: Ability::ProgramRuns,
        name: "program_runs",
        found_by: Struct("bpf_raw_tp_test_run_info"),
        kernels: From("5.10"),
        commit: "bpf: Enable BPF_PROG_TEST_RUN for raw_tracepoint",
        without: "the daemon cannot have the kernel run a program: ages of I/Os in flight are lower bounds, removed cgroups \
                  are not detected, and another version does not take over",
    },
    Row {
        ability: Ability::CgroupChargedMaps,
        name: "cgroup_charged_maps",
        found_by: Any(&[Member("bpf_map", "memcg"), Not(&Member("bpf_map", "memory"))]),
        kernels: From("5.11"),
        commit: "bpf: Eliminate rlimit-based memory accounting infra for bpf maps",
        without: "BPF maps count against the locked-memory limit: the unit sets `LimitMEMLOCK=infinity`, elsewhere use \
                  `ulimit -l unlimited`",
    },
    Row {
        ability: Ability::ModuleTypes,
        name: "module_types",
        // The second if there are no modules.
        found_by: Any(&[Member("module", "btf_data"), Not(&Struct("load_info"))]),
        kernels: From("5.11"),
        commit: "bpf: Load and verify kernel module BTFs",
        without: "slow I/Os that pass through a module (dm, md, btrfs) have a file only if their data is in the page cache",
    },
    Row {
        ability: Ability::Raid0Ends,
        name: "raid0_ends",
        found_by: Member("bio", "bi_bdev"),
        kernels: From("5.12"),
        commit: "block: store a block_device pointer in struct bio",
        without: "md raid0 arrays are not measured: the kernel does not report the end of their I/Os",
    },
    Row {
        ability: Ability::DiskSequences,
        name: "disk_sequences",
        found_by: Member("gendisk", "diskseq"),
        kernels: From("5.15"),
        commit: "block: add disk sequence number",
        without: "the inode of a disk's directory in sysfs identifies the disk: a loop device that is given a different \
                  backing file becomes a new device only at the next scan, and completions after a disk has been removed \
                  from sysfs are lost as `no_disk`",
    },
    Row {
        ability: Ability::DispatchedScans,
        name: "dispatched_scans",
        // Came with the same release.
        found_by: Member("gendisk", "diskseq"),
        kernels: From("5.15"),
        commit: "block: call blk_register_queue earlier in device_add_disk",
        without: "the queue of a new disk is set up only after its partitions have been scanned: the reads of that scan \
                  have only a total",
    },
    Row {
        ability: Ability::CompletionStatuses,
        name: "completion_statuses",
        found_by: Argument(COMPLETE, 2, "blk_status_t"),
        kernels: From("5.16"),
        commit: "block: don't call blk_status_to_errno in blk_update_request",
        without: "statuses are derived from the errno that the tracepoint has: those without one of their own are `ioerr`",
    },
    Row {
        ability: Ability::RecursionGuard,
        name: "recursion_guard",
        // Came with the same release.
        found_by: Enumerator("BPF_FUNC_user_ringbuf_drain"),
        kernels: From("6.1"),
        commit: "bpf: Prevent bpf program recursion for raw tracepoint probes",
        without: "the kernel runs the probe recursively: a count can be lost if an interrupt occurs while the probe runs, \
                  and there is no understudy",
    },
    Row {
        ability: Ability::ShortVerification,
        name: "short_verification",
        // Came with the same release.
        found_by: Enumerator("BPF_FUNC_cgrp_storage_get"),
        kernels: From("6.2"),
        commit: "bpf: aggressively forget precise markings during state checkpointing",
        without: "the verifier processes more instructions",
    },
    Row {
        ability: Ability::PassthroughStatistics,
        name: "passthrough_statistics",
        // Removed one release earlier.
        found_by: Member("request", "rq_disk"),
        kernels: UpTo("5.17"),
        commit: "blk-mq: do not include passthrough requests in I/O accounting",
        without: "passthrough commands are not audited, except on devices with `queue/iostats_passthrough`",
    },
    Row {
        ability: Ability::PassthroughTimestamps,
        name: "passthrough_timestamps",
        // Removed in the same release.
        found_by: Enumerator("BLK_ZONED_HA"),
        kernels: UpTo("6.7"),
        commit: "block: skip start/end time stamping for passthrough IO",
        without: "passthrough commands are lost as `passthrough`, except on devices with `queue/iostats_passthrough` at 1",
    },
    Row {
        ability: Ability::SubmissionTimestamps,
        name: "submission_timestamps",
        found_by: Member("bio", "bi_issue"),
        kernels: UpTo("6.17"),
        commit: "block: initialize bio issue time in blk_mq_submit_bio()",
        without: "only devices with io.latency or io.cost have admission latency",
    },
    Row {
        ability: Ability::UnpreemptedRuns,
        name: "unpreempted_runs",
        found_by: Not(&All(&[
            Typedef("class_srcu_fast_notrace_t"),
            // CONFIG_PREEMPT_RCU.
            Member("task_struct", "rcu_read_lock_nesting"),
        ])),
        kernels: UpTo("6.19"),
        commit: "tracing: Guard __DECLARE_TRACE() use of __DO_TRACE_CALL() with SRCU-fast",
        without: "tasks can be preempted in the probe; the understudy counts the completions for which the kernel then \
                  refuses to run it",
    },
    Row {
        ability: Ability::Cgroups,
        name: "cgroups",
        found_by: Member("bio", "bi_blkg"),
        kernels: With("CONFIG_BLK_CGROUP"),
        commit: "",
        without: "no workloads",
    },
    Row {
        ability: Ability::IoCost,
        name: "io_cost",
        found_by: Struct("ioc_gq"),
        kernels: With("CONFIG_BLK_CGROUP_IOCOST"),
        commit: "",
        without: "io.cost cannot make admission or dispatch times available",
    },
    Row {
        ability: Ability::IoUring,
        name: "io_uring",
        found_by: Struct("io_kiocb"),
        kernels: With("CONFIG_IO_URING"),
        commit: "",
        without: "no slow I/O comes from io_uring",
    },
    Row {
        ability: Ability::Zones,
        name: "zones",
        found_by: Any(&[Member("gendisk", "nr_zones"), Member("request_queue", "nr_zones")]),
        kernels: With("CONFIG_BLK_DEV_ZONED"),
        commit: "",
        without: "no zone ops",
    },
];

impl Ability {
    /// What is known about it.
    #[must_use]
    pub fn row(self) -> &'static Row {
        &ALL[self as usize]
    }
}

/// The abilities of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities(u32);

impl Abilities {
    /// A kernel with these abilities.
    pub fn with(abilities: impl IntoIterator<Item = Ability>) -> Self {
        Self(abilities.into_iter().fold(0, |bits, ability| bits | bit(ability)))
    }

    /// Finds the abilities of the kernel with this BTF. Those that BTF cannot show are assumed.
    #[must_use]
    pub fn of(btf: &Btf<'_>) -> Self {
        Self::with(ALL.iter().filter(|row| row.found_by.is_in(btf)).map(|row| row.ability))
    }

    /// These abilities, except those that this host's procfs shows to be missing.
    #[must_use]
    pub fn on(self, host: &Host) -> Self {
        let Ok(last_capability) = host.last_capability() else { return self };
        let is_missing = |row: &&Row| matches!(row.found_by, Capability(number) if number > last_capability);
        ALL.iter().filter(is_missing).fold(self, |abilities, row| abilities.without(row.ability))
    }

    #[must_use]
    pub const fn has(self, ability: Ability) -> bool {
        self.0 & bit(ability) != 0
    }

    /// These abilities without this one.
    #[must_use]
    pub const fn without(self, ability: Ability) -> Self {
        Self(self.0 & !bit(ability))
    }

    /// Returns the first ability that biolat requires and this kernel lacks.
    #[must_use]
    pub fn missing_requirement(self) -> Option<Ability> {
        REQUIRED.into_iter().find(|&ability| !self.has(ability))
    }
}

const fn bit(ability: Ability) -> u32 {
    1 << ability as u32
}

impl Row {
    /// The name, for people.
    #[must_use]
    pub fn title(&self) -> String {
        self.name.replace('_', " ")
    }

    /// The error for a kernel without this ability, which biolat requires.
    #[must_use]
    pub fn lacking(&self) -> String {
        format!("the kernel lacks {} ({})", self.title(), self.found_by)
    }
}

impl Evidence {
    fn is_in(&self, btf: &Btf<'_>) -> bool {
        match *self {
            Struct(name) => btf.size(name).is_some(),
            Member(structure, member) => btf.member_offset(structure, member).is_some(),
            Enumerator(name) => btf.enumerator(name).is_some(),
            Typedef(name) => btf.typedef_id(name).is_some(),
            Tracepoint(name) => btf.typedef_id(&tracepoint(name)).is_some(),
            // The first parameter of a tracepoint's function is private data.
            Argument(name, index, of) => btf.parameter_type(&tracepoint(name), index) == Some(of),
            Capability(_) => true,
            Not(evidence) => !evidence.is_in(btf),
            Any(all) => all.iter().any(|evidence| evidence.is_in(btf)),
            All(all) => all.iter().all(|evidence| evidence.is_in(btf)),
        }
    }
}

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            From(release) => write!(f, "from {release}"),
            UpTo(release) => write!(f, "up to {release}"),
            With(option) => f.write_str(option),
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, all: &[Self], between| {
            all.iter().enumerate().try_for_each(|(place, evidence)| {
                write!(f, "{}{evidence}", if place == 0 { "" } else { between })
            })
        };
        match self {
            Struct(name) => write!(f, "`struct {name}`"),
            Member(structure, member) => write!(f, "`{structure}.{member}`"),
            Enumerator(name) | Typedef(name) => write!(f, "`{name}`"),
            Tracepoint(name) => write!(f, "`{}`", tracepoint(name)),
            Argument(name, _, of) => write!(f, "an argument `{of}` of `{}`", tracepoint(name)),
            Capability(number) => write!(f, "at least {number} in `/proc/sys/kernel/cap_last_cap`"),
            Not(All(all)) => {
                f.write_str("not both ")?;
                list(f, all, " and ")
            }
            Not(evidence) => write!(f, "no {evidence}"),
            Any(all) => list(f, all, " or "),
            All(all) => list(f, all, " and "),
        }
    }
}

#[cfg(test)]
mod tests {
    use biolat_testing::{
        Tree,
        btf::{Writer, modern, without_tracepoint},
        generated_docs,
    };

    use super::{ALL, Abilities, Ability, REQUIRED};
    use crate::{btf::Btf, kernel::Kernel};

    #[test]
    fn rows_are_in_order() {
        for (place, row) in ALL.iter().enumerate() {
            assert_eq!(row.ability as usize, place, "{}", row.name);
        }
    }

    #[test]
    fn finds_what_is_required() {
        let missing = |bytes: &[u8]| Abilities::of(&Btf::parse(bytes).unwrap()).missing_requirement();
        assert_eq!(missing(&without_tracepoint()), Some(Ability::TracepointTypes));
        assert_eq!(missing(&modern("BPF_MAP_TYPE_RINGBUF")), Some(Ability::RingBuffers));
        assert_eq!(missing(&modern("")), None);
    }

    #[test]
    fn finds_the_capability_in_procfs() {
        let tree = Tree::new("abilities", &[]);
        let host = biolat_system::host::Host { procfs: tree.0.clone(), ..Default::default() };
        let found = Kernel::from_btf(&modern("")).unwrap().abilities;
        assert_eq!(found.on(&host), found, "unknown");
        for (last, has) in [("40\n", true), ("39\n", true), ("37\n", false)] {
            tree.write("sys/kernel/cap_last_cap", last.as_bytes());
            let found = found.on(&host);
            assert_eq!(found.has(Ability::BpfCapability), has);
            assert_eq!(found.missing_requirement().is_none(), has);
        }
    }

    #[test]
    fn maps_count_against_a_limit_unless_the_cgroup_is_charged() {
        for (members, is_charged) in [(&["memory"][..], false), (&["memory", "memcg"], true), (&[], true)] {
            let mut writer = Writer::new();
            let int = writer.int("int");
            let members: Vec<_> = members.iter().map(|&member| (member, int, 0)).collect();
            writer.structure(4, "bpf_map", &members);
            let bytes = writer.finish();
            let abilities = Abilities::of(&Btf::parse(&bytes).unwrap());
            assert_eq!(abilities.has(Ability::CgroupChargedMaps), is_charged, "{members:?}");
        }
    }

    #[test]
    fn abilities_are_documented() {
        let mut table = "| ability | kernels | found by | introduced or removed by | without it |\n\
                         |---|---|---|---|---|\n"
            .to_owned();
        for row in &ALL {
            let super::Row { name, found_by, kernels, commit, without, .. } = row;
            table += &format!("| `{name}` | {kernels} | {found_by} | {commit} | {without} |\n");
        }
        assert!(REQUIRED.iter().all(|ability| ability.row().without == super::DOES_NOT_START));
        generated_docs::check("docs/kernels.md", "abilities", &table);
    }
}
