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
    machine::{self, Need},
};

/// Something in `deploy/`, and the check of it.
struct Part {
    name: &'static str,
    needs: &'static [Need],
    check: fn() -> Result<()>,
    /// Writes what is made of other files, where there is such.
    write: Option<fn() -> Result<()>>,
}

const PARTS: &[Part] = &[
    Part { name: "grafana", needs: grafana::NEEDS, check: grafana::check, write: Some(grafana::write) },
    Part {
        name: "kubernetes",
        needs: kubernetes::NEEDS,
        check: kubernetes::check,
        write: Some(kubernetes::write),
    },
    Part { name: "prometheus", needs: prometheus::NEEDS, check: prometheus::check, write: None },
    Part { name: "image", needs: image::NEEDS, check: image::check, write: None },
    Part { name: "package", needs: package::NEEDS, check: package::check, write: None },
    Part { name: "arm64", needs: arm64::NEEDS, check: arm64::check, write: None },
    Part { name: "systemd", needs: systemd::NEEDS, check: systemd::check, write: None },
];

/// Checks one part or all of them; one that this machine cannot check is named, and fails if `strict`.
pub(crate) fn check(strict: bool, wanted: Option<&str>) -> Result<()> {
    let mut left_out = Vec::new();
    for part in wanted_parts(wanted)? {
        match machine::lacking(part.needs) {
            None => {
                (part.check)()?;
                println!("ok: deploy {}", part.name);
            }
            Some(lacking) => {
                println!("not checked: deploy {}: {lacking}", part.name);
                left_out.push(part.name);
            }
        }
    }
    if strict && !left_out.is_empty() {
        bail!("{} cannot be checked here, and --strict wants all of it", left_out.join(", "));
    }
    Ok(())
}

/// Writes what stands in `deploy/` and is made of other files there: of one part, or of all.
pub(crate) fn write(wanted: Option<&str>) -> Result<()> {
    for part in wanted_parts(wanted)? {
        let Some(write) = part.write else { continue };
        if let Some(lacking) = machine::lacking(part.needs) {
            bail!("cannot write deploy {}: {lacking}", part.name);
        }
        write().with_context(|| format!("cannot write deploy {}", part.name))?;
    }
    Ok(())
}

/// The part of this name, or all of them.
fn wanted_parts(wanted: Option<&str>) -> Result<impl Iterator<Item = &'static Part>> {
    if let Some(wanted) = wanted
        && !PARTS.iter().any(|part| part.name == wanted)
    {
        bail!(
            "deploy/ has no part {wanted}: there is {}",
            PARTS.iter().map(|part| part.name).collect::<Vec<_>>().join(", ")
        );
    }
    Ok(PARTS.iter().filter(move |part| wanted.is_none_or(|wanted| part.name == wanted)))
}

/// What users are given, made once for all parts.
fn release() -> Result<&'static Release> {
    static RELEASE: OnceLock<Release> = OnceLock::new();
    if RELEASE.get().is_none() {
        let _ = RELEASE.set(dist::make()?);
    }
    RELEASE.get().context("no release was made")
}
