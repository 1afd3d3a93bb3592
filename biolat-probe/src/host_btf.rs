//! Finds the running kernel's BTF.

use std::fs;

use anyhow::{Result, anyhow};
use biolat_system::host::Host;

/// Reads the running kernel's BTF.
pub fn kernel_btf(host: &Host) -> Result<Vec<u8>> {
    let path = host.btf();
    fs::read(&path).map_err(|error| {
        anyhow!(
            "cannot read the kernel's BTF {}: {error}: biolat requires a kernel built with CONFIG_DEBUG_INFO_BTF, \
             and --sysfs set to where sysfs is mounted",
            path.display()
        )
    })
}
