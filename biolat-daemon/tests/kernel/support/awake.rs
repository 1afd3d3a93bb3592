//! Keeps every CPU from idling, with threads that run only when nothing else wants to. A completion
//! interrupt that wakes an idle CPU now and then finds BPF programs not run at all; with this there is none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::load::stay_on;

/// Until it is dropped.
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
                stay_on(cpu);
                become_idle_class();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
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
    // SAFETY: a plain struct, for the calling thread.
    unsafe {
        let parameters = libc::sched_param { sched_priority: 0 };
        assert_eq!(libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters), 0);
    }
}
