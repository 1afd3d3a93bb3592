//! Mounted file systems by block device, according to `/proc/self/mountinfo`. In a container, this process's mount namespace
//! shows hardly any of the host's mounts.
//!
//! Format: <https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html>

use std::{collections::BTreeMap, fs, io, path::Path};

use biolat_system::host::Host;

use super::sysfs::{clean, is_shortage};

/// Kind and name of the file system on each block device.
#[derive(Default)]
pub(super) struct Mounts(BTreeMap<String, (&'static str, String)>);

const PERSISTENT_VOLUME: &str = "persistent_volume";

impl Mounts {
    /// Reads the mounts, or returns none if they cannot be read. Fails only if this process runs out of resources.
    pub(super) fn read(host: &Host) -> io::Result<Self> {
        match fs::read(host.procfs.join("self/mountinfo")) {
            Ok(text) => Ok(Self::parse(&String::from_utf8_lossy(&text), &host.sysfs)),
            Err(error) if is_shortage(&error) => Err(error),
            Err(_) => Ok(Self::default()),
        }
    }

    /// Parses mountinfo. If a file system is mounted several times, a persistent volume takes precedence, then the first mount.
    fn parse(text: &str, sysfs: &Path) -> Self {
        let mut mounts = Self::default();
        let mut names = BTreeMap::new();
        for mount in text.lines().filter_map(Mount::parse).filter(Mount::is_whole) {
            let device = match mount.source.strip_prefix("/dev/") {
                // An anonymous device number (btrfs), which belongs to no device.
                Some(source) if mount.number.starts_with("0:") => Some(source.to_owned()),
                _ => names.entry(mount.number).or_insert_with(|| block_device(sysfs, mount.number)).clone(),
            };
            let Some(device) = device else { continue };
            let point = unescaped(mount.point);
            let found = match persistent_volume(&point) {
                Some(volume) => (PERSISTENT_VOLUME, clean(volume)),
                None => ("mount", clean(&point)),
            };
            let known = mounts.0.entry(device).or_insert_with(|| found.clone());
            if known.0 != PERSISTENT_VOLUME && found.0 == PERSISTENT_VOLUME {
                *known = found;
            }
        }
        mounts
    }

    /// Returns the file system on a block device, found by kernel name or, for a dm device, by its name in `/dev/mapper`.
    pub(super) fn of(&self, device: &str, mapped: &str) -> Option<(&'static str, &str)> {
        let by_mapper = || self.0.get(&format!("mapper/{mapped}"));
        let (kind, name) = self.0.get(device).or_else(by_mapper)?;
        Some((kind, name))
    }
}

/// A line of mountinfo. Its texts are escaped.
pub(super) struct Mount<'a> {
    /// `major:minor`
    pub(super) number: &'a str,
    /// The directory of the file system that is mounted.
    pub(super) root: &'a str,
    pub(super) point: &'a str,
    source: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(2);
        let (number, root, point) = (mount.next()?, mount.next()?, mount.next()?);
        let mut file_system = file_system.split(' ').skip(1);
        let (source, options) = (file_system.next()?, file_system.next()?);
        Some(Self { number, root, point, source, options })
    }

    /// Whether it is a whole file system or a whole subvolume. Bind mounts of parts do not count: in a container, they are host
    /// files.
    fn is_whole(&self) -> bool {
        let mut options = self.options.split(',');
        self.root == "/" || options.any(|option| option.strip_prefix("subvol=") == Some(self.root))
    }
}

/// Returns the kernel name of the block device with this number.
fn block_device(sysfs: &Path, number: &str) -> Option<String> {
    let link = fs::read_link(sysfs.join("dev/block").join(number)).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

/// Returns the name of a persistent volume, from the place where the kubelet mounts it for a pod:
/// `/var/lib/kubelet/pods/<uid>/volumes/kubernetes.io~csi/<name>/mount`.
fn persistent_volume(point: &str) -> Option<&str> {
    let (_, volume) = point.split_once("/pods/")?.1.split_once("/volumes/kubernetes.io~")?;
    volume.split('/').nth(1).filter(|name| !name.is_empty())
}

/// Decodes octal escapes, such as `\040` for a space.
pub(super) fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => {
                result.push(char::from(code));
                result.push_str(&part[3..]);
            }
            None => result.extend(["\\", part]),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use biolat_testing::Tree;
    use proptest::prelude::*;

    use super::{Mounts, unescaped};

    const HOST: &str = r"22 1 253:0 / / rw,relatime shared:1 - xfs /dev/mapper/vg-root rw,attr2
23 22 0:21 / /sys rw,nosuid - sysfs sysfs rw
30 22 8:1 / /boot rw,relatime shared:40 master:2 - ext4 /dev/sda1 rw
31 22 253:0 /var/tmp /srv/tmp rw - xfs /dev/mapper/vg-root rw
32 22 253:0 / /again rw - xfs /dev/mapper/vg-root rw
33 22 8:2 / /mnt/two\040words rw - ext4 /dev/sda2 rw
40 22 0:44 /@ /data rw - btrfs /dev/mapper/data rw,ssd,subvolid=256,subvol=/@
41 22 0:45 / /pool rw - btrfs /dev/sdb rw,subvolid=5,subvol=/
50 22 8:48 / /var/lib/kubelet/plugins/kubernetes.io/csi/x/globalmount rw - ext4 /dev/sdd rw
51 22 8:48 / /var/lib/kubelet/pods/01-23/volumes/kubernetes.io~csi/pvc-7/mount rw - ext4 /dev/sdd rw
52 22 8:48 / /elsewhere rw - ext4 /dev/sdd rw
";

    fn mounts(name: &str, text: &str) -> Mounts {
        let tree = Tree::new(name, &[]);
        fs::create_dir_all(tree.0.join("dev/block")).unwrap();
        for (number, device) in [("8:1", "sda1"), ("8:2", "sda2"), ("8:48", "sdd"), ("253:0", "dm-0")] {
            symlink(format!("../../devices/x/{device}"), tree.0.join("dev/block").join(number)).unwrap();
        }
        Mounts::parse(text, &tree.0)
    }

    #[test]
    fn finds_first_mount_of_each_device() {
        let found = mounts("mounts", HOST);
        assert_eq!(found.of("dm-0", "vg-root"), Some(("mount", "/")));
        assert_eq!(found.of("sda1", ""), Some(("mount", "/boot")));
        assert_eq!(found.of("sda2", ""), Some(("mount", "/mnt/two words")));
        assert_eq!(found.of("dm-7", "data"), Some(("mount", "/data")), "btrfs has no device number");
        assert_eq!(found.of("sdb", ""), Some(("mount", "/pool")));
        assert_eq!(found.of("sdd", ""), Some(("persistent_volume", "pvc-7")));
        assert_eq!(found.of("sdc", ""), None);
    }

    /// Host files that are bind-mounted into a container.
    #[test]
    fn ignores_bind_mounts_in_containers() {
        let container = r"60 50 0:90 / / rw - overlay overlay rw,lowerdir=/a,upperdir=/b
61 60 8:1 /var/lib/kubelet/pods/01-23/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw
62 60 8:1 /var/log/containers /var/log/containers ro - ext4 /dev/sda1 rw
63 60 0:44 /@/var/lib/x /etc/resolv.conf rw - btrfs /dev/sda2 rw,subvol=/@
";
        assert!(mounts("container", container).0.is_empty());
    }

    #[test]
    fn decodes_octal_escapes() {
        assert_eq!(unescaped(r"a\040b\134c"), r"a b\c");
        assert_eq!(unescaped(r"\x\9\"), r"\x\9\");
    }

    proptest! {
        #[test]
        fn parses_any_text_without_panic(text in r"([0-9]{1,2}|0:44|8:1|/|/@|subvol=/@|/dev/sda|\\[0-7]{0,3}| - |.| |\n){0,60}") {
            let _ = mounts("any-mounts", &text);
            let _ = unescaped(&text);
        }
    }
}
