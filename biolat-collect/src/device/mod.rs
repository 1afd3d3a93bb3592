//! Block devices as sysfs and uevents show them: names, lifetimes, disk statistics, what sits on them. No other module reads
//! `/sys/block`; the mount points of sysfs and procfs are always parameters.

pub mod diskstats;
mod mounts;
pub mod paths;
mod scan;
mod stack;
pub mod sysfs;
mod transport;
pub mod uevent;

pub use scan::{IdKind, scan};
pub use stack::read_stacks;
