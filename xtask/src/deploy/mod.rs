//! `cargo xtask deploy`: that what stands in `deploy/` works, by the tools of those who will use it.

mod arm64;
mod clean_root;
mod grafana;
mod image;
mod kubernetes;
mod package;
mod prometheus;
mod systemd;

use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};

use crate::{
    dist::{self, Release},
    host::{self, Requirement},
};

/// Something in `deploy/`, and the check of it.
struct Component {
    name: &'static str,
    needs: &'static [Requirement],
    check: fn() -> Result<()>,
    /// Writes what is made of other files, where there is such.
    write: Option<fn() -> Result<()>>,
}

const COMPONENTS: &[Component] = &[
    Component {
        name: "grafana",
        needs: grafana::REQUIREMENTS,
        check: grafana::check,
        write: Some(grafana::write),
    },
    Component {
        name: "kubernetes",
        needs: kubernetes::REQUIREMENTS,
        check: kubernetes::check,
        write: Some(kubernetes::write),
    },
    Component { name: "prometheus", needs: prometheus::REQUIREMENTS, check: prometheus::check, write: None },
    Component { name: "image", needs: image::REQUIREMENTS, check: image::check, write: None },
    Component { name: "package", needs: package::REQUIREMENTS, check: package::check, write: None },
    Component { name: "arm64", needs: arm64::REQUIREMENTS, check: arm64::check, write: None },
    Component { name: "systemd", needs: systemd::REQUIREMENTS, check: systemd::check, write: None },
];

/// Checks one part or all of them; one that this machine cannot check is named, and fails if `strict`.
pub(crate) fn check(strict: bool, wanted: Option<&str>) -> Result<()> {
    let mut skipped = Vec::new();
    for part in select(wanted)? {
        match host::missing(part.needs) {
            None => {
                (part.check)()?;
                println!("ok: deploy {}", part.name);
            }
            Some(missing) => {
                println!("not checked: deploy {}: {missing}", part.name);
                skipped.push(part.name);
            }
        }
    }
    if strict && !skipped.is_empty() {
        bail!("{} cannot be checked here, and --strict wants all of it", skipped.join(", "));
    }
    Ok(())
}

/// Writes what stands in `deploy/` and is made of other files there: of one part, or of all.
pub(crate) fn write(wanted: Option<&str>) -> Result<()> {
    for part in select(wanted)? {
        let Some(write) = part.write else { continue };
        if let Some(missing) = host::missing(part.needs) {
            bail!("cannot write deploy {}: {missing}", part.name);
        }
        write().with_context(|| format!("cannot write deploy {}", part.name))?;
    }
    Ok(())
}

/// The part of this name, or all of them.
fn select(wanted: Option<&str>) -> Result<impl Iterator<Item = &'static Component>> {
    if let Some(wanted) = wanted
        && !COMPONENTS.iter().any(|part| part.name == wanted)
    {
        bail!(
            "deploy/ has no part {wanted}: there is {}",
            COMPONENTS.iter().map(|part| part.name).collect::<Vec<_>>().join(", ")
        );
    }
    Ok(COMPONENTS.iter().filter(move |part| wanted.is_none_or(|wanted| part.name == wanted)))
}

/// What users are given, made once for all parts.
fn release() -> Result<&'static Release> {
    static RELEASE: OnceLock<Release> = OnceLock::new();
    if RELEASE.get().is_none() {
        let _ = RELEASE.set(dist::build()?);
    }
    RELEASE.get().context("no release was made")
}
