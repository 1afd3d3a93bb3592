//! `cargo xtask lint`: static checks of the code and its dependencies.

mod imports;
mod text;

use anyhow::{Result, bail};

use crate::{
    host::{Requirement, tool},
    process::{cargo, command, run},
};

/// Runs all checks and stops at the first finding. A missing tool is reported, and is an error if `strict`.
pub(crate) fn lint(strict: bool) -> Result<()> {
    imports::check()?;
    text::check()?;
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    dependencies(strict)?;
    // The kernel tests are excluded from `cargo test`, and therefore from --all-targets.
    for targets in [&["--all-targets"][..], &["--package", "biolat-daemon", "--test", "kernel"]] {
        run(cargo(&["clippy", "--locked"]).args(targets).args(["--", "-D", "warnings"]))?;
    }
    // The probe is linted for the host: its own target needs another toolchain and gives the same findings. It is built with
    // panic=abort as on that target, in a separate target directory to keep the other builds' caches valid.
    run(cargo(&["clippy", "--locked", "--package", "biolat-ebpf", "--config", "profile.dev.panic='abort'"])
        .args(["--target-dir", "target/probe-lint", "--", "-D", "warnings"]))?;
    run(cargo(&["doc", "--locked", "--no-deps", "--document-private-items"])
        .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links"))
}

/// Checks licenses, sources and duplicate versions of dependencies against `deny.toml`. Excludes security advisories: their
/// database is on the network, and a build must not depend on it.
fn dependencies(strict: bool) -> Result<()> {
    if let Some(missing) = Requirement::Tool("bin/cargo-deny").missing() {
        println!("not checked: dependencies: {missing}");
        if strict {
            bail!("dependencies cannot be checked here, and --strict requires it");
        }
        return Ok(());
    }
    let check = ["--locked", "--all-features", "check", "bans", "licenses", "sources"];
    run(&mut command(tool("bin/cargo-deny"), &check))
}
