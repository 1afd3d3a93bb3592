//! Checks Pod Security: if the cluster's default is `restricted`, an unlabelled namespace gets no pod until the commands in the
//! notes have been run.

use anyhow::{Result, ensure};

use super::{control_plane::Cluster, patience::eventually, release::Release};

pub(super) fn check(cluster: &Cluster) -> Result<String> {
    let release = Release::install_in(cluster, "unlabelled", &["--create-namespace"])?;
    eventually(|| {
        let described = release.follow("describe daemonset")?;
        let is_refused = described.contains("violates PodSecurity \"restricted");
        ensure!(is_refused, "kubectl describe does not say why there is no pod: {described}");
        Ok(())
    })?;
    release.follow("label --overwrite namespace")?;
    release.follow("rollout restart")?;
    release.wait()?;
    Ok("no pod without labels; ready after the commands in the notes".into())
}
