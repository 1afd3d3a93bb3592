//! Finds `cargo-deb`, which builds the Debian package.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail};

use crate::process::{self, output, root};

const TOOL: &str = "cargo-deb";
const TOOL_VERSION: &str = "3.8.0";

/// Returns why the package cannot be built here, or `None` if it can.
pub(crate) fn missing() -> Option<String> {
    find().err().map(|error| format!("{error:#}"))
}

/// Returns the path of the tool, in the required version.
pub(crate) fn find() -> Result<PathBuf> {
    let own = Some(root().join("target/tools/bin").join(TOOL)).filter(|path| path.is_file());
    let tool = own.or_else(|| process::find(TOOL)).with_context(|| {
        format!("no {TOOL}: cargo install {TOOL} --version {TOOL_VERSION} --locked --root target/tools")
    })?;
    let version = output(Command::new(&tool).arg("--version"))?;
    // Another version may produce different bytes.
    if !version.contains(TOOL_VERSION) {
        bail!("{} is {}, but the package needs {TOOL_VERSION}", tool.display(), version.trim());
    }
    Ok(tool)
}
