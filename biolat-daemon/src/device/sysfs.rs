//! `/sys/block`, read whole: cheap enough to do it again whenever something may have changed.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use biolat_common::kernel::device_number;

use super::{Device, Throttling};
use crate::terminal::plain;

/// What a device's id is: see [`Device::id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// `diskseq`.
    Sequence,
    /// Made of its numbers.
    Number,
}

/// Every device with requests of its own, by name. A loop device counts while a file is attached to it.
///
/// Who a drive says it is does not change, and asking can be a command to the drive (virtio's `serial` is):
/// what is `known` is not asked again. A device that vanishes while it is read is left out, and so is one
/// without an id: before Linux 5.15, a hidden multipath path.
pub fn scan<'a>(
    sysfs: &Path,
    ids: Ids,
    known: impl Fn(u64) -> Option<&'a Device>,
) -> io::Result<Vec<Device>> {
    let block = sysfs.join("block");
    let mut devices = Vec::new();
    for entry in fs::read_dir(&block)? {
        let entry = entry?;
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else { continue };
        if path.join("mq").is_dir() && is_attached(&path, &name) {
            devices.extend(read(&block, name, ids, &known)?);
        }
    }
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(devices)
}

fn is_attached(path: &Path, name: &str) -> bool {
    !name.starts_with("loop") || path.join("loop/backing_file").exists()
}

fn read<'a>(
    block: &Path,
    name: String,
    ids: Ids,
    known: impl Fn(u64) -> Option<&'a Device>,
) -> io::Result<Option<Device>> {
    let path = &block.join(&name);
    let number = text(path, "dev")?;
    let sequence = text(path, "diskseq")?.parse().ok();
    let id = match ids {
        Ids::Sequence => sequence,
        Ids::Number => id_by_number(&number),
    };
    let (Some(id), Ok(metadata)) = (id, fs::metadata(path)) else { return Ok(None) };
    let inode = metadata.ino();
    let identity = match known(id) {
        Some(known) if known.name == name && known.inode == inode => known.clone(),
        _ => identity(path)?,
    };
    let holders = holders(path, &name);
    Ok(Some(Device {
        id,
        sequence,
        inode,
        rotational: text(path, "queue/rotational")? == "1",
        path_of: (text(path, "hidden")? == "1").then(|| multipath_head(&name)).flatten(),
        has_clones: holders.iter().any(|holder| block.join(holder).join("mq").is_dir()),
        holders,
        iostats: has_statistics(path)?,
        books_passthrough: path.join("queue/iostats_passthrough").exists(),
        throttling: throttling(path)?,
        number,
        name,
        ..identity
    }))
}

/// Whether the kernel books and stamps a device's requests, which may change at any time.
pub fn keeps_statistics(sysfs: &Path, name: &str) -> io::Result<bool> {
    Ok(attribute(&sysfs.join("block").join(name).join("queue/iostats"), &mut [0; 64])?.trim() != "0")
}

/// The scheduler that is in use, of those that are to be had: `mq-deadline` of `none [mq-deadline] bfq`.
#[must_use]
pub fn scheduler(sysfs: &Path, name: &str) -> Option<String> {
    let all = text(&sysfs.join("block").join(name), "queue/scheduler").ok()?;
    let (_, rest) = all.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Devices that have no requests of their own and pass everything on to others, and which: dm, md.
pub fn passed_on(sysfs: &Path) -> io::Result<Vec<(String, Vec<String>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sysfs.join("block"))? {
        let path = entry?.path();
        let mut below = names(&path.join("slaves"));
        if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && !below.is_empty()
            && !path.join("mq").is_dir()
        {
            below.sort();
            found.push((name.to_owned(), below));
        }
    }
    found.sort();
    Ok(found)
}

/// A short attribute, in one read, which is how the kernel hands it out: for those that each pass reads.
pub(super) fn attribute<'a>(path: &Path, buffer: &'a mut [u8]) -> io::Result<&'a str> {
    let read = fs::File::open(path)?.read(buffer)?;
    std::str::from_utf8(&buffer[..read]).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn has_statistics(path: &Path) -> io::Result<bool> {
    Ok(text(path, "queue/iostats")? != "0")
}

fn throttling(path: &Path) -> io::Result<Throttling> {
    const ATTRIBUTE: &str = "queue/wbt_lat_usec";
    Ok(if !path.join(ATTRIBUTE).exists() {
        Throttling::NotBuiltIn
    } else if text(path, ATTRIBUTE)?.is_empty() {
        // An error to read, until it is set up.
        Throttling::CanBeSetUp
    } else {
        Throttling::SetUp
    })
}

/// What the drive says of itself.
fn identity(path: &Path) -> io::Result<Device> {
    Ok(Device {
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

fn id_by_number(number: &str) -> Option<u64> {
    let (major, minor) = number.split_once(':')?;
    Some(device_number(major.parse().ok()?, minor.parse().ok()?))
}

/// `nvme0c1n2` is the path over controller 1 to `nvme0n2`.
fn multipath_head(name: &str) -> Option<String> {
    let (subsystem, rest) = name.split_once('c')?;
    let (controller, namespace) = rest.split_once('n')?;
    controller.parse::<u32>().ok()?;
    Some(format!("{subsystem}n{namespace}"))
}

/// Stacked devices on the disk itself and on its partitions, which are folders that bear its name.
fn holders(path: &Path, name: &str) -> Vec<String> {
    let partitions = names(path).into_iter().filter(|entry| entry.starts_with(name));
    let mut holders: Vec<_> = partitions
        .map(|partition| path.join(partition).join("holders"))
        .chain([path.join("holders")])
        .flat_map(|folder| names(&folder))
        .collect();
    holders.sort();
    holders.dedup();
    holders
}

/// The page of a SCSI device that holds its serial number: a header of four bytes, then text.
fn vpd_serial(path: &Path) -> String {
    let page = fs::read(path.join("device/vpd_pg80")).unwrap_or_default();
    clean(&String::from_utf8_lossy(page.get(4..).unwrap_or_default()))
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

fn first_of(path: &Path, attributes: &[&str]) -> io::Result<Option<String>> {
    for attribute in attributes {
        let text = text(path, attribute)?;
        if !text.is_empty() {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// An attribute's text, or nothing: most attributes are there for some kinds of device only, and some are
/// errors to read. Only what is wrong with this process and not with the device is an error here, lest the
/// device be taken for gone.
fn text(path: &Path, attribute: &str) -> io::Result<String> {
    match fs::read(path.join(attribute)) {
        Ok(bytes) => Ok(clean(&String::from_utf8_lossy(&bytes))),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => {
            Err(error)
        }
        Err(_) => Ok(String::new()),
    }
}

fn clean(text: &str) -> String {
    // Whatever a drive says of itself comes to a terminal.
    plain(text.trim_matches(|c: char| c.is_whitespace() || c.is_control()))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{Ids, Throttling, device_number, multipath_head, passed_on, scan, scheduler};
    use crate::device::tree::Tree;

    #[test]
    fn an_nvme_drive_with_its_identity() {
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
                ("nvme0n1/queue/rotational", "0\n"),
                ("nvme0n1/queue/iostats", "1\n"),
                ("nvme0n1/queue/wbt_lat_usec", "2000\n"),
                ("nvme0n1/nvme0n1p2/holders/dm-1", ""),
                ("nvme0n1/nvme0n1p1/holders/dm-0", ""),
                ("nvme0n1/holders/md0", ""),
            ],
        );
        let [device] = &scan(&tree.0, Ids::Sequence, |_| None).unwrap()[..] else { panic!("one device") };
        assert_eq!((device.id, device.sequence), (17, Some(17)));
        assert_eq!((device.name.as_str(), device.number.as_str()), ("nvme0n1", "259:3"));
        assert_eq!((device.model.as_str(), device.serial.as_str()), ("FAST\u{fffd}[2J SSD 990", "S6Z2NJ0W"));
        assert_eq!((device.wwid.as_str(), device.numa_node), ("eui.0025385391b2f1a3", Some(1)));
        assert_eq!(device.holders, ["dm-0", "dm-1", "md0"]);
        assert!(
            device.iostats
                && device.throttling == Throttling::SetUp
                && !device.rotational
                && device.path_of.is_none()
        );
    }

    #[test]
    fn what_has_no_requests_or_no_file_is_left_out() {
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
        // One that has no sequence number any more is on its way out.
        assert_eq!(names(Ids::Sequence), ["loop1"]);
        assert_eq!(names(Ids::Number), ["loop1", "sda"]);
        let sda = scan(&tree.0, Ids::Number, |_| None).unwrap().pop().unwrap();
        assert_eq!((sda.id, sda.sequence), (device_number(8, 0), None));
        assert!(!sda.iostats && sda.numa_node.is_none() && sda.has_clones);
    }

    #[test]
    fn a_hidden_path_names_its_head() {
        let tree = Tree::new(
            "paths",
            &[("nvme0c1n2/mq/0/x", ""), ("nvme0c1n2/hidden", "1\n"), ("nvme0c1n2/diskseq", "5\n")],
        );
        let devices = scan(&tree.0, Ids::Sequence, |_| None).unwrap();
        assert_eq!(devices[0].path_of.as_deref(), Some("nvme0n2"));
        assert_eq!(devices[0].number, "");
        assert_eq!(multipath_head("nvme0n2"), None);
        assert_eq!(multipath_head("sdc"), None);
    }

    #[test]
    fn a_known_drive_is_not_asked_again() {
        let tree = Tree::new("known", &[("vda/mq/0/x", ""), ("vda/diskseq", "9\n"), ("vda/serial", "first")]);
        let first = scan(&tree.0, Ids::Sequence, |_| None).unwrap();
        fs::write(tree.0.join("block/vda/serial"), "second").unwrap();
        let again = scan(&tree.0, Ids::Sequence, |id| first.iter().find(|device| device.id == id)).unwrap();
        assert_eq!(again, first);
        assert_eq!(scan(&tree.0, Ids::Sequence, |_| None).unwrap()[0].serial, "second");
    }

    #[test]
    fn the_scheduler_in_use() {
        let tree = Tree::new(
            "scheduler",
            &[("sda/queue/scheduler", "none [mq-deadline] bfq\n"), ("sdb/queue/scheduler", "none\n")],
        );
        assert_eq!(scheduler(&tree.0, "sda").as_deref(), Some("mq-deadline"));
        assert_eq!((scheduler(&tree.0, "sdb"), scheduler(&tree.0, "sdc")), (None, None));
    }

    #[test]
    fn what_passes_on_names_what_is_below() {
        let tree = Tree::new(
            "stacked",
            &[
                ("md0/slaves/sdb", ""),
                ("md0/slaves/sda", ""),
                ("dm-0/slaves/md0", ""),
                ("dm-1/mq/0/x", ""),
                ("dm-1/slaves/sdc", ""),
                ("zram0/size", "1"),
            ],
        );
        let expected = [("dm-0", vec!["md0"]), ("md0", vec!["sda", "sdb"])];
        let found = passed_on(&tree.0).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(name, below)| (name.as_str(), below.iter().map(String::as_str).collect::<Vec<_>>()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn no_sysfs_is_an_error() {
        assert!(scan(Path::new("/nonexistent"), Ids::Sequence, |_| None).is_err());
    }
}
