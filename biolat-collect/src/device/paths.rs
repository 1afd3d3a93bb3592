//! Paths of multipath devices: the device that a path belongs to, transport, address and state. Covers the hidden paths of NVMe,
//! and devices below dm-multipath.

use std::{fs, io, path::Path};

use biolat_model::device::{Device, MultipathPath};

use super::sysfs::{attribute, clean, text};

const LIVE: &str = "live";
const UNKNOWN: &str = "unknown";

/// Returns the path details of a device, if it is a path. `head` is the NVMe device that a hidden path belongs to, and `holders`
/// are the devices stacked on it. A path that is already known from `identity` keeps its address.
pub(super) fn find(
    sysfs: &Path,
    name: &str,
    head: Option<&str>,
    holders: &[String],
    identity: &Device,
) -> io::Result<Option<MultipathPath>> {
    let block = sysfs.join("block");
    let of = match head {
        Some(head) => Some(head),
        None => dm_multipath(&block, holders)?,
    };
    let Some(of) = of else { return Ok(None) };
    if let Some(known) = identity.path.as_ref().filter(|known| known.of == of) {
        return Ok(Some(known.clone()));
    }
    let device = block.join(name).join("device");
    let address = match text(&device, "address")? {
        address if address.is_empty() => scsi_address(&device),
        address => address,
    };
    let (of, transport) = (of.to_owned(), identity.transport.clone());
    Ok(Some(MultipathPath { of, transport, address, state: state(sysfs, name) }))
}

/// Reads the state of a path, which changes without a uevent. Takes at most two reads, of attributes that the kernel shows
/// without waiting for the device.
pub fn state(sysfs: &Path, name: &str) -> String {
    let state = try_state(&sysfs.join("block").join(name)).unwrap_or_default();
    if state.is_empty() { UNKNOWN.to_owned() } else { state }
}

fn try_state(path: &Path) -> io::Result<String> {
    let read = |name: &str| attribute(&path.join(name), &mut [0; 64]).map(clean);
    let state = read("device/state")?;
    match state.as_str() {
        // SCSI's name for a live path.
        "running" => return Ok(LIVE.to_owned()),
        LIVE => {}
        _ => return Ok(state),
    }
    // A live NVMe controller does not necessarily have access to this namespace.
    match read("ana_state") {
        Ok(access) if matches!(access.as_str(), "" | "optimized" | "non-optimized") => Ok(state),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(state),
        inaccessible => inaccessible,
    }
}

/// Returns the dm-multipath device among the holders, which is recognized by the id that multipathd assigns. A path can also be
/// below other dm devices, such as LVM volumes.
fn dm_multipath<'a>(block: &Path, holders: &'a [String]) -> io::Result<Option<&'a str>> {
    for holder in holders {
        if text(&block.join(holder), "dm/uuid")?.starts_with("mpath-") {
            return Ok(Some(holder));
        }
    }
    Ok(None)
}

/// Returns the host, channel, target and LUN of a SCSI device, which form its directory's name.
fn scsi_address(device: &Path) -> String {
    let Ok(directory) = fs::canonicalize(device) else { return String::new() };
    let name = directory.file_name().and_then(|name| name.to_str());
    name.filter(|name| name.contains(':')).map(clean).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use biolat_model::device::Device;
    use biolat_testing::Tree;

    use super::{MultipathPath, state};
    use crate::device::{IdKind, scan};

    /// Scans all devices, treating none as known.
    fn scan_all(tree: &Tree) -> Vec<Device> {
        scan(&tree.0, IdKind::Diskseq, |_| None).unwrap()
    }

    fn path(of: &str, transport: &str, address: &str, state: &str) -> Option<MultipathPath> {
        let [of, transport, address, state] = [of, transport, address, state].map(str::to_owned);
        Some(MultipathPath { of, transport, address, state })
    }

    #[test]
    fn finds_nvme_path() {
        let tree = Tree::new(
            "nvme-path",
            &[
                ("nvme0c1n1/mq/0/x", ""),
                ("nvme0c1n1/hidden", "1\n"),
                ("nvme0c1n1/diskseq", "5\n"),
                ("nvme0c1n1/device/transport", "tcp\n"),
                ("nvme0c1n1/device/address", "traddr=192.0.2.1,trsvcid=4420\n"),
                ("nvme0c1n1/device/state", "live\n"),
            ],
        );
        let expected = path("nvme0n1", "tcp", "traddr=192.0.2.1,trsvcid=4420", "live");
        let devices = scan_all(&tree);
        assert_eq!(devices[0].path, expected);
        // Part of a TCP path's address comes and goes with the connection.
        tree.write("block/nvme0c1n1/device/address", b"traddr=192.0.2.1,trsvcid=4420,src_addr=192.0.2.9\n");
        let again = scan(&tree.0, IdKind::Diskseq, |_| devices.first()).unwrap();
        assert_eq!(again[0].path, expected);
    }

    #[test]
    fn reads_nvme_path_states() {
        let tree = Tree::new("nvme-state", &[]);
        for (controller, access, expected) in [
            ("live", None, "live"),
            ("live", Some("optimized"), "live"),
            ("live", Some("non-optimized"), "live"),
            ("live", Some(""), "live"),
            ("live", Some("inaccessible"), "inaccessible"),
            ("live", Some("persistent-loss"), "persistent-loss"),
            ("connecting", Some("optimized"), "connecting"),
            ("deleting (no IO)", Some("change"), "deleting (no IO)"),
            ("", None, "unknown"),
        ] {
            let _ = fs::remove_file(tree.0.join("block/nvme0c1n1/ana_state"));
            tree.write("block/nvme0c1n1/device/state", format!("{controller}\n").as_bytes());
            if let Some(access) = access {
                tree.write("block/nvme0c1n1/ana_state", format!("{access}\n").as_bytes());
            }
            assert_eq!(state(&tree.0, "nvme0c1n1"), expected, "{controller} {access:?}");
        }
        assert_eq!(state(&tree.0, "nvme0c2n1"), "unknown");
        fs::create_dir_all(tree.0.join("block/nvme0c3n1/device/state")).unwrap();
        assert_eq!(state(&tree.0, "nvme0c3n1"), "unknown", "a read that fails");
    }

    #[test]
    fn finds_path_below_dm_multipath() {
        let tree = Tree::new(
            "dm-path",
            &[
                ("dm-0/dm/uuid", "LVM-0123\n"),
                ("dm-3/dm/uuid", "mpath-3600a098038\n"),
                ("sda/mq/0/x", ""),
                ("sda/diskseq", "5\n"),
                ("sda/holders/dm-3", ""),
                ("sdb/mq/0/x", ""),
                ("sdb/diskseq", "6\n"),
                ("sdb/holders/dm-0", ""),
                ("vda/mq/0/x", ""),
                ("vda/diskseq", "7\n"),
                ("vda/holders/dm-3", ""),
            ],
        );
        let target = "devices/host1/rport-1:0-3/target1:0:3/1:0:3:7";
        tree.write(&format!("{target}/state"), b"running\n");
        symlink(tree.0.join(target), tree.0.join("block/sda/device")).unwrap();
        let devices = scan_all(&tree);
        assert_eq!(devices[0].path, path("dm-3", "fc", "1:0:3:7", "live"));
        assert_eq!(devices[0].path_of, None, "not a hidden NVMe path");
        assert_eq!(devices[1].path, None, "only below LVM");
        assert_eq!(devices[2].path, path("dm-3", "", "", "unknown"));
        for word in ["offline", "transport-offline", "blocked"] {
            tree.write(&format!("{target}/state"), format!("{word}\n").as_bytes());
            assert_eq!(state(&tree.0, "sda"), word);
        }
        // It is now a path of another device.
        tree.write("block/dm-4/dm/uuid", b"mpath-3600a098039\n");
        fs::remove_file(tree.0.join("block/sda/holders/dm-3")).unwrap();
        tree.write("block/sda/holders/dm-4", b"");
        let again = scan(&tree.0, IdKind::Diskseq, |id| devices.iter().find(|device| device.id == id));
        assert_eq!(again.unwrap()[0].path, path("dm-4", "fc", "1:0:3:7", "blocked"));
    }
}
