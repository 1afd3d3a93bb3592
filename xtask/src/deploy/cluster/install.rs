//! Checks a release from installation to removal: readiness, `helm test`, upgrade, uninstallation.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::{
    config::NODE,
    control_plane::Cluster,
    patience::eventually,
    release::{Release, loaded},
};

/// Checks that `helm test` passes right after `helm install`, before the pod is ready.
pub(super) fn test(cluster: &Cluster) -> Result<String> {
    let release = Release::install(cluster, &[])?;
    let printed = release.helm("test", &[])?;
    ensure!(printed.contains(NODE), "helm test does not name {NODE}: {printed}");
    Ok(format!("passes right after helm install and names {NODE}"))
}

/// Checks that the pod becomes ready with the chart's defaults, and that `check` and `who` work in it as described in the notes.
pub(super) fn ready(cluster: &Cluster) -> Result<String> {
    let began = Instant::now();
    let release = Release::install(cluster, &[])?;
    release.wait()?;
    let seconds = began.elapsed().as_secs();
    release.follow("/biolat-daemon check")?;
    let who = release.follow("/biolat who")?;
    ensure!(who.contains(NODE), "biolat who does not name {NODE}: {who}");
    Ok(format!("ready {seconds} s after helm install; check passes in it, and biolat who names {NODE}"))
}

/// Checks that changing a value replaces the pod.
pub(super) fn upgrade(cluster: &Cluster) -> Result<String> {
    let release = Release::install(cluster, &[])?;
    release.wait()?;
    release.upgrade(&["--set", "args={--interval=2s}"])?;
    release.wait()?;
    let process = eventually(|| release.process())?;
    let arguments = cluster.on_node(&["cat", &format!("/proc/{process}/cmdline")])?;
    ensure!(arguments.contains("--interval=2s"), "the new pod runs {arguments:?}");
    Ok("the new pod has the new option".into())
}

/// Checks that uninstalling leaves no object and no BPF program behind.
pub(super) fn uninstall(cluster: &Cluster) -> Result<String> {
    let release = Release::install(cluster, &[])?;
    release.wait()?;
    release.helm("test", &[])?;
    let programs = release.programs()?;
    ensure!(!programs.is_empty(), "the daemon holds no BPF programs");
    release.uninstall()?;
    eventually(|| {
        let left = loaded(cluster, &programs);
        ensure!(left.is_empty(), "the kernel still has the BPF programs {}", left.join(", "));
        Ok(())
    })?;
    Ok(format!("no object is left, and none of {} BPF programs", programs.len()))
}
