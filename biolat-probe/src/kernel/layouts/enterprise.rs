//! Tests kernels of RHEL, which have an old release number and newer members. We have no BTF of them, so the tests change a mainline
//! kernel's where RHEL's sources differ; the offsets are mainline's.

use super::{UnsupportedKernel, excerpt, written};
use crate::{abilities::Ability, kernel::Kernel};

/// 4.18.0-553 of RHEL 8.10: like Linux 5.10 in most of what biolat reads.
fn rhel_8() -> String {
    renamed(
        excerpt("5.10"),
        &[
            ("alloc_time_ns", "reserved"),
            ("STAT_FLUSH", "NR_STAT_GROUPS"),
            ("ioc_gq", "reserved"),
            ("io_kiocb", "reserved"),
            ("memory", "memcg"),
        ],
    )
}

/// 5.14.0 of RHEL 9: block layer and BPF of a later release, here with the errno of an earlier one.
fn rhel_9() -> String {
    renamed(excerpt("6.12"), &[("blk_status_t", "int")])
}

fn renamed(excerpt: String, names: &[(&str, &str)]) -> String {
    names.iter().fold(excerpt, |excerpt, (from, to)| {
        assert!(excerpt.contains(&format!("'{from}'")), "{from}");
        excerpt.replace(&format!("'{from}'"), &format!("'{to}'"))
    })
}

fn kernel(excerpt: &str) -> Result<Kernel, UnsupportedKernel> {
    Kernel::from_btf(&written(excerpt).finish())
}

#[test]
fn resolves_rhel_8() {
    let mainline = kernel(&excerpt("5.10")).unwrap();
    let found = kernel(&rhel_8()).unwrap();
    let mut expected = mainline.layout;
    (expected.alloc_time_ns, expected.has_alloc_time) = (0, 0);
    assert_eq!(found.layout, expected);
    assert_eq!((expected.disk_on_queue, expected.id_is_sequence, expected.part0_is_pointer), (0, 0, 0));
    assert_eq!((expected.status_is_errno, expected.requeue_request, found.requeue.is_some()), (1, 0, true));
    assert!(found.can_walk && found.has_workloads && found.volumes.is_some());
    let changed = |ability| (mainline.has(ability), found.has(ability));
    assert_eq!(changed(Ability::FlushStatistics), (true, false));
    assert_eq!(changed(Ability::CgroupChargedMaps), (false, true));
    assert_eq!(changed(Ability::IoUring), (true, false));
    assert_eq!(changed(Ability::PassthroughStatistics), (true, true));
    assert_eq!(changed(Ability::RecursionGuard), (false, false));
}

#[test]
fn resolves_rhel_9() {
    let mainline = kernel(&excerpt("6.12")).unwrap();
    let found = kernel(&rhel_9()).unwrap();
    let mut expected = mainline.layout;
    expected.status_is_errno = 1;
    assert_eq!(found.layout, expected);
    assert_eq!(found.abilities, mainline.abilities.without(Ability::CompletionStatuses));
    assert!(found.has(Ability::RecursionGuard) && found.has(Ability::DiskSequences));
}

/// Neither RHEL 8.3 nor mainline 5.7, which has these tracepoints, has a ring buffer.
#[test]
fn rejects_kernel_without_ring_buffers() {
    let old = renamed(rhel_8(), &[("BPF_MAP_TYPE_RINGBUF", "reserved")]);
    let error = kernel(&old).unwrap_err();
    assert_eq!(error, UnsupportedKernel::Lacks(Ability::RingBuffers));
    let expected = "the kernel lacks ring buffers (`BPF_MAP_TYPE_RINGBUF`): biolat requires Linux 5.8 or later, or a kernel of RHEL 8.4";
    assert!(error.to_string().starts_with(expected), "{error}");
}
