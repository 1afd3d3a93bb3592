//! Stacked devices: the I/O of volumes, which have no requests, is counted on the drives below them.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{
    preemption::attach_understudy,
    support::{
        Folder, block,
        cgroup::Hierarchy,
        daemon::{Daemon, wait_for},
        diskstats::{READ, WRITE},
        dm::Mapped,
        kubelet::Kubelet,
        load::{self, READS, Target},
        md::Array,
        mount::{self, Mount},
        null_blk::NullBlk,
        run,
        settled::{Moment, compare, settled},
    },
};

const SECTORS: u64 = 256 << 11;

fn lower_disk() -> NullBlk {
    NullBlk::in_memory(&[("submit_queues", "2"), ("cache_size", "8")])
}

/// Puts load on a bio-based device: its I/O is counted on the devices below it, and only there.
fn check_bio_based(above: &str, below: &[&NullBlk]) {
    let daemon = Daemon::of(".*");
    let before: Vec<_> = below.iter().map(|device| settled(&daemon, &device.name)).collect();
    load::mixed(&block::path(above));
    let mut reads = 0;
    for (device, before) in below.iter().zip(&before) {
        let after = settled(&daemon, &device.name);
        let growth = compare(&device.name, before, &after);
        assert_eq!(growth.missed, 0);
        assert!(growth.of(WRITE) > 0);
        reads += growth.of(READ);
        assert!(after.figures.histogram("total", above, "read").is_none());
        let holder = [("device", device.name.as_str()), ("holder", above), ("depth", "1")];
        assert_eq!(after.figures.value("biolat_device_holder_info", &holder), 1.0);
    }
    // The upper layer may also read its superblock.
    assert!((READS..READS + 16).contains(&reads), "{reads} reads, expected {READS}");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn dm_linear_counts_on_its_disk() {
    let disk = lower_disk();
    let mapped = Mapped::create("line", &format!("0 {SECTORS} linear /dev/{} 0", disk.name));
    check_bio_based(&mapped.name, &[&disk]);
}

/// Returns the label values of the holders that have these labels.
fn holders(daemon: &Daemon, labels: &[(&str, &str)]) -> Vec<String> {
    let figures = daemon.fresh();
    let metrics = figures.metrics("biolat_device_holder_info", labels).into_iter();
    let values =
        metrics.map(|metric| metric.label.iter().map(|label| label.value.as_str()).collect::<Vec<_>>());
    let mut found: Vec<_> = values.map(|values| values.join(" ")).collect();
    found.sort();
    found
}

/// Two volumes with file systems on an encrypted device, with ids as cryptsetup and LVM assign them. The daemon finds them while
/// it runs.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn device_shows_its_whole_stack() {
    let disk = lower_disk();
    let daemon = Daemon::of("nullb.*");
    let holders = || holders(&daemon, &[("device", &disk.name)]);
    assert!(holders().is_empty(), "{:?}", holders());
    let name = disk.name.as_str();
    let linear = |name: &str, from: u64| format!("0 {} linear /dev/{name} {from}", SECTORS / 2);
    let whole = format!("0 {SECTORS} linear /dev/{name} 0");
    let secret = Mapped::with_uuid("secret", "CRYPT-LUKS2-0123-secret", &whole);
    let root = Mapped::with_uuid("vg-root", "LVM-0123", &linear(&secret.name, 0));
    let data = Mapped::with_uuid("vg-data", "LVM-4567", &linear(&secret.name, SECTORS / 2));
    let mut expected = [
        format!("{name} {} crypt secret 1", secret.name),
        format!("{name} {} lvm vg-root 2", root.name),
        format!("{name} {} lvm vg-data 2", data.name),
    ];
    expected.sort();
    wait_for("the holders", || holders() == expected);
    let mount = Mount::new_ext4("stack", &block::path(&data.name));
    // The next scan finds mounts; any disk uevent triggers one.
    fs::write(format!("/sys/block/{name}/uevent"), "change").unwrap();
    let mounted = format!("{name} {} mount {} 3", data.name, mount.place());
    wait_for("the mount", || holders().contains(&mounted));
    drop(mount);
    drop((root, data));
    wait_for("the volumes to go", || holders() == [format!("{name} {} crypt secret 1", secret.name)]);
}

/// A daemon like the chart's pod names persistent volumes that are mounted after its start, also of a file system on LVM, of
/// directories of one file system, and of a raw block device.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn device_shows_persistent_volumes() {
    let (disk, shared, raw) = (lower_disk(), lower_disk(), lower_disk());
    let kubelet = Kubelet::new();
    kubelet.assert_unreadable();
    let folder = Folder::new("volumes", true);
    let daemon = kubelet.daemon(&folder, "nullb.*");
    let volumes = |disk: &NullBlk| {
        // Any disk uevent triggers a scan.
        fs::write(format!("/sys/block/{}/uevent", disk.name), "change").unwrap();
        holders(&daemon, &[("device", &disk.name), ("kind", "persistent_volume")])
    };
    assert!([&disk, &shared, &raw].iter().all(|disk| volumes(disk).is_empty()));

    let lvm = Mapped::with_uuid("vg-data", "LVM-0123", &format!("0 {SECTORS} linear /dev/{} 0", disk.name));
    mount::make("ext4", &block::path(&lvm.name));
    let mounted = Mount::new_ext4("volumes", &block::path(&shared.name));
    let directories = ["a", "b"].map(|name| {
        let path = Path::new(mounted.place()).join(name);
        fs::create_dir(&path).unwrap();
        path
    });
    let pods = [
        kubelet.mount("pv-lvm", &["-t", "ext4"], &block::path(&lvm.name)),
        kubelet.mount("pv-a", &["-o", "bind"], &directories[0]),
        kubelet.mount("pv-b", &["-o", "bind"], &directories[1]),
        kubelet.mount_raw("pv-raw", &block::path(&raw.name)),
    ];
    let on = |disk: &NullBlk, name: &str| format!("{0} {0} persistent_volume {name} 1", disk.name);
    let on_lvm = format!("{} {} persistent_volume pv-lvm 2", disk.name, lvm.name);
    wait_for("the volume on LVM", || volumes(&disk) == [&*on_lvm]);
    wait_for("both directories", || volumes(&shared) == [on(&shared, "pv-a"), on(&shared, "pv-b")]);
    wait_for("the raw volume", || volumes(&raw) == [on(&raw, "pv-raw")]);

    drop(pods);
    wait_for("the volumes to go", || [&disk, &shared, &raw].iter().all(|disk| volumes(disk).is_empty()));
}

/// I/O on the lower disk is attributed to the cgroup that uses the upper device.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn dm_preserves_cgroup() {
    let disk = lower_disk();
    let mapped = Mapped::create("line", &format!("0 {SECTORS} linear /dev/{} 0", disk.name));
    let hierarchy = Hierarchy::open();
    let cgroup = hierarchy.create("/biolat-above");
    let daemon = Daemon::of(".*");
    let path = block::path(&mapped.name);
    cgroup.run(&format!("dd if=/dev/zero of={} bs=4096 count=200 oflag=direct", path.display()));
    let after = settled(&daemon, &disk.name);
    assert_eq!(after.figures.workload_ios(&disk.name, "write", &cgroup.path), 200);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn dm_delay_is_not_in_disk_latency() {
    let disk = lower_disk();
    let table = format!("0 {SECTORS} delay /dev/{} 0 50", disk.name);
    let mapped = Mapped::create("late", &table);
    let daemon = Daemon::of(".*");
    let before = settled(&daemon, &disk.name);
    Target::open(&block::path(&mapped.name)).read(40);
    let after = settled(&daemon, &disk.name);
    let growth = compare(&disk.name, &before, &after);
    assert_eq!(growth.of(READ), 40);
    // dm delays I/O before the request is allocated; including the delay, this would be 2 s.
    let seconds = growth.seconds("total", "read");
    assert!(seconds < 0.4, "{seconds} s");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn md_raid1_counts_on_both_disks() {
    let legs = [lower_disk(), lower_disk()];
    let _md = Array::create(1, &legs);
    check_bio_based("md0", &legs.each_ref());
}

/// dm-multipath is request-based: its requests reach the tracepoint twice, and it sends clones of them to its paths. If one of
/// these completions interrupts the probe on the same CPU, the understudy counts it.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn dm_multipath_request_counts_once() {
    for module in ["dm-multipath", "dm-round-robin"] {
        run("modprobe", &[module]);
    }
    let path = lower_disk();
    let table = format!("0 {SECTORS} multipath 0 0 1 1 round-robin 0 1 1 /dev/{} 1", path.name);
    let mapped = Mapped::create("paths", &table);
    let daemon = Daemon::of(".*");
    attach_understudy(&daemon);
    let before = [&mapped.name, &path.name].map(|name| settled(&daemon, name));
    load::mixed(&block::path(&mapped.name));
    let after = [&mapped.name, &path.name].map(|name| settled(&daemon, name));
    let growth = compare(&mapped.name, &before[0], &after[0]);
    assert_eq!((growth.of(READ), growth.missed), (READS, 0));
    // Among the clones, only reads are plain requests.
    let reads = |moment: &Moment| moment.figures.latencies("total", &path.name, "read");
    println!("{}: {:?}", mapped.name, growth.completions);
    assert_eq!(reads(&after[1]) - reads(&before[1]), READS, "clones");
    assert_eq!(after[1].figures.missed(&path.name), 0, "the path is not audited");
}

/// Exactly the machine's request-based devices are drives.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn drives_are_request_based() {
    let disk = lower_disk();
    let mapped = Mapped::create("line", &format!("0 {SECTORS} linear /dev/{} 0", disk.name));
    let daemon = Daemon::of(".*");
    let figures = daemon.fresh();
    let shown: BTreeSet<_> = figures
        .metrics("biolat_device_info", &[("kind", "drive")])
        .into_iter()
        .map(|metric| metric.label.iter().find(|label| label.name == "device").unwrap().value.clone())
        .collect();
    // The machine's drives: two NVMe namespaces on one controller, one on another, one in a hot-plug slot, two paths, one virtio
    // disk and three SCSI disks.
    let nvme = |serial| block::devices_with("device/serial", serial);
    let is_head = |name: &String| block::attribute(name, "hidden") == "0";
    let expected: BTreeSet<_> = nvme("twins")
        .into_iter()
        .chain(nvme("solo"))
        .chain(nvme("first").into_iter().chain(nvme("second")))
        .chain(nvme("pair").into_iter().filter(|name| !is_head(name)))
        .chain(["QEMU HARDDISK", "pinned", "calm"].map(|model| block::device_with("device/model", model)))
        .chain(["vda".to_owned(), disk.name.clone()])
        .collect();
    assert_eq!(expected.len(), 11, "{expected:?}");
    assert_eq!(shown, expected, "{} is a volume", mapped.name);
    let label =
        |device: &str, label| figures.label("biolat_device_info", &[("device", device)], label).unwrap();
    let solo = &nvme("solo")[0];
    assert_eq!([label(solo, "transport"), label("vda", "transport")], ["pcie", "virtio"]);
    assert_eq!(label(solo, "firmware"), block::attribute(solo, "device/firmware_rev"));
    assert!(!label(solo, "firmware").is_empty() && !label("vda", "scheduler").is_empty());
}
