//! Tests which abilities are found, on the same kernels. The figures are from `grep` on the output of `bpftool`.

use super::{KERNELS, btf};
use crate::{abilities, kernel::Kernel};

// One column per kernel. Those with `io_cost` and `zones` at 0 are built without them.
#[rustfmt::skip]
const FOUND: [(&str, [u32; KERNELS.len()]); abilities::ALL.len()] = [
    //                            5.10  5.11  5.13  5.16  5.19   6.1   6.7   6.8  6.11  6.12  6.18   7.1   7.3
    ("tracepoint_types",        [   1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("ring_buffers",            [   1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("bpf_capability",          [   1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("flush_statistics",        [   1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("program_runs",            [   1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("cgroup_charged_maps",     [   0,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("module_types",            [   0,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("raid0_ends",              [   0,    0,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("disk_sequences",          [   0,    0,    0,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("dispatched_scans",        [   0,    0,    0,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("completion_statuses",     [   0,    0,    0,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("recursion_guard",         [   0,    0,    0,    0,    0,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("short_verification",      [   0,    0,    0,    0,    0,    0,    1,    1,    1,    1,    1,    1,    1]),
    ("passthrough_statistics",  [   1,    1,    1,    1,    0,    0,    0,    0,    0,    0,    0,    0,    0]),
    ("passthrough_timestamps",  [   1,    1,    1,    1,    1,    1,    1,    0,    0,    0,    0,    0,    0]),
    ("submission_timestamps",   [   1,    1,    0,    1,    1,    1,    1,    1,    1,    1,    0,    0,    0]),
    ("unpreempted_runs",        [   1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    0,    0]),
    ("cgroups",                 [   1,    1,    0,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("io_cost",                 [   1,    1,    0,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("io_uring",                [   1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1,    1]),
    ("zones",                   [   1,    1,    0,    1,    1,    1,    0,    0,    0,    1,    0,    0,    1]),
];

#[test]
fn agree_with_grep_on_every_kernel() {
    for (column, version) in KERNELS.into_iter().enumerate() {
        let kernel = Kernel::from_btf(&btf(version)).unwrap();
        let found = abilities::ALL.each_ref().map(|row| (row.name, u32::from(kernel.has(row.ability))));
        assert_eq!(found, FOUND.map(|(name, kernels)| (name, kernels[column])), "Linux {version}");
        assert!(kernel.has(abilities::Ability::Cgroups) == kernel.has_workloads, "Linux {version}");
    }
}
