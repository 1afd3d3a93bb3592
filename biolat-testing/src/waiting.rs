//! Waits for a condition.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Waits until a condition holds. The time limit is long enough for an emulated machine on a busy host.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(120), "waited too long for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
