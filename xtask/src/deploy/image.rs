//! Checks the container image: runs it in podman as a user would, and in runc with the privileges that Kubernetes grants. For the
//! other architecture, checks only the image's content.

mod bpf_folder;
mod container;
mod drive;
mod podman;
mod runc;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::{
    dist::{self, Artifacts},
    folder::make_empty,
    host::Requirement,
    process::{output, root, run},
    static_build::Architecture,
    static_build::PROGRAMS,
};
use bpf_folder::BpfFolder;
use container::Container;
use drive::Drive;
use podman::Podman;
use runc::{KEEPING, PRIVILEGE_CASES, RuncContainer, START_TIMEOUT};

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

/// Number of requests that a check makes.
const READS: u64 = 64;

pub(super) fn check() -> Result<()> {
    let release = dist::release()?;
    let folder = root().join("target/deploy/image");
    make_empty(&folder)?;
    for artifacts in &release.artifacts {
        println!("the image for {}", artifacts.architecture.name);
        unpack(&release.image, artifacts, &folder)?;
    }

    let drive = Drive::attach(&folder)?;
    println!("the image in podman");
    let podman = Podman::load(&release.image, &folder)?;
    let container = podman.run()?;
    check_counts(&drive, &container)?;
    drop(container);
    check_refusal(&podman.run_without_capabilities()?, "CAP_BPF and CAP_PERFMON")?;

    let system = system(&folder, release.for_host()?.architecture);
    for case in &PRIVILEGE_CASES {
        println!("the image in runc: {}", case.description);
        let container = RuncContainer::start(&folder, &system, case, None)?;
        match case.expected_error {
            None => check_counts(&drive, &container)?,
            Some(line) => check_refusal(&container.wait()?, line)?,
        }
    }
    println!("the image in runc: {}", KEEPING.description);
    check_kept_probe(&drive, &folder, &system)?;
    drop(drive);
    Ok(fs::remove_dir_all(&folder)?)
}

/// Checks that I/O is counted if it completes between the kill of one container and the start of the next.
fn check_kept_probe(drive: &Drive, folder: &Path, system: &Path) -> Result<()> {
    let bpf = BpfFolder::mount(folder)?;
    let start = || RuncContainer::start(folder, system, &KEEPING, Some(bpf.path()));
    let container = start()?;
    check_counts(drive, &container)?;
    let missing = drive.accounted_reads()?.checked_sub(drive.count_in(&container.scrape()?));
    drop(container);
    drive.read(READS)?;
    let container = start()?;
    let began = Instant::now();
    loop {
        let accounted = drive.accounted_reads()?;
        let counted = container.scrape().map(|metrics| drive.count_in(&metrics));
        match counted {
            Ok(counted) if accounted.checked_sub(counted) == missing => break,
            outcome if began.elapsed() > START_TIMEOUT => {
                bail!(
                    "the kernel accounted {accounted} reads, biolat counted {outcome:?}, initial difference {missing:?}"
                )
            }
            _ => thread::sleep(Duration::from_millis(200)),
        }
    }
    println!("  the next container has all {READS} requests that completed in between");
    Ok(())
}

/// Checks that the container counts as many reads of the drive as the kernel's disk statistics, and how much memory it uses.
fn check_counts(drive: &Drive, container: &impl Container) -> Result<()> {
    let began = Instant::now();
    let counted = loop {
        match container.scrape() {
            Ok(text) => break drive.count_in(&text),
            Err(error) if began.elapsed() > START_TIMEOUT => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(200)),
        }
    };
    let accounted = drive.accounted_reads()?;
    drive.read(READS)?;
    let accounted = drive.accounted_reads()? - accounted;
    loop {
        let metrics = container.scrape()?;
        let (more, missed) = (drive.count_in(&metrics) - counted, drive.missed_in(&metrics));
        if more == accounted && more >= READS {
            ensure!(missed < READS / 2, "{missed} of {more} requests are reported as missed");
            println!(
                "  {more} requests, the same as in the kernel's disk statistics, {missed} of them reported as missed"
            );
            return check_memory(container.pid()?);
        }
        if began.elapsed() > START_TIMEOUT {
            bail!(
                "{READS} requests issued, {accounted} in the kernel's disk statistics, {more} counted by biolat or reported as missed"
            );
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Checks the daemon's memory after startup. The limits assume a machine with few CPUs and devices.
///
/// The program determines how much anonymous memory it has. The total also includes the ring buffers, 1.3 MiB, the counters of the
/// series in use, and the pages of the binary that the kernel maps around each page fault if they are in the page cache, which
/// varies by 0.5 MiB. Recent kernels add up the counters of all CPUs for `/proc/PID/status`, but not for `/proc/PID/stat`, which the
/// metric is from.
fn check_memory(pid: u32) -> Result<()> {
    const MAX: [(&str, u64); 2] = [("RssAnon", 2 << 10), ("VmRSS", 8 << 10)];
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    for (name, max) in MAX {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let line = line.with_context(|| format!("{path} has no {name}"))?;
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
        println!("  {name}: {kibibytes} KiB, at most {max}");
        ensure!(kibibytes <= max, "the daemon's {name} is {kibibytes} KiB, more than {max}");
    }
    Ok(())
}

/// Checks that the daemon exited with code 1 after printing one line that names the missing privileges.
fn check_refusal(ended: &std::process::Output, expected: &str) -> Result<()> {
    let said = String::from_utf8_lossy(&ended.stderr);
    let said: Vec<_> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    if ended.status.code() != Some(1) || said.len() != 1 || !said[0].contains(expected) {
        bail!(
            "without its privileges the daemon exits with {} and prints {said:?}, expected one line with {expected:?}",
            ended.status
        );
    }
    println!("  {}", said[0]);
    Ok(())
}

/// Unpacks the image for one architecture with independent tools, and checks its content.
fn unpack(image: &Path, artifacts: &Artifacts, folder: &Path) -> Result<()> {
    let (name, system) = (artifacts.architecture.name, system(folder, artifacts.architecture));
    let layout = folder.join(format!("layout-{name}"));
    // skopeo selects the image from the index by platform, and verifies every digest.
    let (from, to) = (format!("oci-archive:{}", image.display()), format!("dir:{}", layout.display()));
    run(Command::new("skopeo").args(["--override-arch", name, "copy", "--quiet", &from, &to]))?;
    let json = |file: &Path| Ok::<Value, anyhow::Error>(serde_json::from_slice(&fs::read(file)?)?);
    let manifest = json(&layout.join("manifest.json"))?;
    let blob = |descriptor: &Value| {
        layout.join(descriptor["digest"].as_str().unwrap_or_default().trim_start_matches("sha256:"))
    };
    let config = json(&blob(&manifest["config"]))?;
    ensure!(config["architecture"] == name, "the image for {name} is for {}", config["architecture"]);

    fs::create_dir(&system)?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--numeric-owner", "--xattrs", "--xattrs-include=security.*", "--directory"]);
    run(tar.arg(&system).arg("--file").arg(blob(&manifest["layers"][0])))?;
    let files =
        output(Command::new("find").arg(&system).args(["-mindepth", "1", "-printf", "%P %U:%G %m\n"]))?;
    let files: BTreeSet<_> = files.lines().collect();
    if files != BTreeSet::from(["biolat 0:0 755", "biolat-daemon 0:0 755"]) {
        bail!("the image does not contain exactly the programs: {files:?}");
    }
    for (program, built) in PROGRAMS.iter().zip(&artifacts.binaries) {
        let binary = system.join(program.name);
        ensure!(
            fs::read(&binary)? == fs::read(built)?,
            "the image for {name} does not contain {}",
            built.display()
        );
        let granted = output(Command::new("getcap").arg(binary))?;
        if !granted.trim().ends_with(" cap_perfmon,cap_bpf=p") {
            bail!("file capabilities are not cap_perfmon,cap_bpf=p: {granted}");
        }
    }
    Ok(())
}

/// Returns the root directory of the image for an architecture.
fn system(folder: &Path, architecture: Architecture) -> PathBuf {
    folder.join(format!("system-{}", architecture.name))
}
