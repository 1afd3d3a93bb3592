//! The Debian package: what lintian says of it, and what it does to a system that has nothing else on it.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use anyhow::{Result, bail};

use super::clean_root::CleanRoot;
use crate::{
    host::Requirement,
    process::{output, run},
};

pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::Root,
    Requirement::CargoDeb,
    Requirement::Program("lintian", "lintian"),
    Requirement::Program("debootstrap", "debootstrap"),
];

/// What a package that is gone may leave: the package manager's own notes, and caches.
const OTHERS: [&str; 4] =
    ["/var/lib/dpkg/", "/var/log/", "/var/cache/", "/var/lib/systemd/deb-systemd-helper"];

/// What the daemon does besides serving.
const COMMANDS: [&str; 2] = ["check", "report"];

pub(super) fn check() -> Result<()> {
    let release = super::release()?;
    let package = release.for_host()?.package()?;
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
    manual(&root, &[])?;
    for command in COMMANDS {
        manual(&root, &[command])?;
    }
    completions(&root)?;
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

/// A command's manual page is shown without a complaint, and tells of every option.
fn manual(root: &CleanRoot, command: &[&str]) -> Result<()> {
    let name = [&["biolat-daemon"], command].concat().join("-");
    let mut man = root.command("man", &["--warnings=w", "--pager=cat", &name]);
    let shown = man.env("MANWIDTH", "100").stderr(Stdio::piped()).output()?;
    let (page, complaints) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
    if !shown.status.success() || !complaints.trim().is_empty() {
        bail!("man {name}: {}: {complaints}", shown.status);
    }
    let help = output(&mut root.command("biolat-daemon", &[command, &["--help"]].concat()))?;
    let options = help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2);
    let mut sections = vec!["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"];
    if command.is_empty() {
        sections.extend(["COMMANDS", "ENVIRONMENT", "EXIT STATUS", "FILES"]);
        sections.extend(COMMANDS);
    }
    for expected in sections.into_iter().chain(options) {
        if !page.contains(expected.trim_end_matches([',', '.', ':', ';', ']'])) {
            bail!("the manual page {name} says nothing of {expected}");
        }
    }
    Ok(())
}

/// What bash offers behind `biolat-daemon`, and behind a command.
fn completions(root: &CleanRoot) -> Result<()> {
    for (typed, expected) in [("biolat-daemon ''", "check"), ("biolat-daemon check --", "--json")] {
        let script = format!(
            "source /usr/share/bash-completion/completions/biolat-daemon; set -- $(complete -p biolat-daemon); \
             while [ \"$1\" != -F ]; do shift; done; COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             $2 biolat-daemon \"${{COMP_WORDS[COMP_CWORD]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let offered = output(&mut root.command("bash", &["-c", &script]))?;
        if !offered.split_whitespace().any(|word| word == expected) {
            bail!("behind {typed} bash does not offer {expected}, but: {offered}");
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
