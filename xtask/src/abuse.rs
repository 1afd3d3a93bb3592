//! `cargo xtask abuse`: the tests that attack the daemon, for longer than they take by default.

use std::{env, process::Command};

use anyhow::Result;

use crate::process::{cargo, run};

/// Random inputs of each property, for each minute.
const CASES_PER_MINUTE: u32 = 1000;
/// Attacks by clients, of which there are about this many, take a fourth of the time.
const CLIENT_ATTACKS: u32 = 30;

/// How often a drive hangs while a daemon is killed, for each minute: this takes a fourth of the time.
const HANGS_PER_MINUTE: u32 = 5;

/// Runs them for about so many minutes: inputs that are made at random, hostile clients, then what needs root: failing system
/// calls, limits, drives that hang, history files that others change, hostile saved files, and the soak.
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
        "workloads::a_live_cgroup_keeps_its_room",
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
