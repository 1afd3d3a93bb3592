//! Paths of files and directories that several checks share.

pub(super) const CHART: &str = "deploy/kubernetes/biolat";
pub(super) const README: &str = "deploy/kubernetes/README.md";
/// Directory for rendered manifests.
pub(super) const SCRATCH: &str = "target/tmp/deploy-kubernetes";
