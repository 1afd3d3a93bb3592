//! What the running kernel can do: the same facts as the daemon's, and a few about modules.

use std::{fs, path::Path, sync::LazyLock};

pub(crate) use biolat_probe::abilities::Ability;
use biolat_probe::{btf::Btf, kernel::Kernel, kernel_btf};
use biolat_system::host::Host;

static KERNEL: LazyLock<Kernel> =
    LazyLock::new(|| Kernel::from_btf(&kernel_btf(&Host::default()).unwrap()).unwrap());

pub(crate) fn kernel() -> &'static Kernel {
    &KERNEL
}

pub(crate) fn has(ability: Ability) -> bool {
    kernel().has(ability)
}

/// Prints that this kernel lacks what the calling test needs, if it does. The test then returns.
pub(crate) fn is_skipped_without(ability: Ability) -> bool {
    if !has(ability) {
        skip(&format!("this kernel has no {}", ability.row().title()));
    }
    !has(ability)
}

/// Whether programs can use io_uring.
pub(crate) fn allows_io_uring() -> bool {
    // Older kernels have no such setting.
    let setting = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    has(Ability::IoUring) && setting.map_or(true, |setting| setting.trim() == "0")
}

/// Whether a struct of a loaded module, which may be built in, has this member.
pub(crate) fn module_has_member(module: &str, structure: &str, member: &str) -> bool {
    let vmlinux = kernel_btf(&Host::default()).unwrap();
    let vmlinux = Btf::parse(&vmlinux).unwrap();
    let module = fs::read(Path::new("/sys/kernel/btf").join(module)).ok();
    let module = module.as_ref().map(|bytes| vmlinux.parse_module(bytes).unwrap());
    module.iter().chain([&vmlinux]).any(|btf| btf.member_offset(structure, member).is_some())
}

/// Raises the locked memory limit of this process and its children, as the systemd unit does, on kernels where BPF maps count
/// against it.
pub(crate) fn unlimit_locked_memory() {
    if has(Ability::CgroupChargedMaps) {
        return;
    }
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is valid.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Prints why this kernel cannot run the calling test, which then returns. `cargo xtask vm` lists such tests as skipped.
pub(crate) fn skip(reason: &str) {
    println!("skipped: {reason}");
}
