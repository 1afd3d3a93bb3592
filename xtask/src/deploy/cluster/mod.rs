//! `cargo xtask deploy cluster`: checks the chart and the image in a real single-node cluster, Kubernetes with etcd and
//! containerd.
//!
//! Each check installs what it needs and removes it, so a failed check does not stop the others.

mod admission;
mod build;
mod busybox;
mod config;
mod control_plane;
mod discovery;
mod install;
mod kept_probe;
mod manifests;
mod node;
mod patience;
mod prometheus;
mod release;
mod volumes;
mod workloads;

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::{dist, folder::make_empty, host::Requirement, process::root};
use control_plane::Cluster;

pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::Root,
    Requirement::Btf,
    Requirement::Cgroups,
    Requirement::Loop,
    Requirement::Tool("bin/helm"),
    Requirement::Tool("bin/prometheus"),
    Requirement::Tool("bin/promtool"),
    Requirement::Tool("prometheus-operator"),
    Requirement::Program("bpftool", "bpftool"),
    Requirement::Program("busybox", "busybox-static"),
    Requirement::Program("containerd", "containerd"),
    Requirement::Program("curl", "curl"),
    Requirement::Program("etcd", "etcd-server"),
    Requirement::Program("ip", "iproute2"),
    Requirement::Program("losetup", "mount"),
    Requirement::Program("mkfs.ext4", "e2fsprogs"),
    Requirement::Program("nsenter", "util-linux"),
    Requirement::Program("openssl", "openssl"),
    Requirement::Program("runc", "runc"),
    Requirement::Program("/usr/lib/cni/ptp", "containernetworking-plugins"),
];

/// A check. Returns a short description of the result.
type Check = fn(&Cluster) -> Result<String>;

const CHECKS: [(&str, Check); 10] = [
    ("manifests", manifests::check),
    ("Pod Security", admission::check),
    ("helm test", install::test),
    ("pod", install::ready),
    ("workloads", workloads::check),
    ("volumes", volumes::check),
    ("discovery", discovery::check),
    ("helm upgrade", install::upgrade),
    ("helm uninstall", install::uninstall),
    ("kept probe", kept_probe::check),
];

pub(super) fn check() -> Result<()> {
    let programs = build::programs()?;
    let folder = root().join("target/deploy");
    make_empty(&folder.join("cluster-image"))?;
    let image = dist::image_for_host(&folder.join("cluster-image"))?;
    let folder = folder.join("cluster");
    let began = Instant::now();
    let cluster = Cluster::start(programs, &folder, &[&image])?;
    println!("ok: Kubernetes {}: ready after {} s", build::version()?, began.elapsed().as_secs());
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        let began = Instant::now();
        match check(&cluster) {
            Ok(found) => println!("ok: {name}: {found} ({} s)", began.elapsed().as_secs()),
            Err(error) => {
                println!("FAILED: {name}: {error:#}");
                failed.push(name);
            }
        }
    }
    ensure!(
        failed.is_empty(),
        "failed: {}; the cluster's logs are in {}/logs",
        failed.join(", "),
        folder.display()
    );
    drop(cluster);
    Ok(std::fs::remove_dir_all(&folder)?)
}
