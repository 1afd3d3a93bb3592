//! I/Os in flight. They are in no histogram, so a hung device would look idle.

use biolat_common::series::Phase;
use biolat_model::{saturating::sum, snapshot::Inflight, text::format};

use super::words::counted;
use crate::window::DeviceWindow;

/// An age in seconds that I/Os rarely reach on a working device.
const MIN_AGE: f64 = 1.0;

/// The finding that a device or one of its I/Os is hung, in a window of this many seconds.
pub(crate) fn overdue(device: &DeviceWindow, seconds: f64) -> Option<String> {
    let inflight = device.inflight;
    if inflight.oldest.as_secs_f64() < MIN_AGE {
        return None;
    }
    let all = device.all();
    let longest = all.of(Phase::Total).percentile(0.999).map_or(0.0, |bounds| bounds.upper);
    if inflight.oldest.as_secs_f64() <= longest {
        return None;
    }
    let completed = all.ios().saturating_add(sum(device.unseen.values()));
    let (age, window) = (format::duration(inflight.oldest.as_secs_f64()), format::duration(seconds));
    let since = match (inflight.is_exact, completed) {
        (false, _) => format!("none completed for at least {age}"),
        (true, 0) if device.has(Phase::Total) => format!("none completed in {window}, the oldest for {age}"),
        (true, 0) => format!("the oldest for {age}"),
        (true, _) if inflight.oldest.as_secs_f64() >= seconds => {
            format!("the oldest for {age}, while others complete")
        }
        (true, _) => format!("the oldest for {age}; others completed in this {window} window"),
    };
    let ios = match inflight.dispatched() {
        0 => "I/O in the scheduler".to_owned(),
        dispatched => format!("{} in flight", counted(dispatched, "I/O")),
    };
    Some(format!("{}: {ios}, {since}.", device.name))
}

/// `3 reads and 9 writes in flight, the oldest for 16 s`. `None` if there are none.
pub(crate) fn inflight(inflight: Inflight) -> Option<String> {
    let ops = [(inflight.reads, "read"), (inflight.writes, "write")];
    let ops: Vec<_> = ops.iter().filter(|(ios, _)| *ios > 0).map(|(ios, op)| counted(*ios, op)).collect();
    let age = format::duration(inflight.oldest.as_secs_f64());
    let least = if inflight.is_exact { "" } else { "at least " };
    match (ops.is_empty(), inflight.oldest.as_secs_f64() > 0.0) {
        (true, false) => None,
        (true, true) => Some(format!("I/O in the scheduler, the oldest for {least}{age}")),
        (false, false) => Some(format!("{} in flight", ops.join(" and "))),
        (false, true) => Some(format!("{} in flight, the oldest for {least}{age}", ops.join(" and "))),
    }
}
