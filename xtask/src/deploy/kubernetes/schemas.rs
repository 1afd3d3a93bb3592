//! Checks manifests against the schemas of Kubernetes and the Prometheus operator, and against the privilege rules.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, Result};

use super::paths::SCRATCH;
use crate::{
    host::{python, tool},
    process::{command, output, root},
};

const CHECKER: &str = "xtask/src/deploy/kubernetes/manifests.py";

/// Returns the checker's findings by manifest.
pub(super) fn findings(
    folder: &str,
    manifests: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Vec<String>>> {
    let folder = root().join(SCRATCH).join(folder);
    fs::create_dir_all(&folder)?;
    let mut checker = command(python(), &[CHECKER]);
    checker.arg(tool("prometheus-operator"));
    for (name, manifest) in manifests {
        let file = folder.join(name).with_extension("yaml");
        fs::write(&file, manifest)?;
        checker.arg(file);
    }
    let mut findings = BTreeMap::<_, Vec<_>>::new();
    for line in output(&mut checker)?.lines() {
        let (file, finding) = line.split_once('\t').context("a finding without a file")?;
        let name = PathBuf::from(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        findings.entry(name.clone()).or_default().push(format!("{name}: {finding}"));
    }
    Ok(findings)
}
