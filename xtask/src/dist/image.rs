//! The container image: one layer that holds the binary, in OCI's layout, as a tar file.
//!
//! <https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md>
//! The `manifest.json` beside it is for `docker load`, which knows no layout before Docker 25. Nothing is compressed,
//! so that the layer's digest is its content's; a registry's client compresses what it pushes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::{Architecture, Source, hash};

/// As which user and group it runs: nobody's in particular.
const USER: &str = "65532:65532";

const NAME: &str = "biolat";
const PROGRAM: &str = "biolat-daemon";
const DESCRIPTION: &str = "Latency of every block I/O, as Prometheus native histograms";

/// Permitted `CAP_PERFMON` (38) and `CAP_BPF` (39), not effective: `struct vfs_cap_data`, revision 2. Where the container
/// may not have them, the program starts all the same and says so.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/capability.h#L74>
const CAPABILITIES: [u8; 20] = {
    let mut data = [0; 20];
    data[3] = 2;
    // The upper half of the permitted ones, in little endian.
    data[12] = 1 << (38 - 32) | 1 << (39 - 32);
    data
};

/// Writes the image of a binary into a folder; where it is.
pub(super) fn write(
    binary: &Path,
    architecture: Architecture,
    source: &Source,
    folder: &Path,
) -> Result<PathBuf> {
    let created = source.date("%Y-%m-%dT%H:%M:%SZ")?;
    let layer = layer(&fs::read(binary)?, source.epoch)?;
    let labels = json!({
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.description": DESCRIPTION,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.revision": source.revision,
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.version": source.version,
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
        "io.containerd.image.name": format!("docker.io/library/{NAME}:{}", source.version),
        "org.opencontainers.image.ref.name": source.version,
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    });
    let dockers = json!([{
        "Config": place(&config),
        "RepoTags": [format!("{NAME}:{}", source.version)],
        "Layers": [place(&layer)],
    }]);

    let mut blobs = [&config, &layer, &manifest].map(|blob| (place(blob), blob.as_slice()));
    blobs.sort();
    let mut archive = TarArchive::new(source.epoch);
    archive.folder("blobs/")?;
    archive.folder("blobs/sha256/")?;
    for (place, blob) in blobs {
        archive.file(&place, 0o644, blob)?;
    }
    archive.file("index.json", 0o644, &serde_json::to_vec(&index)?)?;
    archive.file("manifest.json", 0o644, &serde_json::to_vec(&dockers)?)?;
    archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let path = folder.join(format!("{NAME}-{}-image-{}.tar", source.version, architecture.name));
    fs::write(&path, archive.finish()?).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The binary, with its capabilities, and nothing else: a runtime makes the folders that it mounts on.
fn layer(binary: &[u8], epoch: u64) -> Result<Vec<u8>> {
    let mut archive = TarArchive::new(epoch);
    archive.0.append_pax_extensions([("SCHILY.xattr.security.capability", &CAPABILITIES[..])])?;
    archive.file(PROGRAM, 0o755, binary)?;
    archive.finish()
}

/// A tar file whose entries are root's and of one time.
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

/// Where a blob stands.
fn place(blob: &[u8]) -> String {
    format!("blobs/sha256/{}", hash(blob))
}
