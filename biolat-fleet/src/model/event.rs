//! Defines injected events: the ground truth that a rule's findings are compared with.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// All I/O of a drive is slower by the factor.
    Constant,
    /// I/O of one op above a size is slower by the factor.
    Size,
    /// All I/O becomes gradually slower over the whole event, up to the factor.
    Rising,
    /// I/O is repeatedly slower by the factor, for minutes at a time.
    Stalls,
    /// I/O through one of the paths to the drive is slower by the factor.
    Path,
    /// All drives of a node are slower by the factor.
    Backplane,
    /// Drives of a model that received another firmware are slower by the factor.
    Firmware,
    /// The load of a drive, a node or a service is the factor times the usual load.
    LoadSpike,
    /// Sizes shift by the factor.
    SizeMix,
    /// Some drives of a node read and write large requests for hours.
    Rebuild,
    /// All drives of a node are read sequentially.
    Scrub,
    /// An idle drive gets a few I/Os.
    Wakes,
    /// The daemon of a node restarts, which resets the counters.
    Restart,
}

impl Kind {
    /// Whether it is a fault of a drive.
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

/// Location of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct DriveName {
    pub(crate) cluster: String,
    pub(crate) node: String,
    pub(crate) device: String,
}

/// A fault or an innocent event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) is_fault: bool,
    /// Affected drives.
    pub(crate) drives: Vec<DriveName>,
    /// Affected op, if only one is.
    pub(crate) op: Option<&'static str>,
    /// Names of the affected size bands: all of them, or those above a bound.
    pub(crate) sizes: Vec<&'static str>,
    pub(crate) from: SystemTime,
    pub(crate) to: SystemTime,
    /// Factor by which the latency changes or, for an innocent event, the load or the sizes.
    pub(crate) factor: f64,
    /// Usual rate of I/Os of these ops and sizes on the least busy of the drives.
    pub(crate) usual_ios_per_second: f64,
}
