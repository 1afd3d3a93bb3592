//! `cargo xtask lint`: what must hold of the code before it is run.

mod imports;

use anyhow::{Result, bail};

use crate::{
    host::{Requirement, tool},
    process::{cargo, command, run},
};

/// Stops at the first thing that is wrong; a tool that is missing is named, and an error if `strict`.
pub(crate) fn lint(strict: bool) -> Result<()> {
    imports::check()?;
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    dependencies(strict)?;
    run(&mut cargo(&["clippy", "--locked", "--all-targets", "--", "-D", "warnings"]))?;
    // The probe is checked for the host: its own target takes another toolchain and finds the same. Like there,
    // a panic must not unwind, in a folder of its own so that nothing else is built anew for that.
    run(cargo(&["clippy", "--locked", "--package", "biolat-ebpf", "--config", "profile.dev.panic='abort'"])
        .args(["--target-dir", "target/probe-lint", "--", "-D", "warnings"]))?;
    run(cargo(&["doc", "--locked", "--no-deps", "--document-private-items"])
        .env("RUSTDOCFLAGS", "-D warnings"))
}

/// Licences, sources and duplicates of dependencies: `deny.toml` says what may be. What is known of their weaknesses comes from
/// a database on the network, and a build must not depend on that.
fn dependencies(strict: bool) -> Result<()> {
    if let Some(missing) = Requirement::Tool("bin/cargo-deny").missing() {
        println!("not checked: dependencies: {missing}");
        if strict {
            bail!("dependencies cannot be checked here, and --strict wants it");
        }
        return Ok(());
    }
    let check = ["--locked", "--offline", "--all-features", "check", "bans", "licenses", "sources"];
    run(&mut command(tool("bin/cargo-deny"), &check))
}
