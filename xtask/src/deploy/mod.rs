//! `cargo xtask deploy`: checks the files in `deploy/` and the release artifacts with the tools that users run on them.

mod arm64;
mod clean_root;
mod cluster;
mod grafana;
mod image;
mod kubernetes;
mod mixin;
mod package;
mod prometheus;
mod systemd;

use anyhow::{Context as _, Result, bail};

use crate::host::{self, Requirement};

/// A component of the deployment and its check.
struct Component {
    name: &'static str,
    kind: Kind,
    needs: &'static [Requirement],
    check: fn() -> Result<()>,
    /// Regenerates the component's generated files, if it has any.
    write: Option<fn() -> Result<()>>,
}

/// Kind of check, by what it runs.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Static checks of files, which measure nothing and can run while the machine is busy
    Files,
    /// Checks that run programs: the daemon on this machine's kernel, Prometheus, a container
    Programs,
    /// Checks that boot a system in an emulated machine, and mostly wait
    Machines,
    /// The cluster check, which runs only on request: its programs take 15 minutes to build the first time
    Cluster,
}

const COMPONENTS: &[Component] = &[
    Component {
        name: "grafana",
        kind: Kind::Programs,
        needs: grafana::REQUIREMENTS,
        check: grafana::check,
        write: Some(grafana::write),
    },
    Component {
        name: "mixin",
        kind: Kind::Files,
        needs: mixin::REQUIREMENTS,
        check: mixin::check,
        write: Some(mixin::write),
    },
    Component {
        name: "prometheus",
        kind: Kind::Files,
        needs: prometheus::REQUIREMENTS,
        check: prometheus::check,
        write: None,
    },
    // Must come after the components whose files the chart links to.
    Component {
        name: "kubernetes",
        kind: Kind::Files,
        needs: kubernetes::REQUIREMENTS,
        check: kubernetes::check,
        write: Some(kubernetes::write),
    },
    Component {
        name: "image",
        kind: Kind::Programs,
        needs: image::REQUIREMENTS,
        check: image::check,
        write: None,
    },
    Component {
        name: "package",
        kind: Kind::Programs,
        needs: package::REQUIREMENTS,
        check: package::check,
        write: None,
    },
    Component {
        name: "arm64",
        kind: Kind::Programs,
        needs: arm64::REQUIREMENTS,
        check: arm64::check,
        write: None,
    },
    Component {
        name: "systemd",
        kind: Kind::Machines,
        needs: systemd::REQUIREMENTS,
        check: systemd::check,
        write: None,
    },
    Component {
        name: "cluster",
        kind: Kind::Cluster,
        needs: cluster::REQUIREMENTS,
        check: cluster::check,
        write: None,
    },
];

/// Checks one component, the components of one kind, or all but the cluster. Lists components that cannot be checked here, which
/// is an error if `strict`.
pub(crate) fn check(strict: bool, only: Option<Kind>, name: Option<&str>) -> Result<()> {
    let mut skipped = Vec::new();
    let is_wanted = |component: &&Component| match only {
        Some(kind) => component.kind == kind,
        None => name.is_some() || component.kind != Kind::Cluster,
    };
    for component in select(name)?.filter(is_wanted) {
        match host::missing(component.needs) {
            None => {
                (component.check)()?;
                println!("ok: deploy {}", component.name);
            }
            Some(missing) => {
                println!("not checked: deploy {}: {missing}", component.name);
                skipped.push(component.name);
            }
        }
    }
    if strict && !skipped.is_empty() {
        bail!("{} cannot be checked here, and --strict requires all checks", skipped.join(", "));
    }
    Ok(())
}

/// Regenerates the generated files of one component, or of all, in `deploy/`.
pub(crate) fn write(name: Option<&str>) -> Result<()> {
    for component in select(name)? {
        let Some(write) = component.write else { continue };
        if let Some(missing) = host::missing(component.needs) {
            bail!("cannot write deploy {}: {missing}", component.name);
        }
        write().with_context(|| format!("cannot write deploy {}", component.name))?;
    }
    Ok(())
}

/// Returns the named component, or all components.
fn select(name: Option<&str>) -> Result<impl Iterator<Item = &'static Component>> {
    if let Some(name) = name
        && !COMPONENTS.iter().any(|component| component.name == name)
    {
        bail!(
            "no component {name}: expected one of {}",
            COMPONENTS.iter().map(|component| component.name).collect::<Vec<_>>().join(", ")
        );
    }
    Ok(COMPONENTS.iter().filter(move |component| name.is_none_or(|name| component.name == name)))
}
