//! Keeps every CPU from idling, with threads in the SCHED_IDLE class. When a completion interrupt wakes an idle CPU, the kernel
//! sometimes does not run the BPF program; this avoids such missed completions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::load::pin_to_cpu;

/// Keeps the CPUs awake until dropped.
pub(crate) struct Awake {
    stop: Arc<AtomicBool>,
    spinners: Vec<JoinHandle<()>>,
}

impl Awake {
    pub(crate) fn all_cpus() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cpus = thread::available_parallelism().unwrap().get();
        let spinners = (0..cpus).map(|cpu| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                pin_to_cpu(cpu);
                become_idle_class();
                while !stop.load(Ordering::Relaxed) {
                    (0..100).for_each(|_| std::hint::spin_loop());
                    // Yields to other threads of this class, such as parallel builds; they keep the CPU awake as well.
                    thread::yield_now();
                }
            })
        });
        let spinners = spinners.collect();
        thread::sleep(Duration::from_millis(50));
        Self { stop, spinners }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for spinner in self.spinners.drain(..) {
            let _ = spinner.join();
        }
    }
}

fn become_idle_class() {
    // SAFETY: passes a plain struct, and affects only the calling thread.
    unsafe {
        let parameters = libc::sched_param { sched_priority: 0 };
        assert_eq!(libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters), 0);
    }
}
