//! Records the results of kernel tests, on the host and in emulated machines, in `docs/kernel-tests.json`, and generates the
//! table in `docs/kernels.md` from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::{
    kernel_sources::digest,
    process::{output, root},
    static_build::Architecture,
};

const FILE: &str = "docs/kernel-tests.json";
const TABLE: (&str, &str) = ("docs/kernels.md", "kernel tests");

/// Results of one run on one kernel.
#[derive(Clone)]
pub(crate) struct KernelRun {
    /// Output of `uname -r`.
    pub(crate) release: String,
    pub(crate) architecture: Architecture,
    /// `host` or `emulated`.
    pub(crate) machine: &'static str,
    pub(crate) passed: BTreeSet<String>,
    /// Tests that this kernel or machine cannot run, with the reason.
    pub(crate) skipped: BTreeMap<String, String>,
    /// Tests that failed or did not finish.
    pub(crate) failed: BTreeSet<String>,
}

impl KernelRun {
    pub(crate) fn print_skipped(&self) {
        for (test, reason) in &self.skipped {
            println!("skipped on {}: {test}: {reason}", self.release);
        }
    }
}

/// Results by kernel series and architecture, as named by [`series`].
type Results = BTreeMap<String, KernelResults>;

/// Recorded results of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct KernelResults {
    release: String,
    architecture: String,
    machines: BTreeSet<String>,
    /// Date of the latest run.
    date: String,
    /// Passed tests by suite.
    passed: BTreeMap<String, BTreeSet<String>>,
    failed: BTreeSet<String>,
    /// [Digest](digest) of the sources, if all of the results are for the same ones.
    #[serde(default)]
    sources: String,
    /// Skipped tests, each with what the kernel or the machine lacks.
    skipped: BTreeMap<String, String>,
}

/// Writes each kernel's results, replacing the results of an earlier kernel of the same series. Unless all tests ran
/// (`is_whole`), keeps other tests' results on the same kernel.
pub(crate) fn write<'a>(runs: impl IntoIterator<Item = &'a KernelRun>, is_whole: bool) -> Result<()> {
    let mut all = read()?;
    let date = output(Command::new("date").args(["-u", "+%F"]))?;
    let runs: Vec<_> = runs.into_iter().collect();
    // All runs are of the same architecture.
    let sources = runs.first().map(|run| digest(run.architecture)).transpose()?.unwrap_or_default();
    add(&mut all, &runs, date.trim(), &sources, is_whole);
    let json = serde_json::to_string_pretty(&all)?;
    fs::write(root().join(FILE), json + "\n").with_context(|| format!("cannot write {FILE}"))?;
    let path = root().join(TABLE.0);
    let text = fs::read_to_string(&path)?;
    let (before, _, after) = parts(&text)?;
    fs::write(path, format!("{before}{}{after}", table(&all))).context("cannot write the table")
}

/// Whether kernels of all these series have results for the current sources, without failures.
pub(crate) fn are_recorded(architecture: Architecture, series: &[&str]) -> Result<bool> {
    let (all, sources) = (read()?, digest(architecture)?);
    Ok(series.iter().all(|series| {
        let results = all.get(&key(architecture, series));
        results.is_some_and(|results| results.sources == sources && results.failed.is_empty())
    }))
}

fn read() -> Result<Results> {
    let text = fs::read_to_string(root().join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    serde_json::from_str(&text).with_context(|| format!("cannot parse {FILE}"))
}

fn add(all: &mut Results, runs: &[&KernelRun], date: &str, sources: &str, is_whole: bool) {
    let mut replaced = BTreeSet::new();
    for run in runs {
        let series = series(run);
        let results = all.entry(series.clone()).or_default();
        let is_first = replaced.insert(series);
        if is_first && is_whole || results.release != run.release {
            *results = KernelResults {
                release: run.release.clone(),
                architecture: run.architecture.name.to_owned(),
                sources: if is_whole { sources.to_owned() } else { String::new() },
                ..KernelResults::default()
            };
        }
        if results.sources != sources {
            results.sources.clear();
        }
        date.clone_into(&mut results.date);
        results.add(run);
    }
}

impl KernelResults {
    fn add(&mut self, run: &KernelRun) {
        self.machines.insert(run.machine.to_owned());
        for test in run.passed.iter().chain(&run.failed).chain(run.skipped.keys()) {
            self.remove(test);
        }
        for test in &run.passed {
            let (suite, name) = suite_and_name(test);
            self.passed.entry(suite.to_owned()).or_default().insert(name.to_owned());
        }
        self.failed.extend(run.failed.iter().cloned());
        self.skipped.extend(run.skipped.clone());
    }

    fn remove(&mut self, test: &str) {
        let (suite, name) = suite_and_name(test);
        if let Some(tests) = self.passed.get_mut(suite) {
            tests.remove(name);
        }
        self.passed.retain(|_, tests| !tests.is_empty());
        self.failed.remove(test);
        self.skipped.remove(test);
    }

    fn row(&self) -> String {
        let Self { release, architecture, machines, date, passed, failed, sources: _, skipped } = self;
        let machines = machines.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let tests = passed.values().map(BTreeSet::len).sum::<usize>();
        let failed = list(failed.iter().map(|test| format!("`{test}`")));
        let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (test, reason) in skipped {
            by_reason.entry(reason).or_default().push(format!("`{test}`"));
        }
        let skipped = list(by_reason.iter().map(|(reason, tests)| format!("{}: {reason}", tests.join(", "))));
        format!(
            "| {release} | {architecture} | {machines} | {date} | {} | {tests} | {failed} | {skipped} |\n",
            passed.len()
        )
    }
}

fn list(entries: impl Iterator<Item = String>) -> String {
    let entries: Vec<_> = entries.collect();
    if entries.is_empty() { "none".to_owned() } else { entries.join("; ") }
}

fn suite_and_name(test: &str) -> (&str, &str) {
    test.split_once("::").unwrap_or((test, ""))
}

/// Returns the series of a kernel: `6.12` for `6.12.117+deb13-cloud-amd64`, `6.12-arm64-16k` for `6.12.117+deb13-arm64-16k`, and
/// `6.18-arm64` for `6.18.1` on arm64.
fn series(run: &KernelRun) -> String {
    let numbers = run.release.split('.').take(2).collect::<Vec<_>>().join(".");
    if run.architecture == Architecture::AMD64 {
        return numbers;
    }
    let suffix = format!("-{}", run.architecture.name);
    let flavour = run.release.find(&suffix).map_or(&suffix[..], |place| &run.release[place..]);
    numbers + flavour
}

/// Returns the key of a series with this name, such as `6.12-arm64-16k` for `6.12-16k` on arm64.
fn key(architecture: Architecture, name: &str) -> String {
    if architecture == Architecture::AMD64 {
        return name.to_owned();
    }
    let (numbers, flavour) = name.split_at(name.find('-').unwrap_or(name.len()));
    format!("{numbers}-{}{flavour}", architecture.name)
}

/// Splits the file's text into the parts before, in and after the table.
fn parts(text: &str) -> Result<(&str, &str, &str)> {
    let begin = format!("<!-- generated: {} -->\n", TABLE.1);
    let place = text.find(&begin).with_context(|| format!("{} has no {begin}", TABLE.0))? + begin.len();
    let (before, rest) = text.split_at(place);
    let end = rest.find("<!-- end -->").with_context(|| format!("{}: the table has no end", TABLE.0))?;
    let (table, after) = rest.split_at(end);
    Ok((before, table, after))
}

fn table(all: &Results) -> String {
    let mut rows: Vec<_> = all.iter().collect();
    rows.sort_by_key(|(series, _)| sort_key(series));
    let rows = rows.into_iter().map(|(_, results)| results.row()).collect::<String>();
    format!(
        "\n| kernel | architecture | machine | tested on | suites | tests passed | failed | skipped |\n\
         |---|---|---|---|---|---|---|---|\n{rows}\n"
    )
}

/// Sorts by version number, with arm64 after amd64.
fn sort_key(series: &str) -> (bool, Vec<u32>) {
    let numbers = series.split(['.', '-']).map_while(|number| number.parse().ok());
    (series.contains("arm64"), numbers.collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{KernelRun, Results, TABLE, add, key, parts, read, series, table};
    use crate::{process::root, static_build::Architecture};

    #[test]
    fn documentation_has_the_recorded_results() {
        let text = fs::read_to_string(root().join(TABLE.0)).unwrap();
        let expected = table(&read().unwrap());
        assert_eq!(parts(&text).unwrap().1, expected, "rewrite it: cargo xtask test --write, or vm --write");
    }

    fn run(release: &str, passed: &[&str], failed: &[&str], skipped: &[&str]) -> KernelRun {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        KernelRun {
            release: release.to_owned(),
            architecture: Architecture::AMD64,
            machine: "emulated",
            passed: names(passed),
            failed: names(failed),
            skipped: skipped.iter().map(|&name| (name.to_owned(), "no such thing".to_owned())).collect(),
        }
    }

    fn on_arm64(release: &str, passed: &[&str]) -> KernelRun {
        KernelRun { architecture: Architecture::ARM64, ..run(release, passed, &[], &[]) }
    }

    fn on_host(release: &str, passed: &[&str], failed: &[&str], skipped: &[&str]) -> KernelRun {
        KernelRun { machine: "host", ..run(release, passed, failed, skipped) }
    }

    fn rows(all: &Results) -> String {
        table(all).trim_end().lines().skip(3).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn table_has_a_row_per_series() {
        let mut all = Results::new();
        let tests = ["api::a", "api::b", "counts::a"];
        let runs = [
            run("6.12.117+deb13", &tests, &[], &[]),
            on_arm64("6.1.176-cloud-arm64", &tests),
            on_arm64("6.12.117-arm64-16k", &tests),
            on_arm64("6.12.117-cloud-arm64", &tests),
            on_arm64("6.13.1-200.aarch64", &tests),
            // Two machines with the same kernel.
            run("6.2.0", &tests, &[], &[]),
            run("6.2.0", &["scale::a"], &["scale::b"], &["zones::a", "zones::b"]),
        ];
        add(&mut all, &runs.each_ref(), "2026-11-23", "a", true);
        assert_eq!(
            rows(&all),
            "| 6.2.0 | amd64 | emulated | 2026-11-23 | 3 | 4 | `scale::b` | `zones::a`, `zones::b`: no such thing |\n\
             | 6.12.117+deb13 | amd64 | emulated | 2026-11-23 | 2 | 3 | none | none |\n\
             | 6.1.176-cloud-arm64 | arm64 | emulated | 2026-11-23 | 2 | 3 | none | none |\n\
             | 6.12.117-cloud-arm64 | arm64 | emulated | 2026-11-23 | 2 | 3 | none | none |\n\
             | 6.12.117-arm64-16k | arm64 | emulated | 2026-11-23 | 2 | 3 | none | none |\n\
             | 6.13.1-200.aarch64 | arm64 | emulated | 2026-11-23 | 2 | 3 | none | none |"
        );
    }

    #[test]
    fn series_have_the_keys_of_their_kernels() {
        assert_eq!(
            key(Architecture::AMD64, "6.12"),
            series(&run("6.12.117+deb13-cloud-amd64", &[], &[], &[]))
        );
        assert_eq!(key(Architecture::ARM64, "6.12"), series(&on_arm64("6.12.117-cloud-arm64", &[])));
        assert_eq!(key(Architecture::ARM64, "6.12-16k"), series(&on_arm64("6.12.117-arm64-16k", &[])));
    }

    #[test]
    fn results_are_of_the_same_sources_or_of_none() {
        let mut all = Results::new();
        let mut sources = |run: &KernelRun, sources: &str, is_whole: bool| {
            add(&mut all, &[run], "2026-11-22", sources, is_whole);
            all["6.2"].sources.clone()
        };
        let run = run("6.2.1", &["api::a"], &[], &[]);
        assert_eq!(sources(&run, "a", false), "", "the first run is not whole");
        assert_eq!(sources(&run, "a", true), "a");
        assert_eq!(sources(&run, "a", false), "a");
        assert_eq!(sources(&run, "b", false), "", "some results are of other sources");
        assert_eq!(sources(&run, "b", true), "b");
    }

    #[test]
    fn rerun_tests_replace_their_results() {
        let mut all = Results::new();
        let mut add = |run: KernelRun, date: &str, is_whole: bool| {
            add(&mut all, &[&run], date, "a", is_whole);
            rows(&all)
        };
        add(run("6.2.1", &["api::a"], &["api::b", "counts::a"], &[]), "2026-11-22", true);
        assert_eq!(
            add(run("6.2.1", &["api::b"], &[], &["counts::a"]), "2026-11-23", false),
            "| 6.2.1 | amd64 | emulated | 2026-11-23 | 1 | 2 | none | `counts::a`: no such thing |"
        );
        assert_eq!(
            add(run("6.2.1", &[], &["api::a"], &[]), "2026-11-24", false),
            "| 6.2.1 | amd64 | emulated | 2026-11-24 | 1 | 1 | `api::a` | `counts::a`: no such thing |"
        );
        // Another kernel of the series.
        assert_eq!(
            add(run("6.2.2", &["api::b"], &[], &[]), "2026-11-25", false),
            "| 6.2.2 | amd64 | emulated | 2026-11-25 | 1 | 1 | none | none |"
        );
        // The same kernel on the host.
        assert_eq!(
            add(on_host("6.2.2", &["page::a"], &["api::b"], &["web::a"]), "2026-11-26", false),
            "| 6.2.2 | amd64 | emulated, host | 2026-11-26 | 1 | 1 | `api::b` | `web::a`: no such thing |"
        );
        assert_eq!(
            add(on_host("6.2.2", &["page::a", "api::b"], &[], &[]), "2026-11-27", true),
            "| 6.2.2 | amd64 | host | 2026-11-27 | 2 | 2 | none | none |"
        );
    }
}
