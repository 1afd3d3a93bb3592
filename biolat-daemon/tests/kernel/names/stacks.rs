//! Names through dm and md: the drive's I/O leads to the file on the volume.

use super::{Known, Load, check_file_system, slow_disk};
use crate::support::{
    dm::Mapped,
    kernel::{self, Ability},
    md::Array,
    run,
};

const SECTORS: u64 = 256 << 11;

/// Without BTF of modules, only pages of the page cache lead to a file, if the volume passes them on.
fn known(load: &Load) -> Known {
    let is_cached_read = !load.label.starts_with("direct") && !load.label.contains("write");
    if kernel::has(Ability::ModuleTypes) || is_cached_read { load.known() } else { Known::Nothing }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_through_logical_volume() {
    let disk = slow_disk();
    let volume = Mapped::create("names", &format!("0 {SECTORS} linear /dev/{} 0", disk.name));
    check_file_system("ext4", &volume.name, "ext4 on dm-linear", known);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_through_encryption() {
    run("modprobe", &["dm-crypt"]);
    let disk = slow_disk();
    let key = "00112233445566778899aabbccddeeff".repeat(2);
    let table = format!("0 {SECTORS} crypt aes-xts-plain64 {key} 0 /dev/{} 0", disk.name);
    let volume = Mapped::create("names", &table);
    check_file_system("ext4", &volume.name, "ext4 on dm-crypt", known);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_through_mirror() {
    let legs = [slow_disk(), slow_disk()];
    let _mirror = Array::create(1, &legs);
    check_file_system("xfs", "md0", "xfs on md raid1", known);
}
