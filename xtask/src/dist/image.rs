//! The container image: an OCI image layout with one layer, which holds the binary, as a tar file.
//!
//! <https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md>
//! `manifest.json` is for `docker load` before Docker 25, which does not support OCI layouts. The layer is not compressed, so
//! its digest is that of its content; clients compress it when they push it to a registry.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::{ReleaseInfo, hash};
use crate::static_build::Architecture;

/// User and group: unprivileged, as in distroless images.
const USER: &str = "65532:65532";

const NAME: &str = "biolat";
const PROGRAM: &str = "biolat-daemon";
const DESCRIPTION: &str = "Latency of every block I/O, as Prometheus native histograms";

/// File capabilities of the binary: `CAP_PERFMON` (38) and `CAP_BPF` (39), permitted but not effective, as `struct
/// vfs_cap_data` of revision 2. As they are not effective, the daemon starts without them and reports what is missing.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/capability.h#L74>
const CAPABILITIES: [u8; 20] = {
    let mut data = [0; 20];
    data[3] = 2;
    // The upper 32 bits of the permitted set, little endian.
    data[12] = 1 << (38 - 32) | 1 << (39 - 32);
    data
};

/// Writes the image to a directory and returns its path.
pub(super) fn write(
    binary: &Path,
    architecture: Architecture,
    info: &ReleaseInfo,
    folder: &Path,
) -> Result<PathBuf> {
    let created = info.date("%Y-%m-%dT%H:%M:%SZ")?;
    let layer = layer(&fs::read(binary)?, info.epoch)?;
    let labels = json!({
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.description": DESCRIPTION,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.revision": info.revision,
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.version": info.version,
    });
    let config = serde_json::to_vec(&json!({
        "created": created,
        "architecture": architecture.name,
        "os": "linux",
        "config": {
            "User": USER,
            "ExposedPorts": { "9976/tcp": {} },
            "Entrypoint": [format!("/{PROGRAM}")],
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    }))?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        "annotations": labels,
    }))?;
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["platform"] = json!({ "architecture": architecture.name, "os": "linux" });
    entry["annotations"] = json!({
        "io.containerd.image.name": format!("docker.io/library/{NAME}:{}", info.version),
        "org.opencontainers.image.ref.name": info.version,
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    });
    let docker_manifest = json!([{
        "Config": blob_path(&config),
        "RepoTags": [format!("{NAME}:{}", info.version)],
        "Layers": [blob_path(&layer)],
    }]);

    let mut blobs = [&config, &layer, &manifest].map(|blob| (blob_path(blob), blob.as_slice()));
    blobs.sort();
    let mut archive = TarArchive::new(info.epoch);
    archive.folder("blobs/")?;
    archive.folder("blobs/sha256/")?;
    for (path, blob) in blobs {
        archive.file(&path, 0o644, blob)?;
    }
    archive.file("index.json", 0o644, &serde_json::to_vec(&index)?)?;
    archive.file("manifest.json", 0o644, &serde_json::to_vec(&docker_manifest)?)?;
    archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let path = folder.join(format!("{NAME}-{}-image-{}.tar", info.version, architecture.name));
    fs::write(&path, archive.finish()?).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The layer: the binary with its file capabilities and nothing else. Runtimes create the mount points.
fn layer(binary: &[u8], epoch: u64) -> Result<Vec<u8>> {
    let mut archive = TarArchive::new(epoch);
    archive.0.append_pax_extensions([("SCHILY.xattr.security.capability", &CAPABILITIES[..])])?;
    archive.file(PROGRAM, 0o755, binary)?;
    archive.finish()
}

/// A tar file whose entries belong to root and have the same modification time.
struct TarArchive(Builder<Vec<u8>>, u64);

impl TarArchive {
    fn new(epoch: u64) -> Self {
        Self(Builder::new(Vec::new()), epoch)
    }

    fn folder(&mut self, name: &str) -> Result<()> {
        self.entry(EntryType::Directory, name, 0o755, &[])
    }

    fn file(&mut self, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.entry(EntryType::Regular, name, mode, bytes)
    }

    fn entry(&mut self, kind: EntryType, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(self.1);
        header.set_size(bytes.len() as u64);
        Ok(self.0.append_data(&mut header, name, bytes)?)
    }

    fn finish(self) -> Result<Vec<u8>> {
        Ok(self.0.into_inner()?)
    }
}

fn descriptor(kind: &str, blob: &[u8]) -> Value {
    json!({ "mediaType": kind, "digest": digest(blob), "size": blob.len() })
}

fn digest(blob: &[u8]) -> String {
    format!("sha256:{}", hash(blob))
}

/// The path of a blob in the layout.
fn blob_path(blob: &[u8]) -> String {
    format!("blobs/sha256/{}", hash(blob))
}
