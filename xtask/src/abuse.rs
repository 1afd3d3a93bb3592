//! `cargo xtask abuse`: runs the tests that attack the daemon, for longer than usual.

use std::{env, process::Command};

use anyhow::Result;

use crate::process::{cargo, run};

/// Random inputs per property per minute.
const CASES_PER_MINUTE: u32 = 1000;
/// Approximate number of client attacks. Together they take a quarter of the time.
const CLIENT_ATTACKS: u32 = 30;

/// Number of times per minute that a daemon is killed while a drive hangs. This takes a quarter of the time.
const HANGS_PER_MINUTE: u32 = 5;

/// Attacks for about `minutes`, not counting the soak: random inputs and hostile clients first, then the tests that need root,
/// such as failing system calls, limits, hung drives and modified history files.
pub(crate) fn abuse(minutes: u32) -> Result<()> {
    let attack_seconds = (minutes * 60 / 4 / CLIENT_ATTACKS).max(3);
    run(cargo(&["test", "--locked", "--package", "biolat-daemon"])
        .env("PROPTEST_CASES", (CASES_PER_MINUTE * minutes).to_string())
        .env("BIOLAT_ATTACK_SECONDS", attack_seconds.to_string()))?;
    let suites = [
        "faults::",
        "limits::",
        "pins::",
        "killed_while_hung::",
        "history_file::",
        "workloads::live_cgroup_keeps_its_room",
        "soak::",
        "soak_restarts::",
    ];
    for suite in suites {
        run(Command::new(env::current_exe()?)
            .args(["test", suite])
            .env("BIOLAT_TEST_HANGS", (HANGS_PER_MINUTE * minutes).to_string())
            .env("BIOLAT_SOAK_MINUTES", minutes.to_string()))?;
    }
    Ok(())
}
