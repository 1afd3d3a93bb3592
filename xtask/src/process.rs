//! Finds and runs programs.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// The workspace's root directory.
pub(crate) fn root() -> PathBuf {
    let built_in = || Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf);
    std::env::var_os(ROOT).map(PathBuf::from).or_else(built_in).unwrap_or_default()
}

/// Environment variable that selects a workspace other than the one xtask was built in.
pub(crate) const ROOT: &str = "BIOLAT_ROOT";

/// Returns a command that runs in the workspace's root directory.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Returns a command for the cargo that started xtask, without the variables that cargo set for xtask. They would rerun build
/// scripts and rebuild everything that depends on them.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), arguments);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Prints a command and runs it. A nonzero exit status is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Runs a command and returns its standard output. A nonzero exit status is an error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run {shown}"))?;
    if !output.status.success() {
        bail!("{shown}: {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs a command and returns its standard output. A nonzero exit status is an error that contains the command's output.
pub(crate) fn quiet_output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.output().with_context(|| format!("cannot run {shown}"))?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        bail!("{shown}: {}: {}", output.status, printed.trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Finds a program in PATH or in the `sbin` directories.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Formats a command as it would be typed.
pub(crate) fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
