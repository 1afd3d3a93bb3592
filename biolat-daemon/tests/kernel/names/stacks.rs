//! Names through dm and md: the drive's I/O leads to the file on the volume.

use super::{Load, check_file_system, slow_disk};
use crate::support::{
    dm::Mapped,
    kernel::{self, Ability},
    md::Array,
    run,
};

const SECTORS: u64 = 256 << 11;

/// Without BTF of modules, only pages of the page cache lead to a file, if the volume passes them on.
fn sees_through_modules(load: &Load) -> bool {
    kernel::has(Ability::ModuleTypes) || !load.label.starts_with("direct") && !load.label.contains("write")
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_through_logical_volume() {
    let disk = slow_disk();
    let volume = Mapped::create("names", &format!("0 {SECTORS} linear /dev/{} 0", disk.name));
    check_file_system("ext4", &volume.name, "ext4 on dm-linear", sees_through_modules);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_through_encryption() {
    run("modprobe", &["dm-crypt"]);
    let disk = slow_disk();
    let key = "00112233445566778899aabbccddeeff".repeat(2);
    let table = format!("0 {SECTORS} crypt aes-xts-plain64 {key} 0 /dev/{} 0", disk.name);
    let volume = Mapped::create("names", &table);
    check_file_system("ext4", &volume.name, "ext4 on dm-crypt", sees_through_modules);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_through_mirror() {
    let legs = [slow_disk(), slow_disk()];
    let _mirror = Array::create(1, &legs);
    check_file_system("xfs", "md0", "xfs on md raid1", sees_through_modules);
}
