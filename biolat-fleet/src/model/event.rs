//! What was injected: the truth that a rule's findings are compared with.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// All I/O of a drive is slower by the factor.
    Constant,
    /// I/O of one op and above a size is slower by the factor.
    Size,
    /// All I/O becomes slower, over the whole event, up to the factor.
    Rising,
    /// For minutes at a time, again and again, I/O is slower by the factor.
    Stalls,
    /// A share of the I/O is slower by the factor: that through one of the paths to the drive.
    Path,
    /// All drives of a node are slower by the factor.
    Backplane,
    /// Drives of a model that got another firmware are slower by the factor.
    Firmware,
    /// The load of a drive, of a node or of a service is the factor times the usual one.
    LoadSpike,
    /// Sizes shift by the factor.
    SizeMix,
    /// Some drives of a node read and write large requests for hours.
    Rebuild,
    /// All drives of a node are read sequentially.
    Scrub,
    /// An idle drive gets a few I/Os.
    Wakes,
    /// The daemon of a node is restarted: counters begin again.
    Restart,
}

impl Kind {
    /// Whether a drive is sick.
    pub(crate) const fn is_fault(self) -> bool {
        match self {
            Self::Constant
            | Self::Size
            | Self::Rising
            | Self::Stalls
            | Self::Path
            | Self::Backplane
            | Self::Firmware => true,
            Self::LoadSpike | Self::SizeMix | Self::Rebuild | Self::Scrub | Self::Wakes | Self::Restart => {
                false
            }
        }
    }
}

/// Where a drive is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct DriveName {
    pub(crate) cluster: String,
    pub(crate) node: String,
    pub(crate) device: String,
}

/// One fault or one innocent event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) is_fault: bool,
    /// The drives that it affects.
    pub(crate) drives: Vec<DriveName>,
    /// The only op that it affects, if it is one.
    pub(crate) op: Option<&'static str>,
    /// The names of the size bands that it affects: all of them, or those above a bound.
    pub(crate) sizes: Vec<&'static str>,
    pub(crate) from: SystemTime,
    pub(crate) to: SystemTime,
    /// Of the latency or, of an innocent event, of the load or the sizes.
    pub(crate) factor: f64,
    /// How many I/Os per second of these ops and sizes the least busy of the drives does, as a rule.
    pub(crate) usual_ios_per_second: f64,
}
