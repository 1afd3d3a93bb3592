//! Reads kernel memory through addresses of which the verifier knows no type.

use core::{
    ffi::c_void,
    mem::{MaybeUninit, size_of},
};

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;

/// A member of a kernel object; 0 if it cannot be read.
#[inline(always)]
pub(crate) fn read_u64(object: u64, offset: u32) -> u64 {
    read(object + u64::from(offset))
}

#[inline(always)]
pub(crate) fn read_u32(object: u64, offset: u32) -> u32 {
    read(object + u64::from(offset))
}

/// Integers at an address; zeros if it cannot be read. There is no branch: the helper itself writes zeros on a failure.
#[inline(always)]
pub(crate) fn read<T: Copy>(address: u64) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper always writes the whole value, and any bits are valid for the integers that are read.
    unsafe {
        bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, address as *const c_void);
        value.assume_init()
    }
}
