//! A Prometheus server for a test.

use std::{ffi::OsStr, fs, net::SocketAddr};

use serde_json::Value;

use super::{Folder, http, prometheus_server::PrometheusServer};

/// A running server, and its files.
pub(crate) struct Prometheus {
    server: PrometheusServer,
    _folder: Folder,
}

impl Prometheus {
    /// The one in PATH, with native histograms.
    pub(crate) fn scraping(target: SocketAddr) -> Self {
        Self::start(target, &["--enable-feature=native-histograms"])
    }

    /// The one in PATH, with these flags.
    pub(crate) fn start(target: SocketAddr, features: &[&str]) -> Self {
        let name = if features.is_empty() { "prometheus-classic" } else { "prometheus" };
        let config = format!(
            "scrape_configs:\n- job_name: biolat\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n  \
             static_configs:\n  - targets: ['{target}']\n"
        );
        Self::run(name, "prometheus".as_ref(), features, &[("prometheus.yml", &config)])
    }

    /// The one in PATH, with these alert rules, which are evaluated twice a second.
    pub(crate) fn alerting(name: &str, target: SocketAddr, rules: &str) -> Self {
        let config = format!(
            "global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}\n\
             rule_files: [alerts.yml]\n\
             scrape_configs: [{{job_name: biolat, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        Self::run(name, "prometheus".as_ref(), &[], &[("prometheus.yml", &config), ("alerts.yml", rules)])
    }

    /// Any program, with these files in a folder: `prometheus.yml` and the files that it names.
    pub(crate) fn run(name: &str, program: &OsStr, flags: &[&str], files: &[(&str, &str)]) -> Self {
        let folder = Folder::new(name, false);
        for (file, text) in files {
            fs::write(folder.0.join(file), text).unwrap();
        }
        let (config, data) = (folder.0.join("prometheus.yml"), folder.0.join("data"));
        Self { server: PrometheusServer::start(program, &config, &data, flags), _folder: folder }
    }

    /// The data of an API response; `None` while there is no response.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        let answer = http::get(self.server.address, &format!("/api/v1/{path}"), "").ok()?;
        let mut json: Value = serde_json::from_slice(&answer.body).ok()?;
        assert!(answer.status != 400, "{path}: {}", json["error"]);
        Some(json["data"].take())
    }

    /// The result of an instant query.
    pub(crate) fn vector(&self, query: &str) -> Vec<Value> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let data = self.get(&format!("query?query={escaped}"));
        data.and_then(|mut data| data["result"].as_array_mut().map(std::mem::take)).unwrap_or_default()
    }

    /// The one value of an instant query.
    pub(crate) fn query(&self, query: &str) -> Option<f64> {
        self.vector(query).first()?["value"][1].as_str()?.parse().ok()
    }
}

/// The alert rules that are deployed.
pub(crate) fn alert_rules() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/prometheus/alerts.yml")).unwrap()
}
