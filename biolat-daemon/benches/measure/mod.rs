//! Measures the cost of some work: this thread's CPU time and allocations.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// The system allocator, with per-thread counters.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

fn count(bytes: usize) {
    // A thread may still allocate after its thread-local variables are dropped.
    let _ = ALLOCATIONS.try_with(|cell| {
        let [calls, sum] = cell.get();
        cell.set([calls + 1, sum + bytes as u64]);
    });
}

// SAFETY: forwards everything to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The cost of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Median.
    pub(crate) cpu: Duration,
    pub(crate) allocations: u64,
    pub(crate) allocated_bytes: u64,
}

impl Cost {
    /// Runs the work `times` times, after one warm-up run.
    pub(crate) fn of<T>(times: usize, mut work: impl FnMut() -> T) -> Self {
        drop(work());
        let before = ALLOCATIONS.get();
        let mut took: Vec<_> = (0..times)
            .map(|_| {
                let began = cpu_time();
                let made = work();
                let took = cpu_time() - began;
                drop(made);
                took
            })
            .collect();
        let after = ALLOCATIONS.get();
        took.sort_unstable();
        let each = |index: usize| (after[index] - before[index]) / times as u64;
        Self { cpu: took[times / 2], allocations: each(0), allocated_bytes: each(1) }
    }

    pub(crate) fn ms(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e3
    }

    pub(crate) fn to_json(self) -> Value {
        json!({
            "cpu_ms": self.ms(),
            "allocations": self.allocations,
            "allocated_bytes": self.allocated_bytes,
        })
    }
}

/// User and system CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}
