//! What the checks of the image do with a container, whatever runs it.

use anyhow::Result;

/// A running container with the daemon.
pub(super) trait Container {
    fn scrape(&self) -> Result<String>;

    /// Returns the daemon's process ID on the host.
    fn pid(&self) -> Result<u32>;
}
