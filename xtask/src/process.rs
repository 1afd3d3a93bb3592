//! Other programs: run them, and find them.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let built_in = || Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf);
    std::env::var_os(ROOT).map(PathBuf::from).or_else(built_in).unwrap_or_default()
}

/// Names another workspace to work on than the one that this program was built in.
pub(crate) const ROOT: &str = "BIOLAT_ROOT";

/// A command in the workspace's root.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// The cargo that runs us.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), arguments)
}

/// A cargo whose release builds are linked statically: what runs in a guest, and what benches measure, as users are given
/// such a binary. With flags other than the workspace's, in a folder of its own.
pub(crate) fn static_cargo(verb: &str) -> Command {
    let mut cargo = cargo(&[verb, "--locked", "--package", "biolat-daemon", "--target", STATIC_TARGET]);
    cargo.arg("--target-dir").arg(static_folder()).env("RUSTFLAGS", "-C target-feature=+crt-static");
    cargo
}

/// Where [`static_cargo`] puts what it builds for release.
pub(crate) fn static_release() -> PathBuf {
    static_folder().join(STATIC_TARGET).join("release")
}

const STATIC_TARGET: &str = "x86_64-unknown-linux-gnu";

fn static_folder() -> PathBuf {
    root().join("target/static-release")
}

/// Runs a command, shown first; an exit code other than zero is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// What a command prints.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run {shown}"))?;
    if !output.status.success() {
        bail!("{shown}: {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Where a program is: in PATH, or where administrators' programs are.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
