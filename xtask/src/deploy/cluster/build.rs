//! Builds Kubernetes and CoreDNS from their Go modules on first use, which takes 15 minutes, and caches them next to the tools of
//! `.ci/install`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{
    hash::hash,
    host::tool,
    process::{find, output, root, run},
};

/// Modules in `.ci/tools`, and the package to build in each.
const MODULES: [(&str, &str); 2] = [("kubernetes", "tool"), ("coredns", ".")];

/// Returns the directory with the cluster's programs, after building them if necessary.
pub(super) fn programs() -> Result<PathBuf> {
    let folder = tool("kubernetes");
    for (name, package) in MODULES {
        let module = root().join(".ci/tools").join(name);
        let version = hash(&fs::read(module.join("go.mod"))?) + "\n";
        let recorded = tool(&format!("{name}.version"));
        if fs::read_to_string(&recorded).is_ok_and(|built| built == version) {
            continue;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        run(go(&module)?
            .args(["build", "-trimpath", "-ldflags", &linker_flags()?, "-o"])
            .arg(&folder)
            .arg(package))?;
        fs::write(&recorded, version).with_context(|| format!("cannot write {}", recorded.display()))?;
    }
    Ok(folder)
}

/// Returns the version of Kubernetes that the module requires.
pub(super) fn version() -> Result<String> {
    let list = &["list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"];
    Ok(output(go(&root().join(".ci/tools/kubernetes"))?.args(list))?.trim().to_owned())
}

/// Returns linker flags that set the version. A release build of Kubernetes takes it from git.
fn linker_flags() -> Result<String> {
    let version = version()?;
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let package = "k8s.io/component-base/version";
    Ok(format!(
        "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    ))
}

/// Returns a command for the Go toolchain that `.ci/install` uses.
fn go(module: &Path) -> Result<Command> {
    let known = ["/usr/local/go/bin/go".into(), root().join("target/python/bin/go")];
    let go = known.into_iter().find(|go| go.exists()).or_else(|| find("go"));
    let mut command = Command::new(go.context("no Go: run .ci/install")?);
    command.current_dir(module).env("CGO_ENABLED", "0");
    Ok(command)
}
