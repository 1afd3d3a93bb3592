//! Reads Prometheus rule files and selects the rules that the given alerts need.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::duration;

/// Alert that finds slow drives among many.
pub(crate) const ALERT: &str = "BlockDeviceFailSlow";

#[derive(Deserialize)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default = "default_interval", deserialize_with = "duration::deserialize")]
    interval: Duration,
    rules: Vec<Rule>,
}

/// Returns Prometheus' default.
const fn default_interval() -> Duration {
    Duration::from_secs(60)
}

/// A recording rule or an alert.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Rule {
    pub(crate) record: Option<String>,
    pub(crate) alert: Option<String>,
    pub(crate) expr: String,
    #[serde(default, rename = "for", deserialize_with = "duration::deserialize")]
    pub(crate) pending_for: Duration,
    #[serde(default, deserialize_with = "duration::deserialize")]
    pub(crate) keep_firing_for: Duration,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// Evaluation interval of its group.
    #[serde(skip)]
    pub(crate) interval: Duration,
}

impl Rule {
    /// Returns all identifiers in its expression: names of metrics and labels, functions and keywords.
    fn identifiers(&self) -> impl Iterator<Item = &str> {
        let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':';
        self.expr.split(is_other).filter(|word| !word.is_empty())
    }
}

/// The selected alerts and the rules that they need.
pub(crate) struct RuleSet {
    /// Rules that the alerts refer to, directly or indirectly, in file order.
    pub(crate) recording: Vec<Rule>,
    pub(crate) alerts: Vec<Rule>,
}

impl RuleSet {
    /// Reads the alerts with these names. Names that are missing from the files are ignored, unless all are missing.
    pub(crate) fn read(files: &[PathBuf], alerts: &[String]) -> Result<Self> {
        let mut rules = Vec::new();
        for file in files {
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            let parsed: RuleFile = yaml_serde::from_str(&text)
                .with_context(|| format!("{} is not a rule file", file.display()))?;
            for Group { interval, rules: of_group } in parsed.groups {
                rules.extend(of_group.into_iter().map(|rule| Rule { interval, ..rule }));
            }
        }
        Self::of(rules, alerts)
    }

    pub(crate) fn of(rules: Vec<Rule>, names: &[String]) -> Result<Self> {
        let (alerts, recording): (Vec<_>, Vec<_>) = rules.into_iter().partition(|rule| rule.alert.is_some());
        let is_named = |rule: &Rule| rule.alert.as_ref().is_some_and(|alert| names.contains(alert));
        let alerts: Vec<_> = alerts.into_iter().filter(is_named).collect();
        if alerts.is_empty() {
            bail!("none of the alerts {} is in the rule files", names.join(", "));
        }
        // A rule may precede one that it refers to.
        let mut needed: HashSet<_> = identifiers(&alerts).collect();
        let mut before = 0;
        while needed.len() > before {
            before = needed.len();
            for rule in &recording {
                if is_recorded(rule, &needed) {
                    needed.extend(rule.identifiers());
                }
            }
        }
        let is_needed: Vec<_> = recording.iter().map(|rule| is_recorded(rule, &needed)).collect();
        let recording =
            recording.into_iter().zip(is_needed).filter_map(|(rule, is_needed)| is_needed.then_some(rule));
        Ok(Self { recording: recording.collect(), alerts })
    }

    /// Returns all identifiers in the expressions, including the names of metrics.
    pub(crate) fn identifiers(&self) -> HashSet<String> {
        identifiers(&self.recording).chain(identifiers(&self.alerts)).map(str::to_owned).collect()
    }
}

fn identifiers(rules: &[Rule]) -> impl Iterator<Item = &str> {
    rules.iter().flat_map(Rule::identifiers)
}

fn is_recorded(rule: &Rule, needed: &HashSet<&str>) -> bool {
    rule.record.as_ref().is_some_and(|name| needed.contains(name.as_str()))
}

/// Returns the path of a file in `deploy/`.
pub(crate) fn deployed(file: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy")).join(file)
}

/// Returns the paths of the deployed rule files.
pub(crate) fn deployed_rules() -> [PathBuf; 2] {
    ["prometheus/recording.yml", "prometheus/alerts.yml"].map(deployed)
}
