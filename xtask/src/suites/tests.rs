//! Tests that the lists of suites are consistent and complete.

use std::{collections::BTreeSet, fs, path::Path};

use super::{
    ANY_PROMETHEUS, CLIENT_TESTS, EXACTNESS, Extent, LONG, ON_NEWEST_KERNEL_ONLY, PROMETHEUS, SUITES, Suite,
};
use crate::{host::Requirement, process::root};

#[test]
fn listed_suites_run_in_guests() {
    for name in EXACTNESS.iter().chain(&LONG).chain(&ON_NEWEST_KERNEL_ONLY) {
        assert!(SUITES.iter().any(|suite| suite.name == *name && !suite.guests.is_empty()), "{name}");
    }
}

#[test]
fn host_and_guests_cover_every_short_suite() {
    let is_expected = |suite: &&Suite| !suite.guests.is_empty() && !LONG.contains(&suite.name);
    for suite in SUITES.iter().filter(is_expected) {
        let in_guests = [true, false].map(|is_newest| suite.runs_on(is_newest, Extent::ComplementHost));
        assert!(suite.on_host || in_guests.contains(&true), "{}", suite.name);
    }
}

/// Programs that every Debian system has or that all kernel tests require.
const ALWAYS_THERE: &[&str] =
    &["date", "dd", "losetup", "mkfifo", "mount", "sh", "stat", "sync", "timeout", "umount", "unshare"];

#[test]
fn suites_require_the_programs_they_run() {
    let tests = root().join("biolat-daemon/tests");
    let userspace = [tests.join("userspace"), root().join("biolat-cli/tests/userspace")];
    for entry in userspace.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(Result::unwrap) {
        let Some(name) =
            entry.file_name().to_str().and_then(|name| name.strip_suffix(".rs")).map(str::to_owned)
        else {
            continue;
        };
        let text = fs::read_to_string(entry.path()).unwrap();
        if text.contains("#[ignore") {
            let (_, needs) = CLIENT_TESTS.iter().find(|(module, _)| *module == name).expect(&name);
            assert_required(&name, needs, &text);
        }
    }
    for suite in SUITES.iter().filter(|suite| suite.on_host) {
        let text = source_with_support(&tests.join("kernel"), suite.name);
        assert_required(suite.name, suite.needs, &text);
    }
}

/// Returns the source of a kernel test module and the support modules it uses, except `prometheus`: which Prometheus it starts
/// depends on the caller.
fn source_with_support(tests: &Path, suite: &str) -> String {
    let own = fs::read_to_string(tests.join(format!("{suite}.rs"))).unwrap();
    let name =
        |before: &str| before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
    let used: BTreeSet<_> = own.split("::").filter_map(name).filter(|name| name != "prometheus").collect();
    let support =
        used.iter().filter_map(|name| fs::read_to_string(tests.join(format!("support/{name}.rs"))).ok());
    support.collect::<String>() + &own
}

fn assert_required(module: &str, needs: &[Requirement], text: &str) {
    let after = |start: &'static str| text.split(start).skip(1);
    let quoted = |after: &str| Some(after.trim_start().strip_prefix('"')?.split('"').next()?.to_owned());
    let programs = after("Command::new(").chain(after("run(")).filter_map(quoted);
    for program in programs.filter(|program| !ALWAYS_THERE.contains(&&**program)) {
        let is_it = |need: &Requirement| matches!(need, Requirement::Program(name, _) if *name == program);
        assert!(needs.iter().any(is_it), "{module} runs {program}, which it does not require");
    }
    let uses = |names: &[&str]| names.iter().any(|name| text.contains(&format!("{name}(")));
    if uses(&["new_program", "Prometheus::recording"]) {
        assert!(needs.contains(&PROMETHEUS), "{module} runs a new Prometheus, which it does not require");
    }
    if uses(&["Prometheus::scraping", "Prometheus::start", "Prometheus::alerting"])
        || text.contains("\"prometheus\".as_ref()")
    {
        assert!(needs.contains(&ANY_PROMETHEUS), "{module} runs Prometheus, which it does not require");
    }
}
