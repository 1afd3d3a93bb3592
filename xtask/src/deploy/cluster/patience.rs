//! Waiting for a cluster to do what it was told.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

/// The time within which a pod starts, ends or is replaced.
const PATIENCE: Duration = Duration::from_secs(90);

/// Tries until there is no error, for a minute and a half. Returns the last error then.
pub(super) fn eventually<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(_) if began.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(300)),
            outcome => return outcome,
        }
    }
}
