//! Mounted file systems and persistent volumes by block device, according to `/proc/self/mountinfo`. In a container, this
//! process's mount namespace shows hardly any of the host's mounts, unless the kubelet's directories are mounted there.
//!
//! Format: <https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html>

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use biolat_model::device::Holder;
use biolat_system::host::Host;

use super::sysfs::{clean, is_shortage};

/// What is mounted of each block device.
#[derive(Default)]
pub(super) struct Mounts(BTreeMap<String, Mounted>);

#[derive(Default)]
struct Mounted {
    /// The first mount of the whole file system that is not a persistent volume.
    point: Option<String>,
    volumes: BTreeSet<String>,
    /// Whether a volume is the whole device, so that other mounts are the kubelet's own.
    is_volume: bool,
}

impl Mounts {
    /// Reads the mounts, or returns none if they cannot be read. Fails only if this process runs out of resources.
    pub(super) fn read(host: &Host) -> io::Result<Self> {
        match fs::read(host.procfs.join("self/mountinfo")) {
            Ok(text) => Ok(Self::parse(&String::from_utf8_lossy(&text), &host.sysfs)),
            Err(error) if is_shortage(&error) => Err(error),
            Err(_) => Ok(Self::default()),
        }
    }

    fn parse(text: &str, sysfs: &Path) -> Self {
        let mut mounts = Self::default();
        let mut names = BTreeMap::new();
        for mount in text.lines().filter_map(Mount::parse) {
            let point = unescaped(mount.point);
            if let Some(volume) = raw_volume(&point) {
                let mounted = mounts.0.entry(mount.device_node()).or_default();
                mounted.volumes.insert(clean(volume));
                mounted.is_volume = true;
                continue;
            }
            let volume = persistent_volume(&point);
            if volume.is_none() && !mount.is_whole() {
                continue;
            }
            let device = match mount.source.strip_prefix("/dev/") {
                // An anonymous device number (btrfs), which belongs to no device.
                Some(source) if mount.number.starts_with("0:") => Some(source.to_owned()),
                _ => names.entry(mount.number).or_insert_with(|| block_device(sysfs, mount.number)).clone(),
            };
            let Some(device) = device else { continue };
            let mounted = mounts.0.entry(device).or_default();
            match volume {
                Some(volume) => {
                    mounted.volumes.insert(clean(volume));
                    mounted.is_volume |= mount.is_whole();
                }
                None => _ = mounted.point.get_or_insert_with(|| clean(&point)),
            }
        }
        mounts
    }

    /// Returns kind and name of what is mounted of a block device, found by kernel name or, for a dm device, by its name in
    /// `/dev/mapper`: its persistent volumes, and the file system unless it is one of them.
    pub(super) fn of(&self, device: &str, mapped: &str) -> impl Iterator<Item = (&'static str, &str)> {
        let by_mapper = || self.0.get(&format!("mapper/{mapped}"));
        let mounted = self.0.get(device).or_else(by_mapper);
        let point = mounted.filter(|mounted| !mounted.is_volume).and_then(|mounted| mounted.point.as_deref());
        let volumes = mounted.into_iter().flat_map(|mounted| &mounted.volumes);
        let volumes = volumes.map(|name| (Holder::PERSISTENT_VOLUME, &**name));
        point.map(|point| ("mount", point)).into_iter().chain(volumes)
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

    /// Returns the kernel name of the device whose node in a `/dev` is mounted.
    fn device_node(&self) -> String {
        unescaped(self.root).trim_start_matches('/').replace('/', "!")
    }

    /// Whether it is a whole file system or a whole subvolume. In a container, bind mounts of parts are host files.
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
/// `/var/lib/kubelet/pods/<uid>/volumes/kubernetes.io~csi/<name>/mount`. A local volume can be a directory of a file system.
fn persistent_volume(point: &str) -> Option<&str> {
    let (_, volume) = point.split_once("/pods/")?.1.split_once("/volumes/kubernetes.io~")?;
    volume.split('/').nth(1).filter(|name| !name.is_empty())
}

/// Returns the name of a persistent volume that is a raw block device, from the places where the kubelet and CSI drivers
/// bind-mount the device's node, with the pod's UID as the file's name:
///
/// - `/var/lib/kubelet/plugins/kubernetes.io~local-volume/volumeDevices/<name>/<uid>`
/// - `/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/<name>/dev/<uid>`
/// - `/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/<name>/<uid>`, and the same below `staging`
///
/// Those of iSCSI and Fibre Channel do not contain the volume's name.
/// <https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/volume/csi/csi_block.go>
fn raw_volume(point: &str) -> Option<&str> {
    let (_, plugin) = point.split_once("/plugins/kubernetes.io")?;
    let volume = match plugin.strip_prefix("/csi/volumeDevices/") {
        Some(volume) => {
            ["publish/", "staging/"].iter().find_map(|folder| volume.strip_prefix(folder)).unwrap_or(volume)
        }
        None => plugin.strip_prefix("~local-volume/volumeDevices/")?,
    };
    volume.split('/').next().filter(|name| !name.is_empty())
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
53 22 8:1 /disks/a /var/lib/kubelet/pods/01-24/volumes/kubernetes.io~local-volume/pv-b rw - ext4 /dev/sda1 rw
54 22 8:1 /disks/b /var/lib/kubelet/pods/01-25/volumes/kubernetes.io~local-volume/pv-a rw - ext4 /dev/sda1 rw
55 22 8:1 /disks/b /var/lib/kubelet/pods/01-26/volumes/kubernetes.io~local-volume/pv-a rw - ext4 /dev/sda1 rw
56 22 0:50 / /var/lib/kubelet/pods/01-26/volumes/kubernetes.io~secret/password rw - tmpfs tmpfs rw
60 22 0:6 /sde /var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-8/01-23 rw - devtmpfs udev rw
61 22 0:6 /sde /var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-8/dev/01-23 rw - devtmpfs udev rw
62 22 0:6 /dm-3 /var/lib/kubelet/plugins/kubernetes.io~local-volume/volumeDevices/pv-lvm/01-23 rw - devtmpfs udev rw
63 22 0:6 /cciss/c0d0 /var/lib/kubelet/plugins/kubernetes.io~local-volume/volumeDevices/pv-9/01-23 rw - devtmpfs udev rw
64 22 0:6 /sdf /var/lib/kubelet/plugins/kubernetes.io/iscsi/volumeDevices/iface-default/x-lun-0/01-23 rw - devtmpfs udev rw
";

    fn mounts(name: &str, text: &str) -> Mounts {
        let tree = Tree::new(name, &[]);
        fs::create_dir_all(tree.0.join("dev/block")).unwrap();
        for (number, device) in [("8:1", "sda1"), ("8:2", "sda2"), ("8:48", "sdd"), ("253:0", "dm-0")] {
            symlink(format!("../../devices/x/{device}"), tree.0.join("dev/block").join(number)).unwrap();
        }
        Mounts::parse(text, &tree.0)
    }

    fn of(mounts: &Mounts, device: &str, mapped: &str) -> String {
        let text = |(kind, name): (&str, &str)| format!("{kind} {name}");
        mounts.of(device, mapped).map(text).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn finds_first_mount_and_all_volumes_of_each_device() {
        let found = mounts("mounts", HOST);
        for (device, mapped, expected) in [
            ("dm-0", "vg-root", "mount /"),
            ("sda1", "", "mount /boot, persistent_volume pv-a, persistent_volume pv-b"),
            ("sda2", "", "mount /mnt/two words"),
            // btrfs has no device number.
            ("dm-7", "data", "mount /data"),
            ("sdb", "", "mount /pool"),
            ("sdd", "", "persistent_volume pvc-7"),
            ("sde", "", "persistent_volume pvc-8"),
            ("dm-3", "vg-raw", "persistent_volume pv-lvm"),
            ("cciss!c0d0", "", "persistent_volume pv-9"),
            ("sdf", "", ""),
            ("sdc", "", ""),
        ] {
            assert_eq!(of(&found, device, mapped), expected, "{device}");
        }
    }

    /// The kubelet's directories, mounted into a container.
    #[test]
    fn finds_volumes_in_containers() {
        let container = r"60 50 0:90 / / rw - overlay overlay rw,lowerdir=/a,upperdir=/b
61 60 8:1 /var/lib/kubelet/pods /var/lib/kubelet/pods ro master:1 - ext4 /dev/sda1 rw
62 60 8:48 / /var/lib/kubelet/pods/01-23/volumes/kubernetes.io~csi/pvc-7/mount rw master:2 - ext4 /dev/sdd rw
63 60 8:1 /var/lib/kubelet/plugins /var/lib/kubelet/plugins ro master:1 - ext4 /dev/sda1 rw
64 60 0:6 /sde /var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-8/01-23 rw - devtmpfs udev rw
";
        let found = mounts("volumes-in-container", container);
        assert_eq!(of(&found, "sda1", ""), "");
        assert_eq!(of(&found, "sdd", ""), "persistent_volume pvc-7");
        assert_eq!(of(&found, "sde", ""), "persistent_volume pvc-8");
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
        fn parses_any_text_without_panic(text in r"([0-9]{1,2}|0:44|8:1|/|/@|subvol=/@|/dev/sda|/pods/|/volumes/kubernetes.io~|/plugins/kubernetes.io/csi/volumeDevices/|\\[0-7]{0,3}| - |.| |\n){0,60}") {
            let _ = mounts("any-mounts", &text);
            let _ = unescaped(&text);
        }
    }
}
