//! The results of runs, in `docs/kernel-tests.json`, and the table in `docs/kernels.md` that is made from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::guest::ResultRow;
use crate::process::{output, root};

const FILE: &str = "docs/kernel-tests.json";
const TABLE: (&str, &str) = ("docs/kernels.md", "kernel tests");

/// The results of the kernels by their series.
type Results = BTreeMap<String, KernelResults>;

/// What ran on a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct KernelResults {
    release: String,
    /// Of the latest run.
    date: String,
    /// Tests by suite.
    passed: BTreeMap<String, BTreeSet<String>>,
    failed: BTreeSet<String>,
    /// With what the kernel or the machine lacks.
    skipped: BTreeMap<String, String>,
}

/// Writes the results of each kernel, in the place of those of an earlier kernel of its series. Unless all tests ran, results of
/// other tests on the same kernel stay.
pub(super) fn write(rows: &[ResultRow], is_whole: bool) -> Result<()> {
    let mut all = read()?;
    let date = output(Command::new("date").args(["-u", "+%F"]))?;
    add(&mut all, rows, date.trim(), is_whole);
    let json = serde_json::to_string_pretty(&all)?;
    fs::write(root().join(FILE), json + "\n").with_context(|| format!("cannot write {FILE}"))?;
    let path = root().join(TABLE.0);
    let text = fs::read_to_string(&path)?;
    let (before, _, after) = parts(&text)?;
    fs::write(path, format!("{before}{}{after}", table(&all))).context("cannot write the table")
}

fn read() -> Result<Results> {
    let text = fs::read_to_string(root().join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    serde_json::from_str(&text).with_context(|| format!("cannot parse {FILE}"))
}

fn add(all: &mut Results, rows: &[ResultRow], date: &str, is_whole: bool) {
    let releases: BTreeSet<_> = rows.iter().map(|row| &row.release).collect();
    for release in releases {
        let results = all.entry(series(release)).or_default();
        if is_whole || results.release != *release {
            *results = KernelResults { release: release.clone(), ..KernelResults::default() };
        }
        date.clone_into(&mut results.date);
        rows.iter().filter(|row| row.release == *release).for_each(|row| results.add(row));
    }
}

impl KernelResults {
    fn add(&mut self, row: &ResultRow) {
        for test in row.passed.iter().chain(&row.failed).chain(row.skipped.keys()) {
            self.remove(test);
        }
        for test in &row.passed {
            let (suite, name) = suite_and_name(test);
            self.passed.entry(suite.to_owned()).or_default().insert(name.to_owned());
        }
        self.failed.extend(row.failed.iter().cloned());
        self.skipped.extend(row.skipped.clone());
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
        let Self { release, date, passed, failed, skipped } = self;
        let tests = passed.values().map(BTreeSet::len).sum::<usize>();
        let failed = list(failed.iter().map(|test| format!("`{test}`")));
        let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (test, reason) in skipped {
            by_reason.entry(reason).or_default().push(format!("`{test}`"));
        }
        let skipped = list(by_reason.iter().map(|(reason, tests)| format!("{}: {reason}", tests.join(", "))));
        format!("| {release} | {date} | {} | {tests} | {failed} | {skipped} |\n", passed.len())
    }
}

fn list(entries: impl Iterator<Item = String>) -> String {
    let entries: Vec<_> = entries.collect();
    if entries.is_empty() { "none".to_owned() } else { entries.join("; ") }
}

fn suite_and_name(test: &str) -> (&str, &str) {
    test.split_once("::").unwrap_or((test, ""))
}

/// `6.12.117+deb13-cloud-amd64` is of the series `6.12`, and `6.12.117+deb13-arm64-16k` of `6.12-arm64-16k`.
fn series(release: &str) -> String {
    let numbers = release.split('.').take(2).collect::<Vec<_>>().join(".");
    let architecture = release.find("-arm64").map_or("", |place| &release[place..]);
    numbers + architecture
}

/// The file's text before, in and after the table.
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
        "\n| kernel | tested on | suites | tests passed | failed | skipped |\n|---|---|---|---|---|---|\n{rows}\n"
    )
}

/// By number, and those of another architecture after the others.
fn sort_key(series: &str) -> (bool, Vec<u32>) {
    let numbers = series.split(['.', '-']).map_while(|number| number.parse().ok());
    (series.contains("arm64"), numbers.collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Results, TABLE, add, parts, read, table};
    use crate::{process::root, vm::guest::ResultRow};

    #[test]
    fn the_documentation_has_the_recorded_results() {
        let text = fs::read_to_string(root().join(TABLE.0)).unwrap();
        let expected = table(&read().unwrap());
        assert_eq!(parts(&text).unwrap().1, expected, "rewrite it: cargo xtask vm --write");
    }

    fn row(release: &str, passed: &[&str], failed: &[&str], skipped: &[&str]) -> ResultRow {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let skipped = skipped.iter().map(|&name| (name.to_owned(), "no such thing".to_owned())).collect();
        ResultRow::of_results(release, names(passed), names(failed), skipped)
    }

    fn rows(all: &Results) -> String {
        table(all).trim_end().lines().skip(3).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_row_for_each_series() {
        let mut all = Results::new();
        let tests = ["api::a", "api::b", "counts::a"];
        let releases =
            ["6.12.117+deb13", "6.1.176-cloud-arm64", "6.12.117-arm64-16k", "6.12.117-cloud-arm64"];
        let mut ran: Vec<_> = releases.iter().map(|release| row(release, &tests, &[], &[])).collect();
        // Two machines with the same kernel.
        ran.push(row("6.2.0", &tests, &[], &[]));
        ran.push(row("6.2.0", &["scale::a"], &["scale::b"], &["zones::a", "zones::b"]));
        add(&mut all, &ran, "2026-11-23", true);
        assert_eq!(
            rows(&all),
            "| 6.2.0 | 2026-11-23 | 3 | 4 | `scale::b` | `zones::a`, `zones::b`: no such thing |\n\
             | 6.12.117+deb13 | 2026-11-23 | 2 | 3 | none | none |\n\
             | 6.1.176-cloud-arm64 | 2026-11-23 | 2 | 3 | none | none |\n\
             | 6.12.117-cloud-arm64 | 2026-11-23 | 2 | 3 | none | none |\n\
             | 6.12.117-arm64-16k | 2026-11-23 | 2 | 3 | none | none |"
        );
    }

    #[test]
    fn tests_that_run_again_replace_their_results() {
        let mut all = Results::new();
        add(&mut all, &[row("6.2.1", &["api::a"], &["api::b", "counts::a"], &[])], "2026-11-22", true);
        add(&mut all, &[row("6.2.1", &["api::b"], &[], &["counts::a"])], "2026-11-23", false);
        assert_eq!(rows(&all), "| 6.2.1 | 2026-11-23 | 1 | 2 | none | `counts::a`: no such thing |");
        add(&mut all, &[row("6.2.1", &[], &["api::a"], &[])], "2026-11-24", false);
        assert_eq!(rows(&all), "| 6.2.1 | 2026-11-24 | 1 | 1 | `api::a` | `counts::a`: no such thing |");
        // Another kernel of the series.
        add(&mut all, &[row("6.2.2", &["api::b"], &[], &[])], "2026-11-25", false);
        assert_eq!(rows(&all), "| 6.2.2 | 2026-11-25 | 1 | 1 | none | none |");
    }
}
