//! Checks the jsonnet mixin: it renders the rules in `deploy/prometheus`, and a custom `_config` takes effect everywhere.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    folder::make_empty,
    host::{Requirement, python, tool},
    process::{command, root, run},
};

pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::Program("jsonnet", "jsonnet"),
    Requirement::Tool("bin/promtool"),
    Requirement::PythonPackage("yaml", "kubernetes-validate==1.37.0"),
];

const MIXIN: &str = "deploy/mixin";
const FILES: &str = "deploy/mixin/files.jsonnet";
/// The mixin with a custom `_config`, and promtool's tests for it.
const OTHER: &str = "deploy/mixin/tests/other.jsonnet";
const OTHER_TESTS: &str = "deploy/mixin/tests/other.yml";
/// The mixin with an SLO's latency target between two classic bucket bounds.
const BETWEEN_BUCKETS: &str = "deploy/mixin/tests/between_buckets.jsonnet";
/// The dashboards with the default `_config`.
const DEFAULT: &str = "deploy/mixin/tests/default.jsonnet";
const RULES: &str = "deploy/prometheus";
const DASHBOARDS: &str = "deploy/grafana";
/// Directory for files rendered by the checks.
const SCRATCH: &str = "target/tmp/deploy-mixin";

/// Grafana variables for time ranges, which promtool cannot parse.
const WINDOWS: [&str; 3] = ["$__rate_interval", "$__range", "$__interval"];

/// Python program that fails unless two files have the same content: the first in JSON or YAML, the second in JSON.
const COMPARE: &str = "\
import json, sys, yaml
first, second = map(open, sys.argv[1:])
load = json.load if first.name.endswith('.json') else yaml.safe_load
sys.exit(load(first) != json.load(second))";

/// Checks the formatting of the sources, the committed rules, and the effect of a custom `_config`.
pub(super) fn check() -> Result<()> {
    run(command("jsonnetfmt", &["--test", "--"]).args(sources(&root().join(MIXIN))?))
        .context("format the mixin with: jsonnetfmt --in-place")?;
    check_rules()?;
    check_dashboards()?;
    check_other_config()?;
    check_between_buckets()
}

/// Writes the rules.
pub(super) fn write() -> Result<()> {
    render(FILES, &["--string"], &root().join(RULES))
}

/// Returns the jsonnet files in a directory.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources.append(&mut self::sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "jsonnet" || extension == "libsonnet")
        {
            sources.push(path);
        }
    }
    Ok(sources)
}

/// Writes each field of a jsonnet file's object to a file named after it.
fn render(file: &str, options: &[&str], folder: &Path) -> Result<()> {
    run(command("jsonnet", options).arg("--multi").arg(folder).arg(file))
}

fn scratch(name: &str) -> Result<PathBuf> {
    let folder = root().join(SCRATCH).join(name);
    make_empty(&folder)?;
    Ok(folder)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Checks that the mixin renders the committed rules, and that its YAML is equivalent to its JSON.
fn check_rules() -> Result<()> {
    let (yaml, json) = (scratch("yaml")?, scratch("json")?);
    render(FILES, &["--string"], &yaml)?;
    render(FILES, &["--tla-str", "format=json"], &json)?;
    for entry in fs::read_dir(&yaml)? {
        let name = entry?.file_name();
        let file = Path::new(RULES).join(&name);
        ensure!(
            read(&root().join(&file))? == read(&yaml.join(&name))?,
            "{} is stale: regenerate it with: cargo xtask deploy --write mixin",
            file.display()
        );
        compare(&yaml.join(&name), &json.join(&name))?;
    }
    Ok(())
}

fn compare(file: &Path, json: &Path) -> Result<()> {
    let status = command(python(), &["-c", COMPARE]).args([file, json]).status()?;
    ensure!(status.success(), "{} differs from what the mixin renders as JSON", file.display());
    Ok(())
}

/// Checks that the default `_config` leaves the dashboards unchanged.
fn check_dashboards() -> Result<()> {
    let folder = scratch("dashboards")?;
    render(DEFAULT, &[], &folder)?;
    for file in ["biolat.json", "biolat-classic.json"] {
        compare(&root().join(DASHBOARDS).join(file), &folder.join(file))?;
    }
    Ok(())
}

/// Checks that rules and dashboards with a custom `_config` are valid and contain nothing from the default one.
fn check_other_config() -> Result<()> {
    let folder = scratch("other")?;
    render(OTHER, &[], &folder)?;
    write_panels(&folder)?;
    let rules = ["alerts.json", "recording.json", "recording-classic.json", "panels.json"];
    run(command(tool("bin/promtool"), &["check", "rules", "--lint=none"]).args(rules).current_dir(&folder))?;
    fs::copy(root().join(OTHER_TESTS), folder.join("other.yml"))?;
    run(command(tool("bin/promtool"), &["test", "rules", "other.yml"]).current_dir(&folder))?;
    for file in rules {
        for expression in expressions(&folder.join(file))? {
            let left = leftover_default(&expression);
            ensure!(
                left.is_none(),
                "{file}: {} from the default _config: {expression}",
                left.unwrap_or_default()
            );
        }
    }
    check_values(&read(&folder.join("alerts.json"))?, &read(&folder.join("dashboards.json"))?)
}

/// Checks that a latency target that is not a classic bucket bound is rejected.
fn check_between_buckets() -> Result<()> {
    let output = command("jsonnet", &[BETWEEN_BUCKETS]).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && error.contains("0.01 s is not the bound of a classic bucket"),
        "{BETWEEN_BUCKETS} rendered, or failed for another reason: {error}"
    );
    Ok(())
}

/// Writes the dashboards' expressions as rules, so that promtool can parse them.
fn write_panels(folder: &Path) -> Result<()> {
    let rules: Vec<_> = expressions(&folder.join("dashboards.json"))?
        .iter()
        .enumerate()
        .map(|(place, expression)| {
            let expression =
                WINDOWS.iter().fold(expression.clone(), |text, window| text.replace(window, "5m"));
            json!({"record": format!("panel:{place}"), "expr": expression})
        })
        .collect();
    let groups = json!({"groups": [{"name": "panels", "rules": rules}]});
    fs::write(folder.join("panels.json"), groups.to_string()).context("cannot write panels.json")
}

/// Returns the expressions of rules or panels.
fn expressions(file: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    collect("expr", &serde_json::from_str(&read(file)?)?, &mut found);
    ensure!(!found.is_empty(), "{}: no expressions", file.display());
    Ok(found)
}

/// Collects the strings in all fields named `field`.
fn collect(field: &str, tree: &Value, found: &mut Vec<String>) {
    match tree {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == field => found.push(text.clone()),
                    _ => collect(field, value, found),
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| collect(field, element, found)),
        _ => {}
    }
}

/// Returns a remnant of the default `_config` in an expression, if there is one. `$cluster` is allowed, because it is a dashboard
/// variable.
fn leftover_default(expression: &str) -> Option<&'static str> {
    let is_of_name =
        |character: char| character.is_ascii_alphanumeric() || character == '_' || character == ':';
    let is_selected = expression.match_indices("biolat_").all(|(place, _)| {
        let name = expression[place..].trim_start_matches(is_of_name);
        expression[..place].ends_with([':', '_']) || name.starts_with("{env=\"production\"")
    });
    if !is_selected {
        Some("a series without the selector")
    } else if expression.replace("$cluster", "").contains("cluster") {
        Some("the cluster label")
    } else if expression.contains("job=\"biolat") || expression.contains("job=~\"biolat") {
        Some("the job")
    } else {
        None
    }
}

/// Checks values that the tests in `other.yml` do not cover.
fn check_values(alerts: &str, dashboards: &str) -> Result<()> {
    for text in [
        "or vector(2.5))",
        "is 2.5 times as slow",
        "> 14.4 * (1 - 0.98)",
        "more than four times the median",
        "More than 5 % of the I/O",
        "There is no target with job=\\\"storage\\\"",
    ] {
        ensure!(alerts.contains(text), "no alert with the custom _config contains: {text}");
    }
    ensure!(!alerts.contains("BlockDeviceFlushStorm"), "ignoredAlerts does not remove the alert");
    ensure!(!alerts.contains("runbooks.example"), "runbookURLPattern does not replace all URLs");
    for text in
        ["\"Storage / ", "\"storage-team\"", "label_values(biolat_build_info{env=\\\"production\\\"}, site)"]
    {
        ensure!(
            dashboards.matches(text).count() == 2,
            "the dashboards with the custom _config do not both contain: {text}"
        );
    }
    ensure!(!dashboards.contains("{{cluster}}"), "a dashboard legend has the default cluster label");
    Ok(())
}
