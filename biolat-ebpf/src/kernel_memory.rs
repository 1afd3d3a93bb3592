//! Reads kernel memory at addresses whose type the verifier does not know.

use core::{
    ffi::c_void,
    mem::{MaybeUninit, size_of},
};

use aya_ebpf::helpers::{bpf_get_current_task, generated::bpf_probe_read_kernel};
use biolat_common::inflight::MAX_DESCRIPTOR;

use crate::constants::layout_const;

/// A member of a kernel object; 0 if it cannot be read.
#[inline(always)]
pub(crate) fn read_u64(object: u64, offset: u32) -> u64 {
    read(object + u64::from(offset))
}

#[inline(always)]
pub(crate) fn read_u32(object: u64, offset: u32) -> u32 {
    read(object + u64::from(offset))
}

/// Reads integers at an address; zeros if it cannot be read. This needs no branch: the helper itself writes zeros if it fails.
#[inline(always)]
pub(crate) fn read<T: Copy>(address: u64) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper always writes the whole value, and any bit pattern is valid for the integers read here.
    unsafe {
        bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, address as *const c_void);
        value.assume_init()
    }
}

/// The open file behind this file descriptor of the daemon.
#[inline(always)]
pub(crate) fn open_file(descriptor: u64) -> Option<u64> {
    if descriptor >= MAX_DESCRIPTOR {
        return None;
    }
    // SAFETY: the helper has no argument and no precondition.
    let task = unsafe { bpf_get_current_task() };
    let files = present(read_u64(task, layout_const!(task_files)))?;
    let table = present(read_u64(files, layout_const!(files_fdt)))?;
    let files = present(read_u64(table, layout_const!(fdt_fd)))?;
    present(read(files + descriptor * size_of::<u64>() as u64))
}

#[inline(always)]
pub(crate) fn present(address: u64) -> Option<u64> {
    (address != 0).then_some(address)
}
