//! Mount points by the device number of the file system, according to `/proc/self/mountinfo`.

use std::{collections::HashMap, fs};

use biolat_system::host::Host;

use super::mounts::{Mount, unescaped};

/// A mount point, and the directory of the file system that is mounted there.
type MountPoint = (String, String);

/// The mount points of this process's mount namespace.
#[derive(Default)]
pub(crate) struct MountPoints(HashMap<u32, Vec<MountPoint>>);

impl MountPoints {
    /// Reads the mount points; none if they cannot be read.
    pub(crate) fn read(host: &Host) -> Self {
        let text = fs::read(host.procfs.join("self/mountinfo")).unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> Self {
        let mut points: HashMap<u32, Vec<MountPoint>> = HashMap::new();
        for mount in text.lines().filter_map(Mount::parse) {
            if let Some(device) = device(mount.number) {
                let root = unescaped(mount.root.trim_end_matches('/'));
                points.entry(device).or_default().push((unescaped(mount.point), root));
            }
        }
        Self(points)
    }

    /// Whether a file system on this device is mounted.
    pub(crate) fn has(&self, device: u32) -> bool {
        self.0.contains_key(&device)
    }

    /// Returns where a path of a file system is mounted, and the part of the path that the mount point replaces. A mount of the
    /// whole file system takes precedence.
    pub(crate) fn of(&self, device: u32, path: &str) -> Option<MountPoint> {
        let contains =
            |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let points = self.0.get(&device)?.iter().filter(|(_, root)| contains(root));
        points.min_by_key(|(_, root)| root.len()).cloned()
    }
}

/// The kernel's number of a device: 20 bits of minor number.
fn device(number: &str) -> Option<u32> {
    let (major, minor) = number.split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::MountPoints;

    const MOUNTS: &str = r"22 1 253:0 / / rw,relatime shared:1 - xfs /dev/mapper/vg-root rw,attr2
31 22 253:0 /var/tmp /srv/tmp rw - xfs /dev/mapper/vg-root rw
33 22 8:2 / /mnt/two\040words rw - ext4 /dev/sda2 rw
40 22 0:44 /@ /data rw - btrfs /dev/mapper/data rw,ssd,subvolid=256,subvol=/@
41 22 8:16 /pods/a /var/lib/a rw - ext4 /dev/sdb rw
";

    #[test]
    fn finds_mount_point_of_path() {
        let mounts = MountPoints::parse(MOUNTS);
        let of = |major: u32, minor, path| {
            let (point, root) = mounts.of(major << 20 | minor, path)?;
            Some(format!("{point} without {root}"))
        };
        assert_eq!(of(253, 0, "/var/tmp/x").as_deref(), Some("/ without "));
        assert_eq!(of(8, 2, "/x").as_deref(), Some("/mnt/two words without "));
        assert_eq!(of(0, 44, "/@/x").as_deref(), Some("/data without /@"));
        assert_eq!(of(0, 44, "/@other/x"), None);
        assert_eq!(of(8, 16, "/pods/ab/x"), None);
        assert_eq!(of(8, 16, "/pods/a/x").as_deref(), Some("/var/lib/a without /pods/a"));
        assert_eq!(of(8, 17, "/x"), None);
        assert!(mounts.has(8 << 20 | 16) && !mounts.has(8 << 20));
    }
}
