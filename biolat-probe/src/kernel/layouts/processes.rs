//! Tests the layout that `biolat processes` needs, on the same kernels. The figures are from `pahole -F btf -C STRUCT FILE`.

use biolat_common::processes::ProcessConstants;

use super::{KERNELS, btf};
use crate::kernel::processes::ProcessTracing;

// One column per kernel.
#[rustfmt::skip]
const RESOLVED: [(&str, [u32; KERNELS.len()]); 7] = [
    //                        5.10   5.11   5.13   5.16   5.19    6.1    6.7    6.8   6.11   6.12   6.18    7.1    7.3
    ("request_hctx",        [   16,    16,    16,    16,    16,    16,    16,    16,    16,    16,    16,    16,    16]),
    ("request_tag",         [   32,    32,    32,    32,    32,    32,    32,    32,    32,    32,    32,    32,    32]),
    ("request_internal_tag", [  36,    36,    36,    36,    36,    36,    36,    36,    36,    36,    36,    36,    36]),
    ("hctx_number",         [  404,   404,   412,   356,   356,   356,   348,   340,   340,   340,   340,   340,   340]),
    ("task_leader",         [ 2296,  2376,  1368,  2560,  2560,  2480,  2456,  2456,  2488,  2496,  2504,  2600,  2936]),
    ("task_comm",           [ 2736,  2776,  1776,  3024,  3024,  2976,  2880,  2880,  2912,  2976,  2928,  3016,  3408]),
    // 5.10 is a late release.
    ("start_request",       [    0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0]),
];

/// The first kernel of the table with `block_io_start`.
const FIRST_WITH_START: &str = "6.7";

#[test]
fn agrees_with_pahole_on_every_kernel() {
    let first_with_start = KERNELS.iter().position(|version| *version == FIRST_WITH_START).unwrap();
    for (column, version) in KERNELS.into_iter().enumerate() {
        let tracing = ProcessTracing::from_btf(&btf(version))
            .unwrap_or_else(|error| panic!("Linux {version}: {error}"));
        let expected = RESOLVED.map(|(name, kernels)| (name, kernels[column]));
        assert_eq!(resolved(tracing.constants), expected, "Linux {version}");
        let starts: &[_] = if column < first_with_start {
            &["block_rq_insert", "block_rq_issue"]
        } else {
            &["block_io_start"]
        };
        assert_eq!(tracing.starts, starts, "Linux {version}");
    }
}

/// Lists the constants in the order of the table. Adding one does not compile until it is added here.
fn resolved(constants: ProcessConstants) -> Vec<(&'static str, u32)> {
    members! {
        ProcessConstants = constants;
        request_hctx, request_tag, request_internal_tag, hctx_number, task_leader, task_comm, start_request; without sends_ios
    }
}
