//! Tests of the store as a whole: hosts with known I/Os, and clocks that the test sets.

mod churn;
mod clocks;
mod cost;
mod day;
mod drives;
pub(super) mod host;
mod limits;
mod replay;
mod series;

use std::time::Duration;

use super::{HistoryLimits, Store};

const DAY: Duration = Duration::from_secs(26 * 3600);

fn store() -> Store {
    store_of(16 << 20)
}

fn store_of(bytes: usize) -> Store {
    store_with(HistoryLimits { age: DAY, bytes })
}

/// A store as old as the host's counters.
fn store_with(limits: HistoryLimits) -> Store {
    Store::new(limits, host::UPTIME)
}
