//! Waits for the cluster to reach an expected state.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

/// Time limit for a pod to start, end or be replaced.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Retries until an attempt succeeds. After [`TIMEOUT`], returns the last error.
pub(super) fn eventually<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(_) if began.elapsed() < TIMEOUT => thread::sleep(Duration::from_millis(300)),
            outcome => return outcome,
        }
    }
}
