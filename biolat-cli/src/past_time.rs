//! A point in time as given on the command line.

use std::time::SystemTime;

use biolat_system::wall_time;

/// Kept as text: `-2h` and `03:00` depend on the current time, which for a file is the time when it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastTime(String);

impl PastTime {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        wall_time::parse(text, SystemTime::now()).map(|_| Self(text.to_owned()))
    }

    /// The point in time, given the current time.
    pub(super) fn at(&self, now: SystemTime) -> Result<SystemTime, String> {
        wall_time::parse(&self.0, now)
    }
}
