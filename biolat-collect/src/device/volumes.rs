//! Scans `/sys/block` for volumes: devices that have bios instead of requests.

use std::{fs, io, path::Path};

use biolat_model::device::{Device, MULTIPATH, Throttling, Volume};
use biolat_system::host::Host;

use super::{
    scan::{IdKind, Ids, holders},
    stack::{self, kind},
    sysfs::{names, text},
};

/// Returns all volumes, ordered by name, with what is stacked on them. Empty ones, such as a zram device without a size, are
/// omitted.
pub fn scan_volumes(host: &Host, ids: IdKind) -> io::Result<Vec<Device>> {
    let block = host.sysfs.join("block");
    let mut volumes = Vec::new();
    for entry in fs::read_dir(&block)? {
        let entry = entry?;
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !path.join("mq").is_dir() {
            volumes.extend(read(&path, name, ids)?);
        }
    }
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    stack::read_stacks(host, &mut volumes)?;
    Ok(volumes)
}

fn read(path: &Path, name: String, ids: IdKind) -> io::Result<Option<Device>> {
    let Some(Ids { id, sequence, inode, number }) = ids.read(path)? else { return Ok(None) };
    if text(path, "size")? == "0" {
        return Ok(None);
    }
    let mapped = text(path, "dm/name")?;
    let mut on = names(&path.join("slaves"));
    on.sort();
    Ok(Some(Device {
        id,
        sequence,
        inode,
        number,
        rotational: text(path, "queue/rotational")? == "1",
        holders: holders(path, &name),
        iostats: true,
        throttling: Throttling::SetUp,
        volume: Some(Volume {
            kind: if name.starts_with("nvme") {
                MULTIPATH.to_owned()
            } else {
                kind(&name, &text(path, "dm/uuid")?)
            },
            label: if mapped.is_empty() { name.clone() } else { mapped },
            on,
        }),
        name,
        ..Device::default()
    }))
}

#[cfg(test)]
mod tests {
    use biolat_system::host::Host;
    use biolat_testing::Tree;

    use super::{IdKind, scan_volumes};

    #[test]
    fn finds_devices_without_requests() {
        let tree = Tree::new(
            "volumes",
            &[
                ("dm-0/dev", "252:0\n"),
                ("dm-0/diskseq", "31\n"),
                ("dm-0/size", "2048\n"),
                ("dm-0/dm/name", "vg-data\n"),
                ("dm-0/dm/uuid", "LVM-abc\n"),
                ("dm-0/slaves/sdb1/x", ""),
                ("dm-0/slaves/sda/x", ""),
                ("md0/diskseq", "32\n"),
                ("md0/size", "4096\n"),
                ("zram0/diskseq", "33\n"),
                ("zram0/size", "0\n"),
                ("dm-1/mq/0/x", ""),
                ("dm-1/diskseq", "34\n"),
                ("nvme0n1/diskseq", "35\n"),
                ("nvme0n1/size", "4096\n"),
                ("sda/mq/0/x", ""),
                ("sda/diskseq", "36\n"),
            ],
        );
        let host = Host { sysfs: tree.0.clone(), procfs: tree.0.join("proc"), ..Host::default() };
        let found = scan_volumes(&host, IdKind::Diskseq).unwrap();
        let [data, array, head] = &found[..] else { panic!("{found:?}") };
        let volume = data.volume.as_ref().unwrap();
        assert_eq!((data.id, data.name.as_str(), data.number.as_str()), (31, "dm-0", "252:0"));
        assert_eq!((volume.kind.as_str(), volume.label.as_str()), ("lvm", "vg-data"));
        assert_eq!(volume.on, ["sda", "sdb1"]);
        let volume = array.volume.as_ref().unwrap();
        assert_eq!((volume.kind.as_str(), volume.label.as_str(), volume.on.len()), ("md", "md0", 0));
        assert!(head.is_multipath_head() && !array.is_multipath_head());
    }
}
