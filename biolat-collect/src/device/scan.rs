//! Scans `/sys/block`. This is cheap enough to repeat whenever something could have changed.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

use biolat_common::kernel::{KernelLayout, directory_id};
use biolat_model::device::{Device, Throttling};

use super::{
    paths,
    sysfs::{clean, first_of, names, scheduler, text},
    transport::transport,
};

/// Source of a device's id: see [`Device::id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    /// `diskseq`.
    Diskseq,
    /// Inode number of the device's directory in sysfs.
    Directory,
}

impl IdKind {
    /// The source of ids on a kernel with this layout.
    #[must_use]
    pub const fn of(layout: &KernelLayout) -> Self {
        if layout.id_is_sequence != 0 { Self::Diskseq } else { Self::Directory }
    }

    /// Reads the ids of the device with this directory in sysfs. `None` if it has disappeared.
    pub(super) fn read(self, path: &Path) -> io::Result<Option<Ids>> {
        let number = text(path, "dev")?;
        let sequence = text(path, "diskseq")?.parse().ok();
        let Ok(metadata) = fs::metadata(path) else { return Ok(None) };
        let inode = metadata.ino();
        let id = match self {
            Self::Diskseq => sequence,
            Self::Directory => Some(directory_id(inode)),
        };
        Ok(id.map(|id| Ids { id, sequence, inode, number }))
    }
}

/// What identifies a device: see [`Device`].
pub(super) struct Ids {
    pub(super) id: u64,
    pub(super) sequence: Option<u64>,
    pub(super) inode: u64,
    pub(super) number: String,
}

/// Returns all request-based devices, ordered by name. Loop devices are included only if a file is attached.
///
/// A drive's identity does not change, and reading it can send a command to the drive (virtio's `serial` does), so it is not read
/// again for a `known` device. Devices that disappear during the scan are omitted.
pub fn scan<'a>(
    sysfs: &Path,
    ids: IdKind,
    known: impl Fn(u64) -> Option<&'a Device>,
) -> io::Result<Vec<Device>> {
    let block = sysfs.join("block");
    let mut devices = Vec::new();
    for entry in fs::read_dir(&block)? {
        let entry = entry?;
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else { continue };
        if path.join("mq").is_dir() && is_attached(&path, &name) {
            devices.extend(read(sysfs, name, ids, &known)?);
        }
    }
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(devices)
}

fn is_attached(path: &Path, name: &str) -> bool {
    !name.starts_with("loop") || path.join("loop/backing_file").exists()
}

fn read<'a>(
    sysfs: &Path,
    name: String,
    ids: IdKind,
    known: impl Fn(u64) -> Option<&'a Device>,
) -> io::Result<Option<Device>> {
    let block = sysfs.join("block");
    let path = &block.join(&name);
    let Some(Ids { id, sequence, inode, number }) = ids.read(path)? else { return Ok(None) };
    let identity = match known(id) {
        Some(known) if known.name == name && known.inode == inode => known.clone(),
        _ => identity(path, &name)?,
    };
    let holders = holders(path, &name);
    let path_of = (text(path, "hidden")? == "1").then(|| multipath_head(&name)).flatten();
    Ok(Some(Device {
        id,
        sequence,
        inode,
        rotational: text(path, "queue/rotational")? == "1",
        // A drive's firmware can be updated at runtime.
        firmware: first_of(path, &["device/firmware_rev", "device/fwrev", "device/rev"])?.unwrap_or_default(),
        scheduler: scheduler(path)?,
        path: paths::find(sysfs, &name, path_of.as_deref(), &holders, &identity)?,
        path_of,
        has_clones: holders.iter().any(|holder| block.join(holder).join("mq").is_dir()),
        holders,
        iostats: text(path, "queue/iostats")? != "0",
        accounts_passthrough: path.join("queue/iostats_passthrough").exists(),
        throttling: throttling(path)?,
        number,
        name,
        ..identity
    }))
}

fn throttling(path: &Path) -> io::Result<Throttling> {
    const ATTRIBUTE: &str = "queue/wbt_lat_usec";
    Ok(if !path.join(ATTRIBUTE).exists() {
        Throttling::NotBuiltIn
    } else if text(path, ATTRIBUTE)?.is_empty() {
        // The attribute cannot be read until throttling is set up.
        Throttling::CanBeSetUp
    } else {
        Throttling::SetUp
    })
}

/// Reads the model, serial number and so on, as reported by the drive.
fn identity(path: &Path, name: &str) -> io::Result<Device> {
    Ok(Device {
        transport: transport(path, name)?,
        model: text(path, "device/model")?,
        serial: match first_of(path, &["serial", "device/serial"])? {
            Some(serial) => serial,
            None => vpd_serial(path),
        },
        wwid: first_of(path, &["wwid", "device/wwid"])?.unwrap_or_default(),
        numa_node: first_of(path, &["device/numa_node", "device/device/numa_node"])?
            .and_then(|node| node.parse().ok()),
        ..Device::default()
    })
}

/// Returns `nvme0n2` for `nvme0c1n2`, its path over controller 1.
fn multipath_head(name: &str) -> Option<String> {
    let (subsystem, rest) = name.split_once('c')?;
    let (controller, namespace) = rest.split_once('n')?;
    controller.parse::<u32>().ok()?;
    Some(format!("{subsystem}n{namespace}"))
}

/// Returns a disk's partitions: subdirectories whose names begin with the disk's name.
pub(super) fn partitions(path: &Path, name: &str) -> impl Iterator<Item = String> {
    names(path).into_iter().filter(move |entry| entry.starts_with(name))
}

/// Returns the devices stacked directly on the disk and on its partitions.
pub(super) fn holders(path: &Path, name: &str) -> Vec<String> {
    let mut holders: Vec<_> = partitions(path, name)
        .map(|partition| path.join(partition).join("holders"))
        .chain([path.join("holders")])
        .flat_map(|directory| names(&directory))
        .collect();
    holders.sort();
    holders.dedup();
    holders
}

/// Reads the serial number from a SCSI device's vital product data page: a header of four bytes, then text.
fn vpd_serial(path: &Path) -> String {
    let page = fs::read(path.join("device/vpd_pg80")).unwrap_or_default();
    clean(&String::from_utf8_lossy(page.get(4..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use biolat_model::device::Device;
    use biolat_testing::Tree;
    use proptest::{collection::vec, option, prelude::*, sample::select};

    use super::{IdKind, Throttling, directory_id, multipath_head, scan};

    #[test]
    fn reads_nvme_identity() {
        let tree = Tree::new(
            "nvme",
            &[
                ("nvme0n1/mq/0/tags", ""),
                ("nvme0n1/dev", "259:3\n"),
                ("nvme0n1/diskseq", "17\n"),
                ("nvme0n1/wwid", "eui.0025385391b2f1a3\n"),
                ("nvme0n1/device/model", "FAST\u{1b}[2J SSD 990                            \n"),
                ("nvme0n1/device/serial", "S6Z2NJ0W   \n"),
                ("nvme0n1/device/numa_node", "1\n"),
                ("nvme0n1/device/firmware_rev", "4B2QJXD7  \n"),
                ("nvme0n1/device/transport", "pcie\n"),
                ("nvme0n1/queue/scheduler", "[none] mq-deadline\n"),
                ("nvme0n1/queue/rotational", "0\n"),
                ("nvme0n1/queue/iostats", "1\n"),
                ("nvme0n1/queue/wbt_lat_usec", "2000\n"),
                ("nvme0n1/nvme0n1p2/holders/dm-1", ""),
                ("nvme0n1/nvme0n1p1/holders/dm-0", ""),
                ("nvme0n1/holders/md0", ""),
            ],
        );
        let [device] = &scan(&tree.0, IdKind::Diskseq, |_| None).unwrap()[..] else { panic!("one device") };
        assert_eq!((device.id, device.sequence), (17, Some(17)));
        assert_eq!((device.name.as_str(), device.number.as_str()), ("nvme0n1", "259:3"));
        assert_eq!((device.model.as_str(), device.serial.as_str()), ("FAST\u{fffd}[2J SSD 990", "S6Z2NJ0W"));
        assert_eq!((device.wwid.as_str(), device.numa_node), ("eui.0025385391b2f1a3", Some(1)));
        assert_eq!(device.holders, ["dm-0", "dm-1", "md0"]);
        assert_eq!([&device.firmware, &device.transport, &device.scheduler], ["4B2QJXD7", "pcie", "none"]);
        assert!(
            device.iostats
                && device.throttling == Throttling::SetUp
                && !device.rotational
                && device.path_of.is_none()
        );
    }

    #[test]
    fn omits_bio_based_and_detached_devices() {
        let tree = Tree::new(
            "others",
            &[
                ("dm-0/dev", "252:0\n"),
                ("loop0/mq/0/tags", ""),
                ("loop0/dev", "7:0\n"),
                ("loop1/mq/0/tags", ""),
                ("loop1/dev", "7:1\n"),
                ("loop1/diskseq", "40\n"),
                ("loop1/loop/backing_file", "/tmp/x\n"),
                ("sda/mq/0/tags", ""),
                ("sda/dev", "8:0\n"),
                ("sda/queue/iostats", "0\n"),
                ("sda/sda1/holders/dm-9", ""),
                ("dm-9/mq/0/x", ""),
            ],
        );
        let names = |ids| {
            let devices = scan(&tree.0, ids, |_| None).unwrap();
            devices.into_iter().map(|device| device.name).collect::<Vec<_>>()
        };
        // A device without a sequence number is being removed.
        assert_eq!(names(IdKind::Diskseq), ["loop1"]);
        assert_eq!(names(IdKind::Directory), ["dm-9", "loop1", "sda"]);
        let sda = scan(&tree.0, IdKind::Directory, |_| None).unwrap().pop().unwrap();
        assert_eq!((sda.id, sda.sequence), (directory_id(sda.inode), None));
        assert!(!sda.iostats && sda.numa_node.is_none() && sda.has_clones);
    }

    #[test]
    fn finds_head_of_hidden_path() {
        let tree = Tree::new(
            "paths",
            &[("nvme0c1n2/mq/0/x", ""), ("nvme0c1n2/hidden", "1\n"), ("nvme0c1n2/diskseq", "5\n")],
        );
        let devices = scan(&tree.0, IdKind::Diskseq, |_| None).unwrap();
        assert_eq!(devices[0].path_of.as_deref(), Some("nvme0n2"));
        assert_eq!(devices[0].number, "");
        assert_eq!(multipath_head("nvme0n2"), None);
        assert_eq!(multipath_head("sdc"), None);
    }

    #[test]
    fn does_not_identify_known_drive_again() {
        let tree = Tree::new("known", &[("vda/mq/0/x", ""), ("vda/diskseq", "9\n"), ("vda/serial", "first")]);
        let first = scan(&tree.0, IdKind::Diskseq, |_| None).unwrap();
        fs::write(tree.0.join("block/vda/serial"), "second").unwrap();
        let again =
            || scan(&tree.0, IdKind::Diskseq, |id| first.iter().find(|device| device.id == id)).unwrap();
        assert_eq!(again(), first);
        tree.write("block/vda/device/rev", b"2.5+\n");
        tree.write("block/vda/queue/scheduler", b"none [bfq]\n");
        assert_eq!((&*again()[0].firmware, &*again()[0].scheduler), ("2.5+", "bfq"), "these can change");
        assert_eq!(scan(&tree.0, IdKind::Diskseq, |_| None).unwrap()[0].serial, "second");
    }

    #[test]
    fn fails_without_sysfs() {
        assert!(scan(Path::new("/nonexistent"), IdKind::Diskseq, |_| None).is_err());
    }

    const ATTRIBUTES: [&str; 18] = [
        "dev",
        "diskseq",
        "hidden",
        "serial",
        "wwid",
        "device/model",
        "device/serial",
        "device/vpd_pg80",
        "device/numa_node",
        "device/firmware_rev",
        "device/rev",
        "device/transport",
        "queue/scheduler",
        "queue/rotational",
        "queue/iostats",
        "queue/wbt_lat_usec",
        "loop/backing_file",
        "holders",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// An attribute can contain anything, and even be a directory.
        #[test]
        fn sanitizes_any_attributes(
            attributes in vec((select(&ATTRIBUTES[..]), option::of(vec(any::<u8>(), 0..40))), 0..20),
            sequence: u64,
        ) {
            let tree = Tree::new("any", &[("nvme0c1n1/mq/0/tags", "")]);
            tree.write("block/nvme0c1n1/diskseq", sequence.to_string().as_bytes());
            for (attribute, content) in attributes {
                let path = tree.0.join("block/nvme0c1n1").join(attribute);
                let _ = content.map_or_else(|| fs::create_dir_all(&path), |content| {
                    fs::create_dir_all(path.parent().unwrap())?;
                    fs::write(&path, content)
                });
            }
            for ids in [IdKind::Diskseq, IdKind::Directory] {
                for device in scan(&tree.0, ids, |_| None).unwrap() {
                    let Device { number, model, serial, wwid, firmware, transport, scheduler, .. } = device;
                    for text in [number, model, serial, wwid, firmware, transport, scheduler] {
                        prop_assert!(!text.contains(char::is_control), "{text:?}");
                    }
                }
            }
        }
    }
}
