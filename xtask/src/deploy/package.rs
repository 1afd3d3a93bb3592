//! Checks the Debian package with lintian, and installs and purges it in a minimal system.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use anyhow::{Result, bail};

use super::clean_root::CleanRoot;
use crate::{
    dist,
    host::Requirement,
    process::{output, run},
};

pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::Root,
    Requirement::CargoDeb,
    Requirement::Program("lintian", "lintian"),
    Requirement::Program("debootstrap", "debootstrap"),
];

/// Paths that may change when a package is installed and purged: the package manager's state, logs and caches.
const IGNORED: [&str; 4] =
    ["/var/lib/dpkg/", "/var/log/", "/var/cache/", "/var/lib/systemd/deb-systemd-helper"];

/// The programs, with the subcommands that have a man page.
const COMMANDS: [(&str, &[&str]); 2] = [
    ("biolat-daemon", &["check", "unpin"]),
    (
        "biolat",
        &["hist", "sizes", "cpus", "who", "slow", "top", "at", "since", "worst", "save", "open", "check"],
    ),
];

pub(super) fn check() -> Result<()> {
    let release = dist::release()?;
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
            bail!("the package lists {file}, which does not exist");
        }
    }
    for (program, commands) in COMMANDS {
        let version = output(&mut root.command(program, &["--version"]))?;
        if !version.contains(env!("CARGO_PKG_VERSION")) {
            bail!("{program} --version prints {version}");
        }
        check_manual(&root, program, &[], commands)?;
        for command in commands {
            check_manual(&root, program, &[command], &[])?;
        }
    }
    check_completions(&root)?;
    check_enablement(&root, "biolat.service", "enabled")?;
    check_enablement(&root, "biolat.socket", "disabled")?;

    run(&mut root.command("dpkg", &["--purge", "biolat"]))?;
    let is_ignored = |path: &&String| IGNORED.iter().any(|ignored| path.starts_with(ignored));
    let after = root.files()?;
    let left: BTreeSet<_> = after.difference(&before).filter(|path| !is_ignored(path)).collect();
    let lost: BTreeSet<_> = before.difference(&after).filter(|path| !is_ignored(path)).collect();
    if !left.is_empty() || !lost.is_empty() {
        bail!("after a purge, {left:?} are left behind and {lost:?} are missing");
    }
    Ok(())
}

/// Checks that man shows a command's page without warnings, and that the page has all sections and options.
fn check_manual(root: &CleanRoot, program: &str, command: &[&str], commands: &[&str]) -> Result<()> {
    let name = [&[program], command].concat().join("-");
    let mut man = root.command("man", &["--warnings=w", "--pager=cat", &name]);
    let shown = man.env("MANWIDTH", "100").stderr(Stdio::piped()).output()?;
    let (page, warnings) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
    if !shown.status.success() || !warnings.trim().is_empty() {
        bail!("man {name}: {}: {warnings}", shown.status);
    }
    let help = output(&mut root.command(program, &[command, &["--help"]].concat()))?;
    let options = help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2);
    let mut sections = vec!["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"];
    if command.is_empty() {
        sections.extend(["COMMANDS", "EXIT STATUS"]);
        sections.extend(commands);
    }
    for expected in sections.into_iter().chain(options) {
        if !page.contains(expected.trim_end_matches([',', '.', ':', ';', ']'])) {
            bail!("the man page {name} lacks {expected}");
        }
    }
    Ok(())
}

/// Checks that bash completes subcommands and options.
fn check_completions(root: &CleanRoot) -> Result<()> {
    for (program, typed, expected) in [
        ("biolat-daemon", "biolat-daemon ''", "check"),
        ("biolat-daemon", "biolat-daemon check --", "--json"),
        ("biolat", "biolat ''", "who"),
        ("biolat", "biolat at --", "--file"),
    ] {
        let script = format!(
            "source /usr/share/bash-completion/completions/{program}; set -- $(complete -p {program}); \
             while [ \"$1\" != -F ]; do shift; done; COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             $2 {program} \"${{COMP_WORDS[COMP_CWORD]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let offered = output(&mut root.command("bash", &["-c", &script]))?;
        if !offered.split_whitespace().any(|word| word == expected) {
            bail!("bash completes {typed} without {expected}: {offered}");
        }
    }
    Ok(())
}

fn check_enablement(root: &CleanRoot, unit: &str, expected: &str) -> Result<()> {
    // Ignore the exit status: is-enabled exits nonzero for a disabled unit.
    let printed = root.command("systemctl", &["is-enabled", unit]).output()?;
    let state = String::from_utf8_lossy(&printed.stdout);
    if state.trim() != expected {
        bail!("{unit} is {}, not {expected}", state.trim());
    }
    Ok(())
}
