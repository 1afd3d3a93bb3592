//! The image, by those who run it: podman as a person starts it, and runc with what Kubernetes asks for.

mod drive;
mod podman;
mod runc;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{
    folder::make_empty,
    host::Requirement,
    process::{output, root, run},
};
use drive::Drive;
use podman::Podman;
use runc::{PRIVILEGE_CASES, RuncContainer};

pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::Root,
    Requirement::Btf,
    Requirement::Loop,
    Requirement::CargoDeb,
    Requirement::Program("curl", "curl"),
    Requirement::Program("dd", "coreutils"),
    Requirement::Program("getcap", "libcap2-bin"),
    Requirement::Program("ip", "iproute2"),
    Requirement::Program("iptables", "iptables"),
    Requirement::Program("losetup", "mount"),
    Requirement::Program("nsenter", "util-linux"),
    Requirement::Program("podman", "podman netavark"),
    Requirement::Program("runc", "runc"),
    Requirement::Program("skopeo", "skopeo"),
    Requirement::Program("tar", "tar"),
];

/// How many requests a container is to count.
const READS: u64 = 64;

pub(super) fn check() -> Result<()> {
    let release = super::release()?;
    let image = &release.for_host()?.image;
    let folder = root().join("target/deploy/image");
    make_empty(&folder)?;
    let drive = Drive::attach(&folder)?;

    println!("the image, as a person runs it");
    let engine = Podman::load(image, &folder)?;
    let container = engine.run()?;
    counts(&drive, &mut || container.scrape())?;
    drop(container);
    engine.without_rights()?;

    let system = unpack(image, &folder)?;
    for rights in &PRIVILEGE_CASES {
        println!("the image, {}", rights.description);
        let bundle = RuncContainer::start(&folder, &system, rights)?;
        match rights.expected_error {
            None => counts(&drive, &mut || bundle.scrape())?,
            Some(line) => refused(&bundle.ended()?, line)?,
        }
    }
    drop(drive);
    Ok(fs::remove_dir_all(&folder)?)
}

/// What is read from the drive is in the container's histograms: as many requests as in the kernel's books.
fn counts(drive: &Drive, scrape: &mut dyn FnMut() -> Result<String>) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let began = Instant::now();
    let counted = loop {
        match scrape() {
            Ok(text) => break drive.count_in(&text),
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(200)),
        }
    };
    let booked = drive.books()?;
    drive.read(READS)?;
    let booked = drive.books()? - booked;
    loop {
        let more = drive.count_in(&scrape()?) - counted;
        if more == booked && more >= READS {
            println!("  {more} requests, as the kernel has booked");
            return is_small(&scrape()?);
        }
        if began.elapsed() > PATIENCE {
            bail!("{READS} requests were made, {booked} were booked and {more} counted");
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// What the daemon keeps in memory once it has begun, on a machine of few CPUs and devices.
fn is_small(metrics: &str) -> Result<()> {
    const MOST: f64 = 6.75 * 1024.0 * 1024.0;
    let resident = metrics.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
    let resident: f64 = resident.context("no process_resident_memory_bytes")?.parse()?;
    println!("  {resident} bytes of memory, at most {MOST}");
    if resident > MOST {
        bail!("it takes {resident} bytes of memory, more than {MOST}");
    }
    Ok(())
}

/// One line that says what is missing, and exit code 1.
fn refused(ended: &std::process::Output, expected: &str) -> Result<()> {
    let said = String::from_utf8_lossy(&ended.stderr);
    let said: Vec<_> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    if ended.status.code() != Some(1) || said.len() != 1 || !said[0].contains(expected) {
        bail!(
            "without its rights it ends with {} and says {said:?}, not one line with {expected:?}",
            ended.status
        );
    }
    println!("  {}", said[0]);
    Ok(())
}

/// What the image holds, in a folder, by tools that did not write it.
fn unpack(image: &Path, folder: &Path) -> Result<PathBuf> {
    let (layout, system) = (folder.join("layout"), folder.join("system"));
    // It checks every digest.
    let (from, to) = (format!("oci-archive:{}", image.display()), format!("dir:{}", layout.display()));
    run(Command::new("skopeo").args(["copy", "--quiet", &from, &to]))?;
    let manifest: Value = serde_json::from_slice(&fs::read(layout.join("manifest.json"))?)?;
    let digest = manifest["layers"][0]["digest"].as_str().unwrap_or_default();
    let layer = layout.join(digest.trim_start_matches("sha256:"));
    fs::create_dir(&system)?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--numeric-owner", "--xattrs", "--xattrs-include=security.*", "--directory"]);
    run(tar.arg(&system).arg("--file").arg(&layer))?;
    let files =
        output(Command::new("find").arg(&system).args(["-mindepth", "1", "-printf", "%P %U:%G %m\n"]))?;
    if files.trim() != "biolat-daemon 0:0 755" {
        bail!("the image is to hold the binary and nothing else, and it holds: {files}");
    }
    let granted = output(Command::new("getcap").arg(system.join("biolat-daemon")))?;
    if !granted.trim().ends_with(" cap_perfmon,cap_bpf=p") {
        bail!("the binary is to be permitted two capabilities: {granted}");
    }
    Ok(system)
}
