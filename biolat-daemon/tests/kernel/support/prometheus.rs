//! A Prometheus server for a test.

use std::{
    ffi::{OsStr, OsString},
    fs,
    net::SocketAddr,
};

use serde_json::Value;

use super::{Folder, http, prometheus_server::PrometheusServer};

const NATIVE: &str = "scrape_native_histograms: true, ";

/// A running server and its files.
pub(crate) struct Prometheus {
    server: PrometheusServer,
    _folder: Folder,
}

impl Prometheus {
    /// Starts Prometheus from PATH with native histograms.
    pub(crate) fn scraping(target: SocketAddr) -> Self {
        Self::start(target, &["--enable-feature=native-histograms"])
    }

    /// Starts Prometheus from PATH with these flags.
    pub(crate) fn start(target: SocketAddr, features: &[&str]) -> Self {
        let name = if features.is_empty() { "prometheus-classic" } else { "prometheus" };
        let config = format!(
            "scrape_configs:\n- job_name: biolat\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n  \
             static_configs:\n  - targets: ['{target}']\n"
        );
        Self::run(name, "prometheus".as_ref(), features, &[("prometheus.yml", &config)])
    }

    /// Starts Prometheus from PATH with these alert rules, evaluated twice a second.
    pub(crate) fn alerting(name: &str, target: SocketAddr, alerts: &str) -> Self {
        Self::with_rules(name, "prometheus".as_ref(), target, "500ms", "", &[("alerts.yml", alerts)])
    }

    /// Starts Prometheus 3.8 or later with native histograms, and with recording rules in addition to the alert rules.
    pub(crate) fn recording(name: &str, target: SocketAddr, recording: &str, alerts: &str) -> Self {
        let rules = [("recording.yml", recording), ("alerts.yml", alerts)];
        Self::with_rules(name, &new_program(), target, "500ms", NATIVE, &rules)
    }

    /// Starts the guests' Prometheus (3.8 or later) with native histograms and these rules. It scrapes and evaluates only once a
    /// second, because an emulated machine is slow.
    pub(crate) fn in_guest(name: &str, target: SocketAddr, rules: &[(&str, &str)]) -> Self {
        Self::with_rules(name, "prometheus".as_ref(), target, "1s", NATIVE, rules)
    }

    fn with_rules(
        name: &str,
        program: &OsStr,
        target: SocketAddr,
        interval: &str,
        options: &str,
        rules: &[(&str, &str)],
    ) -> Self {
        let names: Vec<_> = rules.iter().map(|(file, _)| *file).collect();
        let config = format!(
            "global: {{scrape_interval: {interval}, scrape_timeout: {interval}, evaluation_interval: {interval}}}\n\
             rule_files: [{}]\n\
             scrape_configs: [{{job_name: biolat, {options}static_configs: [{{targets: ['{target}']}}]}}]\n",
            names.join(", ")
        );
        Self::run(name, program, &[], &[&[("prometheus.yml", config.as_str())], rules].concat())
    }

    /// Starts this Prometheus binary with these files in a folder: `prometheus.yml` and the files it refers to.
    pub(crate) fn run(name: &str, program: &OsStr, flags: &[&str], files: &[(&str, &str)]) -> Self {
        let folder = Folder::new(name, false);
        for (file, text) in files {
            fs::write(folder.0.join(file), text).unwrap();
        }
        let (config, data) = (folder.0.join("prometheus.yml"), folder.0.join("data"));
        Self { server: PrometheusServer::start(program, &config, &data, flags), _folder: folder }
    }

    /// Returns the data of an API response, or `None` if there is no response yet.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        let answer = http::get(self.server.address, &format!("/api/v1/{path}"), "").ok()?;
        let mut json: Value = serde_json::from_slice(&answer.body).ok()?;
        assert!(answer.status != 400, "{path}: {}", json["error"]);
        Some(json["data"].take())
    }

    /// Returns the result of an instant query.
    pub(crate) fn vector(&self, query: &str) -> Vec<Value> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let data = self.get(&format!("query?query={escaped}"));
        data.and_then(|mut data| data["result"].as_array_mut().map(std::mem::take)).unwrap_or_default()
    }

    /// Returns the single value of an instant query.
    pub(crate) fn query(&self, query: &str) -> Option<f64> {
        self.vector(query).first()?["value"][1].as_str()?.parse().ok()
    }

    /// Returns the firing alerts with this name.
    pub(crate) fn firing(&self, alert: &str) -> Vec<Value> {
        self.vector(&format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}"))
    }
}

/// Path to Prometheus 3.8 or later.
pub(crate) fn new_program() -> OsString {
    std::env::var_os("BIOLAT_TEST_PROMETHEUS")
        .expect("set BIOLAT_TEST_PROMETHEUS to a Prometheus 3.8 or later; cargo xtask does")
}

/// The deployed alert rules, compiled in because guests have no source tree.
pub(crate) const ALERT_RULES: &str = include_str!("../../../../deploy/prometheus/alerts.yml");

/// Returns the alert rules, with text replaced in the rules of one alert.
pub(crate) fn alert_rules_with(alert: &str, changes: &[(&str, &str)]) -> String {
    const START: &str = "- alert: ";
    let mut rules: Vec<_> = ALERT_RULES.split(START).map(str::to_owned).collect();
    for (old, new) in changes {
        let mut found = false;
        for rule in rules.iter_mut().filter(|rule| rule.lines().next() == Some(alert)) {
            found |= rule.contains(old);
            *rule = rule.replace(old, new);
        }
        assert!(found, "no rule for {alert} contains {old:?}");
    }
    rules.join(START)
}

/// Returns only the rule of this alert, with text replaced: an emulated machine needs a second to evaluate all rules.
pub(crate) fn alert_rule_with(alert: &str, changes: &[(&str, &str)]) -> String {
    let rules = alert_rules_with(alert, changes);
    let start = format!("      - alert: {alert}\n");
    let (_, rest) = rules.split_once(&start).unwrap_or_else(|| panic!("no rule for {alert}"));
    let rule = rest.split("\n\n").next().unwrap();
    format!("groups:\n  - name: one\n    rules:\n{start}{rule}\n")
}

/// Returns the deployed recording rules, with all intervals and windows replaced.
pub(crate) fn recording_rules_with(file: &str, interval: &str, window: &str) -> String {
    let rules = match file {
        "recording.yml" => include_str!("../../../../deploy/prometheus/recording.yml"),
        _ => include_str!("../../../../deploy/prometheus/recording-classic.yml"),
    };
    assert!(rules.contains("interval: 1m\n") && rules.contains("[5m]"));
    let interval = format!("interval: {interval}\n");
    rules.replace("interval: 1m\n", &interval).replace("interval: 4m\n", &interval).replace("[5m]", window)
}
