//! Creates scratch directories.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

/// Creates an empty directory, after removing whatever is there.
pub(crate) fn make_empty(folder: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}
