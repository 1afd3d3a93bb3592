//! Block devices according to sysfs and uevents: names, lifetimes, disk statistics, and the stack on top of each. No other module
//! reads `/sys/block`. The mount points of sysfs and procfs are always parameters.

pub mod diskstats;
mod mount_points;
mod mounts;
pub(crate) mod nvme_events;
pub mod paths;
mod scan;
mod stack;
pub mod sysfs;
mod transport;
pub mod uevent;
mod volumes;

pub(crate) use mount_points::MountPoints;
pub use scan::{IdKind, scan};
pub use volumes::scan_volumes;

use anyhow::{Context as _, Result};
use biolat_model::device::Device;
use biolat_system::host::Host;

/// Does a [`scan()`], and also reads the stack on top of each device.
pub fn scan_with_stacks<'a>(
    host: &Host,
    ids: IdKind,
    known: impl Fn(u64) -> Option<&'a Device>,
) -> Result<Vec<Device>> {
    let mut found = scan(&host.sysfs, ids, known).with_context(|| {
        format!("cannot list the block devices in {}", host.sysfs.join("block").display())
    })?;
    stack::read_stacks(host, &mut found).context("cannot read what is stacked on block devices")?;
    Ok(found)
}
