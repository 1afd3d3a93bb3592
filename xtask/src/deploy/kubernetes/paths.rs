//! Files and directories of several checks.

pub(super) const CHART: &str = "deploy/kubernetes/biolat";
pub(super) const README: &str = "deploy/kubernetes/README.md";
/// The directory of rendered manifests.
pub(super) const SCRATCH: &str = "target/tmp/deploy-kubernetes";
