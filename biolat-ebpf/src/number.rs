//! Turns a pointer into a number.

/// A pointer as a number: its distance from an anchor. To the verifier, only the difference between two pointers is a number.
#[inline(always)]
pub(crate) fn number(pointer: *const u8, anchor: *const u8) -> u64 {
    #[cfg(target_arch = "bpf")]
    {
        let number: u64;
        // SAFETY: subtracts one register from another.
        unsafe {
            core::arch::asm!(
                "{pointer} -= {anchor}",
                pointer = inout(reg) pointer => number,
                anchor = in(reg) anchor,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        number
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        (pointer as u64).wrapping_sub(anchor as u64)
    }
}
