//! Books and figures of the same moment.

use super::{books::Stat, daemon::Daemon, figures::Figures};

/// A device's books and the daemon's figures, with no completion between the two readings.
pub(crate) fn settled(daemon: &Daemon, device: &str) -> (Stat, Figures) {
    for _ in 0..40 {
        let before = Stat::of(device);
        let figures = daemon.fresh();
        if Stat::of(device) == before {
            return (before, figures);
        }
    }
    panic!("{device} does not come to rest");
}
