//! Determines a device's transport, as far as sysfs shows.

use std::{fs, io, path::Path};

use super::sysfs::text;

/// By prefix of a directory on the device's path. The first match wins, so the more specific transports come first.
const BY_PATH: [(&str, &str); 8] = [
    ("rport-", "fc"),
    ("session", "iscsi"),
    ("end_device-", "sas"),
    ("usb", "usb"),
    ("ata", "sata"),
    ("mmc", "mmc"),
    ("vbd-", "xen"),
    ("virtio", "virtio"),
];

/// By prefix of the device name, for devices that are not attached to anything.
const BY_NAME: [(&str, &str); 4] = [("loop", "loop"), ("nbd", "nbd"), ("rbd", "rbd"), ("fd", "floppy")];

/// Returns `pcie`, `tcp`, `sas`, `virtio`, …; empty if unknown. `path` is the device's directory.
pub(super) fn transport(path: &Path, name: &str) -> io::Result<String> {
    let attribute = text(path, "device/transport")?;
    if !attribute.is_empty() {
        return Ok(attribute);
    }
    let directory = fs::canonicalize(path.join("device")).unwrap_or_default();
    let parts: Vec<_> = directory.iter().filter_map(|part| part.to_str()).collect();
    let by_path = BY_PATH.iter().find(|(prefix, _)| parts.iter().any(|part| part.starts_with(prefix)));
    let by_name = || BY_NAME.iter().find(|(prefix, _)| name.starts_with(prefix));
    Ok(by_path.or_else(by_name).map_or("", |(_, transport)| transport).to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use biolat_testing::Tree;

    use super::transport;

    #[test]
    fn determines_transport() {
        let tree = Tree::new("transport", &[("nvme0n1/device/transport", "pcie\n")]);
        for (name, directory, expected) in [
            ("nvme0n1", "", "pcie"),
            ("sda", "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0", "sata"),
            ("sdb", "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0", "usb"),
            ("sdc", "pci0000:00/0000:01:00.0/host1/port-1:0/end_device-1:0/target1:0:0/1:0:0:0", "sas"),
            ("sdd", "pci0000:00/0000:02:00.0/host2/rport-2:0-3/target2:0:3/2:0:3:7", "fc"),
            ("sde", "platform/host3/session1/target3:0:0/3:0:0:1", "iscsi"),
            ("sdf", "pci0000:00/0000:00:05.0/virtio1/host4/target4:0:0/4:0:0:0", "virtio"),
            ("sdg", "pci0000:00/0000:03:00.0/host5/target5:2:0/5:2:0:0", ""),
            ("vda", "pci0000:00/0000:00:04.0/virtio0", "virtio"),
            ("xvda", "vbd-51712", "xen"),
            ("mmcblk0", "platform/soc/mmc_host/mmc0/mmc0:0001", "mmc"),
            ("loop3", "", "loop"),
            ("nbd0", "", "nbd"),
            ("nullb0", "", ""),
        ] {
            let path = tree.0.join("block").join(name);
            if !directory.is_empty() {
                tree.write(&format!("devices/{directory}/x"), b"");
                std::fs::create_dir_all(&path).unwrap();
                symlink(tree.0.join("devices").join(directory), path.join("device")).unwrap();
            }
            assert_eq!(transport(&path, name).unwrap(), expected, "{name}");
        }
    }
}
