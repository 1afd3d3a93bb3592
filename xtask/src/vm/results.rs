//! The results of runs, in `docs/kernel-tests.json`, and the table in `docs/kernels.md` that is made from them.

use std::{collections::BTreeMap, fs, process::Command};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::guest::ResultRow;
use crate::process::{output, root};

const FILE: &str = "docs/kernel-tests.json";
const TABLE: (&str, &str) = ("docs/kernels.md", "kernel tests");

/// Writes the results of each kernel on which no test has failed, in the place of those of an earlier kernel of its series.
pub(super) fn write(rows: &[ResultRow]) -> Result<()> {
    let mut all = read()?;
    let date = output(Command::new("date").args(["-u", "+%F"]))?;
    for row in rows {
        let of_kernel: Vec<_> = rows.iter().filter(|other| other.release == row.release).collect();
        if of_kernel.iter().all(|row| row.failure.is_none()) {
            all.insert(series(&row.release), results(&row.release, date.trim(), &of_kernel));
        }
    }
    let json = serde_json::to_string_pretty(&Value::Object(all.clone()))?;
    fs::write(root().join(FILE), json + "\n").with_context(|| format!("cannot write {FILE}"))?;
    let path = root().join(TABLE.0);
    let text = fs::read_to_string(&path)?;
    let (before, _, after) = parts(&text)?;
    fs::write(path, format!("{before}{}{after}", table(&all))).context("cannot write the table")
}

fn read() -> Result<Map<String, Value>> {
    let text = fs::read_to_string(root().join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    serde_json::from_str(&text).with_context(|| format!("cannot parse {FILE}"))
}

/// `6.12.117+deb13-cloud-amd64` is of the series `6.12`, and `6.12.117+deb13-arm64-16k` of `6.12-arm64-16k`.
fn series(release: &str) -> String {
    let numbers = release.split('.').take(2).collect::<Vec<_>>().join(".");
    let architecture = release.find("-arm64").map_or("", |place| &release[place..]);
    numbers + architecture
}

fn results(release: &str, date: &str, rows: &[&ResultRow]) -> Value {
    let mut suites: BTreeMap<&str, usize> = BTreeMap::new();
    for test in rows.iter().flat_map(|row| &row.passed) {
        *suites.entry(test.split("::").next().unwrap_or(test)).or_default() += 1;
    }
    let skipped: BTreeMap<_, _> = rows.iter().flat_map(|row| &row.skipped).collect();
    json!({ "release": release, "date": date, "passed": suites, "skipped": skipped })
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

fn table(all: &Map<String, Value>) -> String {
    let mut rows: Vec<_> = all.iter().collect();
    rows.sort_by_key(|(series, _)| sort_key(series));
    let rows = rows.into_iter().map(|(_, results)| row(results)).collect::<String>();
    format!("\n| kernel | tested on | suites | tests | skipped |\n|---|---|---|---|---|\n{rows}\n")
}

/// By number, and those of another architecture after the others.
fn sort_key(series: &str) -> (bool, Vec<u32>) {
    let numbers = series.split(['.', '-']).map_while(|number| number.parse().ok());
    (series.contains("arm64"), numbers.collect())
}

fn row(results: &Value) -> String {
    let text = |name: &str| results[name].as_str().unwrap_or_default();
    let entries = |name: &str| results[name].as_object().into_iter().flatten();
    let tests: u64 = entries("passed").filter_map(|(_, count)| count.as_u64()).sum();
    let skipped: Vec<_> = entries("skipped")
        .map(|(test, reason)| format!("`{test}`: {}", reason.as_str().unwrap_or_default()))
        .collect();
    let skipped = if skipped.is_empty() { "none".to_owned() } else { skipped.join("; ") };
    let suites = entries("passed").count();
    format!("| {} | {} | {suites} | {tests} | {skipped} |\n", text("release"), text("date"))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use serde_json::{Map, json};

    use super::{TABLE, parts, read, series, table};
    use crate::process::root;

    #[test]
    fn the_documentation_has_the_recorded_results() {
        let text = fs::read_to_string(root().join(TABLE.0)).unwrap();
        let expected = table(&read().unwrap());
        assert_eq!(parts(&text).unwrap().1, expected, "rewrite it: cargo xtask vm --write");
    }

    #[test]
    fn a_row_for_each_series() {
        let results = |release: &str, skipped: BTreeMap<&str, &str>| {
            let passed = json!({ "api": 2, "counts": 40 });
            let date = "2026-11-23";
            let of_series = json!({ "release": release, "date": date, "passed": passed, "skipped": skipped });
            (series(release), of_series)
        };
        let all: Map<_, _> = [
            results("6.12.117+deb13", BTreeMap::new()),
            results("6.1.176-cloud-arm64", BTreeMap::new()),
            results("6.2.0", [("api::a", "no a"), ("api::b", "no b")].into()),
            results("6.12.117-arm64-16k", BTreeMap::new()),
            results("6.12.117-cloud-arm64", BTreeMap::new()),
        ]
        .into_iter()
        .collect();
        let rows = "| 6.2.0 | 2026-11-23 | 2 | 42 | `api::a`: no a; `api::b`: no b |\n\
                    | 6.12.117+deb13 | 2026-11-23 | 2 | 42 | none |\n\
                    | 6.1.176-cloud-arm64 | 2026-11-23 | 2 | 42 | none |\n\
                    | 6.12.117-cloud-arm64 | 2026-11-23 | 2 | 42 | none |\n\
                    | 6.12.117-arm64-16k | 2026-11-23 | 2 | 42 | none |\n\n";
        assert!(table(&all).ends_with(rows), "{}", table(&all));
    }
}
