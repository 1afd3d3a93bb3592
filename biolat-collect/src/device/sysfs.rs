//! Reads single attributes of block devices in sysfs.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use biolat_model::text::sanitize;

/// Whether the kernel accounts a device's requests, which can change at any time.
pub fn iostats_enabled(sysfs: &Path, name: &str) -> io::Result<bool> {
    Ok(attribute(&sysfs.join("block").join(name).join("queue/iostats"), &mut [0; 64])?.trim() != "0")
}

/// Returns the active I/O scheduler of the device with this directory: `mq-deadline` from `none [mq-deadline] bfq`. A device that
/// supports no scheduler lists just `none`. Empty if it cannot be read.
pub(super) fn scheduler(path: &Path) -> io::Result<String> {
    let all = text(path, "queue/scheduler")?;
    let in_use = all.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    Ok(in_use.map_or(all.as_str(), |(name, _)| name).to_owned())
}

/// Returns how many reads and other requests the driver has not completed yet, from `inflight`; 0 if it cannot be read.
pub fn inflight(sysfs: &Path, name: &str) -> (u64, u64) {
    let mut buffer = [0; 64];
    let path = sysfs.join("block").join(name).join("inflight");
    let mut counts = attribute(&path, &mut buffer).unwrap_or_default().split_ascii_whitespace();
    let mut next = || counts.next().and_then(|count| count.parse().ok()).unwrap_or(0);
    (next(), next())
}

/// Returns the numbers of a device's hardware queues that are used by at least one CPU, or `None` if they cannot be listed.
pub fn hardware_queues(sysfs: &Path, name: &str) -> Option<Vec<u32>> {
    let names = names(&sysfs.join("block").join(name).join("mq"));
    let queues: Vec<u32> = names.into_iter().filter_map(|name| name.parse().ok()).collect();
    (!queues.is_empty()).then_some(queues)
}

/// The tags of a device's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags {
    /// Number of hardware queues.
    pub queues: u32,
    /// Number of tags per hardware queue, of the driver or the scheduler, whichever has more.
    pub per_queue: u32,
}

/// Returns a device's tags, or `None` if its hardware queues cannot be listed.
pub fn tags(sysfs: &Path, name: &str) -> Option<Tags> {
    let device = sysfs.join("block").join(name);
    let queues = hardware_queues(sysfs, name)?;
    let number = |attribute: &str| text(&device, attribute).ok()?.parse::<u32>().ok();
    let of_driver = queues.iter().filter_map(|queue| number(&format!("mq/{queue}/nr_tags"))).max()?;
    let of_scheduler = number("queue/nr_requests").unwrap_or_default();
    Some(Tags { queues: queues.iter().max()? + 1, per_queue: of_driver.max(of_scheduler) })
}

/// Reads a short attribute with one read and no allocation, because some are read in each collection.
pub(crate) fn attribute<'a>(path: &Path, buffer: &'a mut [u8]) -> io::Result<&'a str> {
    let read = fs::File::open(path)?.read(buffer)?;
    std::str::from_utf8(&buffer[..read]).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Reads an attribute; empty if that fails. Most attributes exist only for some kinds of devices, and some cannot be read. Only a
/// lack of resources in this process is an error, so the device is not considered gone.
pub(super) fn text(path: &Path, attribute: &str) -> io::Result<String> {
    match fs::read(path.join(attribute)) {
        Ok(bytes) => Ok(clean(&String::from_utf8_lossy(&bytes))),
        Err(error) if is_shortage(&error) => Err(error),
        Err(_) => Ok(String::new()),
    }
}

/// Whether this process or the host ran out of descriptors or memory.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Returns the first non-empty attribute.
pub(super) fn first_of(path: &Path, attributes: &[&str]) -> io::Result<Option<String>> {
    for attribute in attributes {
        let text = text(path, attribute)?;
        if !text.is_empty() {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// Lists a directory; empty if it cannot be read.
pub(super) fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Trims and sanitizes text from a drive, which is printed on terminals.
pub(super) fn clean(text: &str) -> String {
    sanitize::text(text.trim_matches(|c: char| c.is_whitespace() || c.is_control()))
}

#[cfg(test)]
mod tests {
    use biolat_testing::Tree;

    use super::{Tags, inflight, scheduler, tags};

    #[test]
    fn reads_active_scheduler() {
        let tree = Tree::new(
            "scheduler",
            &[("sda/queue/scheduler", "none [mq-deadline] bfq\n"), ("sdb/queue/scheduler", "none\n")],
        );
        for (device, expected) in [("sda", "mq-deadline"), ("sdb", "none"), ("sdc", "")] {
            assert_eq!(scheduler(&tree.0.join("block").join(device)).unwrap(), expected);
        }
    }

    #[test]
    fn reads_tags_of_driver_and_scheduler() {
        let tree = Tree::new(
            "tags",
            &[
                ("sda/mq/0/nr_tags", "32\n"),
                ("sda/queue/nr_requests", "64\n"),
                ("nvme0n1/mq/0/nr_tags", "1023\n"),
                ("nvme0n1/mq/11/nr_tags", "1023\n"),
                ("nvme0n1/queue/nr_requests", "256\n"),
            ],
        );
        assert_eq!(tags(&tree.0, "sda"), Some(Tags { queues: 1, per_queue: 64 }));
        assert_eq!(tags(&tree.0, "nvme0n1"), Some(Tags { queues: 12, per_queue: 1023 }));
        assert_eq!(tags(&tree.0, "sdb"), None);
    }

    #[test]
    fn reads_inflight() {
        let tree = Tree::new("inflight", &[("sda/inflight", "       3        4\n")]);
        assert_eq!((inflight(&tree.0, "sda"), inflight(&tree.0, "sdb")), ((3, 4), (0, 0)));
    }
}
