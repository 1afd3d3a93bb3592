//! A number that any CPU can raise and none ever lowers, even if a run is preempted while raising it. Reading it costs one load.

use core::cell::UnsafeCell;

use crate::atomic;

pub(crate) struct Maximum(UnsafeCell<u64>);

// SAFETY: read in one load, and written only by atomic instructions.
unsafe impl Sync for Maximum {}

impl Maximum {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        // SAFETY: see `Sync`.
        unsafe { self.0.get().read_volatile() }
    }

    /// Raises the number to at least this value. The result is exactly this value, unless another CPU raises it at the same
    /// moment: then the difference is added, which cannot fail, and the result may exceed the larger value by about the
    /// difference between the two.
    ///
    /// Before Linux 6.1, the daemon removes the compare-and-exchange (`without_compare_exchange` in
    /// `biolat-probe/src/object.rs`): the instruction has existed since 5.12, but the same test decides whether the understudy is
    /// loaded. Then the result may exceed the value by more, so more requests become rare cases.
    #[inline(always)]
    pub(crate) fn raise(&self, to: u64) {
        let seen = self.get();
        if seen >= to {
            return;
        }
        self.compare_exchange(seen, to);
        let seen = self.get();
        if seen < to {
            // SAFETY: an aligned number that lives as long as `self`, and is written only by atomic instructions.
            unsafe { atomic::add(self.0.get(), to - seen) };
        }
    }

    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    fn compare_exchange(&self, seen: u64, new: u64) {
        // SAFETY: an aligned number that lives as long as the program.
        unsafe {
            core::arch::asm!(
                "r0 = cmpxchg_64({number} + 0, r0, {new})",
                number = in(reg) self.0.get(),
                new = in(reg) new,
                inout("r0") seen => _,
                options(nostack)
            );
        }
    }

    #[cfg(not(target_arch = "bpf"))]
    fn compare_exchange(&self, seen: u64, new: u64) {
        use core::sync::atomic::Ordering::Relaxed;
        // SAFETY: an aligned number that lives as long as `self`, and is written only by atomic instructions.
        let number = unsafe { core::sync::atomic::AtomicU64::from_ptr(self.0.get()) };
        let _ = number.compare_exchange(seen, new, Relaxed, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::Maximum;

    /// Each thread raises it to distinct values and may be preempted anywhere.
    #[test]
    fn never_decreases() {
        const THREADS: u64 = 8;
        const VALUES: u64 = 200_000;
        let maximum = Maximum::new();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let maximum = &maximum;
                scope.spawn(move || {
                    let mut last = 0;
                    for value in (1..VALUES).map(|number| number * THREADS + thread) {
                        maximum.raise(value);
                        let now = maximum.get();
                        assert!(now >= value && now >= last, "{now} after {last}, raised to {value}");
                        last = now;
                    }
                });
            }
        });
        assert!(maximum.get() >= VALUES * THREADS - 1);
    }

    #[test]
    fn exact_on_one_cpu() {
        let maximum = Maximum::new();
        for (to, expected) in [(5, 5), (3, 5), (u64::MAX, u64::MAX), (0, u64::MAX)] {
            maximum.raise(to);
            assert_eq!(maximum.get(), expected);
        }
    }
}
