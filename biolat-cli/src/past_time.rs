//! A point in time as it is given on the command line.

use std::time::SystemTime;

use biolat_system::wall_time;

/// `-2h` and `03:00` depend on what is now, which of a file is the time when it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastTime(String);

impl PastTime {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        wall_time::parse(text, SystemTime::now()).map(|_| Self(text.to_owned()))
    }

    /// The point in time, if it is now so late.
    pub(super) fn at(&self, now: SystemTime) -> Result<SystemTime, String> {
        wall_time::parse(&self.0, now)
    }
}
