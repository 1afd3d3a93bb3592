//! The Debian package: what lintian says of it, and what it does to a system that has nothing else on it.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use anyhow::{Result, bail};

use super::clean_root::CleanRoot;
use crate::{
    machine::Need,
    process::{output, run},
};

pub(super) const NEEDS: &[Need] = &[
    Need::RootItself,
    Need::PackageTool,
    Need::Program("lintian", "lintian"),
    Need::Program("debootstrap", "debootstrap"),
];

/// What a package that is gone may leave: the package manager's own notes, and caches.
const OTHERS: [&str; 4] =
    ["/var/lib/dpkg/", "/var/log/", "/var/cache/", "/var/lib/systemd/deb-systemd-helper"];

pub(super) fn check() -> Result<()> {
    let release = super::release()?;
    let package = release.of_this_machine()?.package()?;
    run(Command::new("lintian")
        .args(["--allow-root", "--fail-on", "error", "--tag-display-limit", "0"])
        .arg(package))?;
    let root = CleanRoot::new("package")?;
    let before = root.files()?;
    root.install(package)?;

    let listed = output(&mut root.command("dpkg", &["--listfiles", "biolat"]))?;
    for file in listed.lines() {
        if !root.path(file).exists() {
            bail!("the package lists {file}, and it is not there");
        }
    }
    let version = output(&mut root.command("biolat-daemon", &["--version"]))?;
    if !version.contains(env!("CARGO_PKG_VERSION")) {
        bail!("biolat-daemon --version says {version}");
    }
    manual(&root)?;
    run(&mut root.command("bash", &["-n", "/usr/share/bash-completion/completions/biolat-daemon"]))?;
    enabled(&root, "biolat.service", "enabled")?;
    enabled(&root, "biolat.socket", "disabled")?;

    run(&mut root.command("dpkg", &["--purge", "biolat"]))?;
    let is_others = |path: &&String| OTHERS.iter().any(|others| path.starts_with(others));
    let after = root.files()?;
    let left: BTreeSet<_> = after.difference(&before).filter(|path| !is_others(path)).collect();
    let lost: BTreeSet<_> = before.difference(&after).filter(|path| !is_others(path)).collect();
    if !left.is_empty() || !lost.is_empty() {
        bail!("purged, the package leaves {left:?} and takes {lost:?} along");
    }
    Ok(())
}

/// The manual page is shown without a complaint, and tells of every option.
fn manual(root: &CleanRoot) -> Result<()> {
    let mut man = root.command("man", &["--warnings=w", "--pager=cat", "biolat-daemon"]);
    let shown = man.env("MANWIDTH", "100").stderr(Stdio::piped()).output()?;
    let (page, complaints) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
    if !shown.status.success() || !complaints.trim().is_empty() {
        bail!("man biolat-daemon: {}: {complaints}", shown.status);
    }
    let help = output(&mut root.command("biolat-daemon", &["--help"]))?;
    let options = help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2);
    let sections = ["NAME", "SYNOPSIS", "OPTIONS", "ENVIRONMENT", "EXIT STATUS", "FILES", "SEE ALSO"];
    for expected in sections.into_iter().chain(options) {
        if !page.contains(expected.trim_end_matches([',', '.', ':', ';'])) {
            bail!("the manual page says nothing of {expected}");
        }
    }
    Ok(())
}

fn enabled(root: &CleanRoot, unit: &str, expected: &str) -> Result<()> {
    // It tells by its exit code too.
    let asked = root.command("systemctl", &["is-enabled", unit]).output()?;
    let said = String::from_utf8_lossy(&asked.stdout);
    if said.trim() != expected {
        bail!("{unit} is {}, not {expected}", said.trim());
    }
    Ok(())
}
