//! Writes an image that contains only busybox, for pods that do I/O and for the process that holds a pod's namespaces.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use serde_json::json;
use tar::{Builder, Header};

use crate::{hash::hash, process::find, static_build::Architecture};

pub(super) const IMAGE: &str = "docker.io/local/busybox:1";

/// Writes the image as a Docker archive.
pub(super) fn write(file: &Path) -> Result<()> {
    let busybox = fs::read(find("busybox").context("no busybox: apt-get install busybox-static")?)?;
    let layer = archive(&[("bin/busybox", &busybox), ("bin/sh", &busybox)])?;
    let config = serde_json::to_vec(&json!({
        "architecture": Architecture::of_host()?.name, "os": "linux",
        "config": { "Entrypoint": ["/bin/busybox", "sleep", "inf"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", hash(&layer))] },
    }))?;
    let manifest = json!([{ "Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"] }]);
    let manifest = serde_json::to_vec(&manifest)?;
    let image = archive(&[("config.json", &config), ("layer.tar", &layer), ("manifest.json", &manifest)])?;
    fs::write(file, image).with_context(|| format!("cannot write {}", file.display()))
}

fn archive(files: &[(&str, &[u8])]) -> Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        archive.append_data(&mut header, path, *content)?;
    }
    Ok(archive.into_inner()?)
}
