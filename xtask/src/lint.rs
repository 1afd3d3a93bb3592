//! `cargo xtask lint`: what must hold of the code before it is run.

mod imports;

use anyhow::Result;

use crate::process::{cargo, run};

/// Stops at the first thing that is wrong.
pub(crate) fn lint() -> Result<()> {
    imports::check()?;
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    run(&mut cargo(&["clippy", "--locked", "--all-targets", "--", "-D", "warnings"]))?;
    // The probe is checked for the host: its own target takes another toolchain and finds the same. Like there,
    // a panic must not unwind, in a folder of its own so that nothing else is built anew for that.
    run(cargo(&["clippy", "--locked", "--package", "biolat-ebpf", "--config", "profile.dev.panic='abort'"])
        .args(["--target-dir", "target/probe-lint", "--", "-D", "warnings"]))?;
    run(cargo(&["doc", "--locked", "--no-deps", "--document-private-items"])
        .env("RUSTDOCFLAGS", "-D warnings"))
}
