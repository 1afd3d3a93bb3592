//! Checks that, with `pinFolder`, counts continue across kill -9 and an upgrade, and that the documented Job removes the probe.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::{
    config::NODE,
    control_plane::Cluster,
    patience::eventually,
    release::{Release, loaded},
    workloads::{WRITES, Writer},
};
use crate::process::root;

const FOLDER: &str = "/sys/fs/bpf/biolat";
const UNPIN: &str = "deploy/kubernetes/unpin.yaml";

pub(super) fn check(cluster: &Cluster) -> Result<String> {
    let writer = Writer::start(cluster)?;
    let release = Release::install(cluster, &["--set", &format!("user=root,pinFolder={FOLDER}")])?;
    release.wait()?;
    writer.write()?;
    writer.wait_for(&release, WRITES)?;

    let container = release.container()?;
    cluster.on_node(&["kill", "-KILL", &release.process()?])?;
    writer.write()?;
    eventually(|| {
        ensure!(release.container()? != container, "the kubelet has not restarted the container");
        Ok(())
    })?;
    writer.wait_for(&release, 2 * WRITES)?;

    release.upgrade(&["--set", "args={--interval=2s}"])?;
    writer.write()?;
    release.wait()?;
    writer.wait_for(&release, 3 * WRITES)?;

    let programs = release.programs()?;
    release.uninstall()?;
    ensure!(
        !loaded(cluster, &programs).is_empty(),
        "the probe is gone with its release, although it was pinned"
    );
    let job = fs::read_to_string(root().join(UNPIN)).with_context(|| format!("cannot read {UNPIN}"))?;
    // `kubectl create` instead of `apply`, because the Job's name is generated.
    cluster.kubectl(&["create", "--filename", &cluster.write(&job.replace("NODE", NODE))?])?;
    release.kubectl(&["wait", "--for=condition=Complete", "job", "--all", "--timeout=90s"])?;
    let pins = cluster.on_node(&["find", FOLDER, "-type", "f"])?;
    ensure!(pins.is_empty(), "after the Job there are pins: {pins}");
    let left = loaded(cluster, &programs);
    ensure!(left.is_empty(), "after the Job the kernel still has the BPF programs {}", left.join(", "));
    Ok(format!("{} writes are counted across kill -9 and an upgrade; {UNPIN} removes the probe", 3 * WRITES))
}
