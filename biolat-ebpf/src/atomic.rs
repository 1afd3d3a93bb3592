//! Atomic addition. The compiler has no atomic operations for BPF.

/// Adds to a number that any CPU may write.
///
/// # Safety
///
/// The number must be aligned and valid, and written only by atomic instructions.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub(crate) unsafe fn add(number: *mut u64, difference: u64) {
    // SAFETY: the caller vouches for the number.
    unsafe {
        core::arch::asm!(
            "lock *(u64 *)({number} + 0) += {difference}",
            number = in(reg) number,
            difference = in(reg) difference,
            options(nostack)
        );
    }
}

/// # Safety
///
/// As above.
#[cfg(not(target_arch = "bpf"))]
pub(crate) unsafe fn add(number: *mut u64, difference: u64) {
    // SAFETY: the caller vouches for the number.
    let number = unsafe { core::sync::atomic::AtomicU64::from_ptr(number) };
    number.fetch_add(difference, core::sync::atomic::Ordering::Relaxed);
}
