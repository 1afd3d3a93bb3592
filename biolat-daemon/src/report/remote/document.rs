//! The documents of the API that a report reads, and what makes them harmless if they are another host's.

use std::time::Duration;

use anyhow::Result;
use serde::de::DeserializeOwned;

use super::{sanitize_slow_log, sanitize_snapshot};
use crate::{
    api::{ApiHistory, ApiSlowLog, ApiSnapshot},
    device::selection::Selection,
    report::target::PATH,
    snapshot::Snapshot,
};

/// Where a daemon has it.
pub(in crate::report) trait Endpoint: Send + Sync + 'static {
    const PATH: &'static str;
    /// What it is, for messages.
    const NAME: &'static str;
    /// What a daemon without it does not support.
    const COMMAND: &'static str;
}

/// One that is read as a whole.
pub(in crate::report) trait Document: Endpoint + DeserializeOwned {
    /// Of a collector that makes a snapshot each interval and records I/Os from this latency on.
    fn of(snapshot: &Snapshot, host: &str, interval: Duration, slow: Option<Duration>) -> Self;

    /// The daemon's version.
    fn biolat(&self) -> &str;
    /// The host's name.
    fn host(&self) -> &str;
    /// Seconds between collections.
    fn interval(&self) -> f64;

    /// With harmless text, or why it cannot be a biolat's.
    fn sanitized(self) -> Result<Self>;

    /// Makes its text harmless.
    fn clean_text(&mut self);

    /// Leaves out other devices.
    fn select(&mut self, selection: &Selection);
}

impl Endpoint for ApiSnapshot {
    const PATH: &'static str = PATH;
    const NAME: &'static str = "a snapshot";
    const COMMAND: &'static str = "report --from";
}

impl Endpoint for ApiSlowLog {
    const PATH: &'static str = "/api/v1/slow";
    const NAME: &'static str = "a log of slow I/Os";
    const COMMAND: &'static str = "report --slow";
}

impl Endpoint for ApiHistory {
    const PATH: &'static str = "/api/v1/history";
    const NAME: &'static str = "a history";
    const COMMAND: &'static str = "report --at";
}

impl Document for ApiSnapshot {
    fn of(snapshot: &Snapshot, host: &str, interval: Duration, _: Option<Duration>) -> Self {
        Self::of(snapshot, host, interval)
    }

    fn biolat(&self) -> &str {
        &self.biolat
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn interval(&self) -> f64 {
        self.interval
    }

    fn sanitized(self) -> Result<Self> {
        sanitize_snapshot::sanitized(self)
    }

    fn clean_text(&mut self) {
        sanitize_snapshot::clean_text(self);
    }

    fn select(&mut self, selection: &Selection) {
        self.devices.retain(|device| selection.shows(&device.name));
    }
}

impl Document for ApiSlowLog {
    fn of(snapshot: &Snapshot, host: &str, interval: Duration, slow: Option<Duration>) -> Self {
        Self::of(snapshot, host, interval, slow)
    }

    fn biolat(&self) -> &str {
        &self.biolat
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn interval(&self) -> f64 {
        self.interval
    }

    fn sanitized(self) -> Result<Self> {
        sanitize_slow_log::sanitized(self)
    }

    fn clean_text(&mut self) {
        sanitize_slow_log::clean_text(self);
    }

    /// Its numbers are those of all devices: who follows them selects.
    fn select(&mut self, _: &Selection) {}
}
