//! Writes the container image: an OCI image layout in a tar file, with an image per architecture and an index. Each image has one
//! layer, which contains the programs.
//!
//! <https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md>
//! `manifest.json` is for Docker without the containerd image store: its `docker load` reads only that. Layers are uncompressed,
//! so that their digest is also their diff ID. Clients compress them when they push to a registry.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::release_info::ReleaseInfo;
use crate::hash::hash;
use crate::static_build::{Architecture, DAEMON, PROGRAMS};

/// Unprivileged user and group, the same as in distroless images.
const USER: &str = "65532:65532";

const NAME: &str = "biolat";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DESCRIPTION: &str = "Latency of every block I/O, as Prometheus native histograms";

/// File capabilities of each program: `CAP_PERFMON` (38) and `CAP_BPF` (39), as a `struct vfs_cap_data` of revision 2. They are
/// permitted but not effective, so a program starts even without them, and reports what is missing.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/capability.h#L74>
const CAPABILITIES: [u8; 20] = {
    let mut data = [0; 20];
    data[3] = 2;
    // Upper 32 bits of the permitted set, little-endian.
    data[12] = 1 << (38 - 32) | 1 << (39 - 32);
    data
};

/// An image for one architecture.
struct Image {
    architecture: Architecture,
    layer: Vec<u8>,
    config: Vec<u8>,
    manifest: Vec<u8>,
}

/// Writes the images of the given binaries to a single file in a directory and returns its path.
pub(super) fn write(
    binaries: &[(Architecture, &[PathBuf])],
    info: &ReleaseInfo,
    folder: &Path,
) -> Result<PathBuf> {
    let created = info.date("%Y-%m-%dT%H:%M:%SZ")?;
    let labels = json!({
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.description": DESCRIPTION,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.revision": info.revision,
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.version": info.version,
    });
    let mut images = Vec::new();
    for &(architecture, paths) in binaries {
        let programs = paths.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
        images.push(Image::new(architecture, &programs, info.epoch, &created, &labels)?);
    }
    let index = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": images.iter().map(Image::descriptor).collect::<Vec<_>>(),
        "annotations": labels,
    }))?;
    // Readers of a layout expect a single named entry. They choose the platform from the index that it points to.
    let mut entry = descriptor(INDEX, &index);
    entry["annotations"] = json!({
        "io.containerd.image.name": format!("docker.io/library/{NAME}:{}", info.version),
        "org.opencontainers.image.ref.name": info.version,
    });
    let layout = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entry] });
    let docker_manifest: Vec<_> = images.iter().map(|image| image.docker_manifest(info.version)).collect();

    let mut blobs: Vec<&[u8]> = vec![&index];
    blobs.extend(images.iter().flat_map(|image| [&*image.layer, &image.config, &image.manifest]));
    let mut blobs: Vec<_> = blobs.into_iter().map(|blob| (blob_path(blob), blob)).collect();
    blobs.sort();
    let mut archive = TarArchive::new(info.epoch);
    archive.folder("blobs/")?;
    archive.folder("blobs/sha256/")?;
    for (path, blob) in blobs {
        archive.file(&path, 0o644, blob)?;
    }
    archive.file("index.json", 0o644, &serde_json::to_vec(&layout)?)?;
    archive.file("manifest.json", 0o644, &serde_json::to_vec(&docker_manifest)?)?;
    archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let path = folder.join(format!("{NAME}-{}-image.tar", info.version));
    fs::write(&path, archive.finish()?).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

impl Image {
    fn new(
        architecture: Architecture,
        programs: &[Vec<u8>],
        epoch: u64,
        created: &str,
        labels: &Value,
    ) -> Result<Self> {
        let layer = layer(programs, epoch)?;
        let config = serde_json::to_vec(&json!({
            "created": created,
            "architecture": architecture.name,
            "os": "linux",
            "config": {
                "User": USER,
                "ExposedPorts": { "9976/tcp": {} },
                "Entrypoint": [format!("/{}", DAEMON.name)],
                "Labels": labels,
            },
            "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
            "history": [{ "created": created, "created_by": "cargo xtask dist" }],
        }))?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
            "annotations": labels,
        }))?;
        Ok(Self { architecture, layer, config, manifest })
    }

    fn descriptor(&self) -> Value {
        let mut entry = descriptor(MANIFEST, &self.manifest);
        entry["platform"] = json!({ "architecture": self.architecture.name, "os": "linux" });
        entry
    }

    /// Returns the entry in `manifest.json`. That format has no platforms, so architectures other than amd64 have their own tags.
    fn docker_manifest(&self, version: &str) -> Value {
        let suffix = match self.architecture.name {
            "amd64" => String::new(),
            other => format!("-{other}"),
        };
        json!({
            "Config": blob_path(&self.config),
            "RepoTags": [format!("{NAME}:{version}{suffix}")],
            "Layers": [blob_path(&self.layer)],
        })
    }
}

/// Returns a layer with only the programs and their file capabilities. Runtimes create the mount points.
fn layer(programs: &[Vec<u8>], epoch: u64) -> Result<Vec<u8>> {
    let mut archive = TarArchive::new(epoch);
    for (program, bytes) in PROGRAMS.iter().zip(programs) {
        archive.0.append_pax_extensions([("SCHILY.xattr.security.capability", &CAPABILITIES[..])])?;
        archive.file(program.name, 0o755, bytes)?;
    }
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

/// Returns the path of a blob in the layout.
fn blob_path(blob: &[u8]) -> String {
    format!("blobs/sha256/{}", hash(blob))
}
