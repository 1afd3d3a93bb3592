//! Folders of our own.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

/// Makes a folder with nothing in it, whatever was there before.
pub(crate) fn make_empty(folder: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}
