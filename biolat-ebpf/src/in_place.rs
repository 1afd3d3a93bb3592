//! Keeps the compiler from moving computations with a number across a comparison, or from removing the comparison.

/// Returns the same number. The compiler neither moves this nor knows anything about the result.
#[inline(always)]
pub(crate) fn in_place(number: u64) -> u64 {
    #[cfg(target_arch = "bpf")]
    {
        let mut number = number;
        // SAFETY: moves a register to itself. An empty statement would have a line number but no instruction: two records of
        // `.BTF.ext` would have the same offset, and the verifier rejects that.
        unsafe { core::arch::asm!("{0} = {0}", inout(reg) number, options(nomem, nostack, preserves_flags)) };
        return number;
    }
    #[cfg(not(target_arch = "bpf"))]
    number
}
