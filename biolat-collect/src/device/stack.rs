//! Everything stacked on a device, at any depth: volumes, arrays, encrypted and multipath devices, and mounted file systems.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    rc::Rc,
};

use biolat_model::device::{Device, Holder, MULTIPATH};
use biolat_system::host::Host;

use super::{
    mounts::Mounts,
    scan::{holders, partitions},
    sysfs::text,
};

/// More than any real stack has.
const MAX_DEPTH: u32 = 16;

/// Maximum number of holders of a device; the most distant ones are omitted.
const MAX_HOLDERS: usize = 128;

/// Reads the stack on top of each of the devices. Anything that disappears in the meantime is omitted.
pub(super) fn read_stacks(host: &Host, devices: &mut [Device]) -> io::Result<()> {
    let mut layers = Layers { sysfs: &host.sysfs, mounts: Mounts::read(host)?, known: BTreeMap::new() };
    for device in devices {
        device.stack = layers.stack(&device.name, device.path_of.as_deref())?.into();
    }
    Ok(())
}

/// Cache of the block devices read so far, so a device stacked on many others is read only once.
struct Layers<'a> {
    sysfs: &'a Path,
    mounts: Mounts,
    known: BTreeMap<String, Rc<Layer>>,
}

/// A block device, and everything directly on it or on its partitions.
struct Layer {
    kind: String,
    name: String,
    holders: Vec<String>,
    /// Devices and partitions, with the kind and name of each file system and persistent volume on them.
    mounts: Vec<(String, &'static str, String)>,
}

impl Layers<'_> {
    /// Returns everything stacked on a device, nearest first. `head` is the NVMe device that a hidden path belongs to.
    fn stack(&mut self, device: &str, head: Option<&str>) -> io::Result<Vec<Holder>> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::from([device.to_owned()]);
        let mut below = vec![device.to_owned()];
        for depth in 1..=MAX_DEPTH {
            let mut level = Vec::new();
            for name in &below {
                let layer = self.layer(name)?;
                for (device, kind, name) in layer.mounts.clone() {
                    found.push(Holder { device, kind: kind.to_owned(), name, depth });
                }
                let head = head.filter(|_| depth == 1).map(str::to_owned);
                level.extend(
                    layer.holders.iter().cloned().chain(head).filter(|name| seen.insert(name.clone())),
                );
            }
            for name in &level {
                let layer = self.layer(name)?;
                // NVMe multipath devices have no uuid to recognize them by.
                let kind = if head == Some(name) { MULTIPATH } else { &layer.kind };
                found.push(Holder {
                    device: name.clone(),
                    kind: kind.to_owned(),
                    name: layer.name.clone(),
                    depth,
                });
            }
            if level.is_empty() || found.len() >= MAX_HOLDERS {
                break;
            }
            below = level;
        }
        found.truncate(MAX_HOLDERS);
        Ok(found)
    }

    fn layer(&mut self, device: &str) -> io::Result<Rc<Layer>> {
        if let Some(layer) = self.known.get(device) {
            return Ok(Rc::clone(layer));
        }
        let path = self.sysfs.join("block").join(device);
        let mapped = text(&path, "dm/name")?;
        let mut mounts = Vec::new();
        for part in partitions(&path, device).chain([device.to_owned()]) {
            let mapped = if part == device { mapped.as_str() } else { "" };
            let found = self.mounts.of(&part, mapped);
            mounts.extend(found.map(|(kind, name)| (part.clone(), kind, name.to_owned())));
        }
        let layer = Rc::new(Layer {
            kind: kind(device, &text(&path, "dm/uuid")?),
            name: if mapped.is_empty() { device.to_owned() } else { mapped },
            holders: holders(&path, device),
            mounts,
        });
        self.known.insert(device.to_owned(), Rc::clone(&layer));
        Ok(layer)
    }
}

/// Returns the subsystem at the beginning of a dm device's uuid (`LVM-…`, `CRYPT-LUKS2-…`, `part1-mpath-…`), or the driver of
/// other devices.
pub(super) fn kind(device: &str, uuid: &str) -> String {
    let letters = |text: &str| -> String { text.chars().take_while(char::is_ascii_alphabetic).collect() };
    match uuid.split_once('-') {
        Some((owner, _)) if !letters(owner).is_empty() => letters(owner).to_lowercase(),
        _ => letters(device),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use biolat_model::device::Device;
    use biolat_system::host::Host;
    use biolat_testing::Tree;

    use super::{Holder, MAX_DEPTH, MAX_HOLDERS, kind, read_stacks};

    /// Formats everything stacked on a device: depth, device, kind and name.
    fn stack(tree: &Tree, device: &str, head: Option<&str>) -> Vec<String> {
        let host = Host { sysfs: tree.0.clone(), procfs: tree.0.join("proc"), ..Host::default() };
        let path_of = head.map(str::to_owned);
        let mut devices = [Device { name: device.to_owned(), path_of, ..Device::default() }];
        read_stacks(&host, &mut devices).unwrap();
        let text = |Holder { device, kind, name, depth }: &Holder| format!("{depth} {device} {kind} {name}");
        devices[0].stack.iter().map(text).collect()
    }

    #[test]
    fn finds_volumes_on_luks_on_array_on_partitions() {
        let tree = Tree::new(
            "stack",
            &[
                ("sda/sda1/holders/md0/x", ""),
                ("sda/sda2/partition", "2"),
                ("sdb/sdb1/holders/md0/x", ""),
                ("md0/holders/dm-0/x", ""),
                ("dm-0/dm/name", "secret\n"),
                ("dm-0/dm/uuid", "CRYPT-LUKS2-0123-secret\n"),
                ("dm-0/holders/dm-1/x", ""),
                ("dm-0/holders/dm-2/x", ""),
                ("dm-1/dm/name", "vg-root\n"),
                ("dm-1/dm/uuid", "LVM-abc\n"),
                ("dm-2/dm/name", "vg-home\n"),
                ("dm-2/dm/uuid", "LVM-def\n"),
            ],
        );
        let expected = ["1 md0 md md0", "2 dm-0 crypt secret", "3 dm-1 lvm vg-root", "3 dm-2 lvm vg-home"];
        assert_eq!(stack(&tree, "sda", None), expected);
        assert_eq!(stack(&tree, "sdb", None), expected);
        assert!(stack(&tree, "sdc", None).is_empty(), "gone");
        fs::remove_dir_all(tree.0.join("block/dm-1")).unwrap();
        assert_eq!(stack(&tree, "sda", None)[2], "3 dm-1 dm dm-1", "gone, but still a holder");
    }

    #[test]
    fn kind_is_dm_subsystem_or_driver() {
        for (device, uuid, expected) in [
            ("dm-0", "LVM-0123", "lvm"),
            ("dm-0", "CRYPT-PLAIN-x", "crypt"),
            ("dm-0", "mpath-3600a098038", "mpath"),
            ("dm-0", "part1-mpath-3600a098038", "part"),
            ("dm-0", "", "dm"),
            ("dm-0", "0123-4567", "dm"),
            ("md127", "", "md"),
            ("bcache0", "", "bcache"),
        ] {
            assert_eq!(kind(device, uuid), expected, "{device} {uuid}");
        }
    }

    #[test]
    fn hidden_path_has_stack_of_its_head() {
        let tree = Tree::new(
            "stack-head",
            &[("nvme0c1n1/x", ""), ("nvme0n1/nvme0n1p1/holders/dm-0/x", ""), ("dm-0/dm/uuid", "LVM-x")],
        );
        let expected = ["1 nvme0n1 mpath nvme0n1", "2 dm-0 lvm dm-0"];
        assert_eq!(stack(&tree, "nvme0c1n1", Some("nvme0n1")), expected);
    }

    #[test]
    fn lists_shared_holder_once_at_smallest_depth() {
        let tree = Tree::new(
            "stack-diamond",
            &[
                ("sda/sda1/holders/dm-0/x", ""),
                ("sda/sda2/holders/dm-1/x", ""),
                ("sda/sda3/holders/dm-2/x", ""),
                ("dm-0/holders/dm-2/x", ""),
                ("dm-1/holders/dm-3/x", ""),
                ("dm-2/holders/dm-3/x", ""),
            ],
        );
        let expected = ["1 dm-0 dm dm-0", "1 dm-1 dm dm-1", "1 dm-2 dm dm-2", "2 dm-3 dm dm-3"];
        assert_eq!(stack(&tree, "sda", None), expected);
    }

    /// The kernel allows no cycles, but sysfs can change while it is being read.
    #[test]
    fn limits_cycles_depth_and_number() {
        let tree = Tree::new(
            "stack-cycle",
            &[("sda/holders/dm-0/x", ""), ("dm-0/holders/dm-1/x", ""), ("dm-1/holders/sda/x", "")],
        );
        assert_eq!(stack(&tree, "sda", None), ["1 dm-0 dm dm-0", "2 dm-1 dm dm-1"]);
        for number in 0..40 {
            tree.write(&format!("block/dm-{number}/holders/dm-{}/x", number + 1), b"");
        }
        assert_eq!(stack(&tree, "dm-0", None).len(), MAX_DEPTH as usize + 1);
        for number in 0..200 {
            tree.write(&format!("block/sdb/holders/dm-{}/x", 1000 + number), b"");
        }
        assert_eq!(stack(&tree, "sdb", None).len(), MAX_HOLDERS);
    }

    #[test]
    fn finds_mounts_of_partitions_and_volumes() {
        let tree = Tree::new(
            "stack-mounts",
            &[("sda/sda1/partition", "1"), ("sda/sda2/holders/dm-0/x", ""), ("dm-0/dm/name", "vg-root")],
        );
        for (number, name) in [("8:1", "sda1"), ("253:0", "dm-0")] {
            fs::create_dir_all(tree.0.join("dev/block")).unwrap();
            symlink(format!("../../block/x/{name}"), tree.0.join("dev/block").join(number)).unwrap();
        }
        let lines = "22 1 253:0 / / rw,relatime shared:1 - xfs /dev/mapper/vg-root rw\n\
                     30 22 8:1 / /boot rw - ext4 /dev/sda1 rw\n";
        tree.write("proc/self/mountinfo", lines.as_bytes());
        let expected = ["1 sda1 mount /boot", "1 dm-0 dm vg-root", "2 dm-0 mount /"];
        assert_eq!(stack(&tree, "sda", None), expected);
    }
}
