//! Checks the systemd units in an emulated machine that boots from a drive with the installed package.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use anyhow::{Context as _, Result, bail};

use super::clean_root::CleanRoot;
use crate::{
    dist,
    folder::make_empty,
    host::Requirement,
    process::{self, find, run},
    vm,
};

pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::Root,
    Requirement::CargoDeb,
    Requirement::Program("debootstrap", "debootstrap"),
    Requirement::Program("mkfs.ext4", "e2fsprogs"),
    Requirement::Program("cpio", "cpio"),
    Requirement::Program("depmod", "kmod"),
    Requirement::Program("dpkg-deb", "dpkg"),
    Requirement::Program("busybox", "busybox-static"),
    Requirement::Program("qemu-system-x86_64", "qemu-system-x86"),
];

/// Maximum exposure level reported by `systemd-analyze security`, times ten.
const EXPOSURE: &str = "20";

/// Script that runs in the booted guest.
const CHECK: &str = include_str!("guest.sh");

const CHECK_UNIT: &str = "[Unit]
After=biolat.service
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/check
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS1
";

pub(super) fn check() -> Result<()> {
    let root = CleanRoot::new("systemd")?;
    let package = dist::release()?.for_host()?.package()?;
    root.install(package)?;
    fs::copy(package, root.path("/var/tmp/package.deb"))?;
    write_newer(package, &root.path("/var/tmp/newer.deb"))?;
    run(&mut root.command("systemd-analyze", &["verify", "biolat.service", "biolat.socket"]))?;
    let security = ["security", "--offline=yes", "--no-pager", "--threshold", EXPOSURE, "biolat.service"];
    let analyzed = root.command("systemd-analyze", &security).output()?;
    let table = String::from_utf8_lossy(&analyzed.stdout);
    if !analyzed.status.success() {
        bail!("the unit is not sandboxed enough:\n{table}");
    }
    println!("{}", table.lines().next_back().unwrap_or_default());
    boot(&root)
}

/// Boots the system. The guest prints `ok` or `not ok` for each expectation.
fn boot(root: &CleanRoot) -> Result<()> {
    write_check(root)?;
    let folder = process::root().join("target/deploy/boot");
    make_empty(&folder)?;
    write_drive(root, &folder)?;
    let (mut passed, mut failed) = (0, Vec::new());
    vm::boot_drive(&folder, |line| {
        println!("  | {line}");
        passed += usize::from(line.starts_with("ok "));
        failed.extend(line.strip_prefix("not ok ").map(str::to_owned));
    })?;
    let expected = CHECK.lines().filter(|line| line.starts_with("expect ")).count();
    if !failed.is_empty() {
        bail!("failed in the booted system: {}", failed.join("; "));
    }
    if passed != expected {
        bail!("the guest reported {passed} of {expected} expectations");
    }
    Ok(())
}

/// Writes a copy of the package with a higher version, to test an upgrade.
fn write_newer(package: &Path, newer: &Path) -> Result<()> {
    let folder = process::root().join("target/deploy/newer");
    make_empty(&folder)?;
    run(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(&folder))?;
    let control = folder.join("DEBIAN/control");
    let fields = fs::read_to_string(&control)?;
    let raised = fields.lines().map(|field| match field.strip_prefix("Version: ") {
        Some(version) => format!("Version: {version}.1\n"),
        None => format!("{field}\n"),
    });
    fs::write(&control, raised.collect::<String>())?;
    run(Command::new("dpkg-deb").args(["--root-owner-group", "-Znone", "--build"]).arg(&folder).arg(newer))
}

fn write_check(root: &CleanRoot) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let script = root.path("/usr/local/sbin/check");
    fs::write(&script, CHECK)?;
    fs::set_permissions(script, fs::Permissions::from_mode(0o755))?;
    let units = root.path("/etc/systemd/system");
    fs::write(units.join("check.service"), CHECK_UNIT)?;
    fs::create_dir_all(units.join("multi-user.target.wants"))?;
    Ok(symlink("../check.service", units.join("multi-user.target.wants/check.service"))?)
}

/// Creates a drive image that contains the system.
fn write_drive(root: &CleanRoot, folder: &Path) -> Result<()> {
    let drive = folder.join(vm::DRIVE);
    let mkfs = find("mkfs.ext4").context("no mkfs.ext4: apt-get install e2fsprogs")?;
    run(Command::new(mkfs).args(["-q", "-d"]).arg(root.path("/")).arg(&drive).arg("1G"))
}
