//! Runs Prometheus on the node. It scrapes biolat's pod, and a file with the claims of persistent volumes in the form of
//! kube-state-metrics.

use std::{
    fs,
    process::{Child, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{config::NODE, control_plane::Cluster, patience::eventually, release::Release};
use crate::{host::tool, process::root};

const RULES: &str = "deploy/prometheus/recording.yml";
const ADDRESS: &str = "127.0.0.1:9090";
const CLAIMS_ADDRESS: &str = "127.0.0.1:9091";
/// A template for kubectl. The labels are those of
/// <https://github.com/kubernetes/kube-state-metrics/blob/main/docs/metrics/storage/persistentvolume-metrics.md>
const CLAIMS: &str = r#"go-template={{range $volume := .items}}{{with .spec.claimRef}}kube_persistentvolume_claim_ref{persistentvolume="{{$volume.metadata.name}}",claim_namespace="{{.namespace}}",name="{{.name}}"} 1
{{end}}{{end}}"#;

/// A running Prometheus, stopped on drop.
pub(super) struct Prometheus<'a> {
    cluster: &'a Cluster,
    processes: Vec<Child>,
}

impl<'a> Prometheus<'a> {
    /// Starts it with the recording rules, which it evaluates every second.
    pub(super) fn start(cluster: &'a Cluster, release: &Release<'_>) -> Result<Self> {
        let folder = cluster.file("prometheus");
        fs::create_dir_all(format!("{folder}/state"))?;
        let write = |name: &str, text: &str| {
            fs::write(format!("{folder}/{name}"), text)
                .with_context(|| format!("cannot write {folder}/{name}"))
        };
        write("state/metrics", &cluster.kubectl(&["get", "persistentvolumes", "--output", CLAIMS])?)?;
        let rules = fs::read_to_string(root().join(RULES)).with_context(|| format!("cannot read {RULES}"))?;
        write(
            "rules.yml",
            &rules.replace("interval: 1m\n", "interval: 1s\n").replace("interval: 4m\n", "interval: 1s\n"),
        )?;
        let biolat = release.address()?;
        write(
            "prometheus.yml",
            &format!(
                "global: {{scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}}\n\
                 rule_files: [rules.yml]\n\
                 scrape_configs:\n\
                 - {{job_name: biolat, scrape_native_histograms: true, static_configs: [{{targets: ['{biolat}'], labels: {{instance: {NODE}}}}}]}}\n\
                 - {{job_name: kube-state-metrics, fallback_scrape_protocol: PrometheusText0.0.4, static_configs: [{{targets: ['{CLAIMS_ADDRESS}']}}]}}\n"
            ),
        )?;
        let mut prometheus = Self { cluster, processes: Vec::new() };
        let (state, config, data) =
            (format!("{folder}/state"), format!("{folder}/prometheus.yml"), format!("{folder}/data"));
        prometheus.run(&["busybox", "httpd", "-f", "-p", CLAIMS_ADDRESS, "-h", &state])?;
        let program = tool("bin/prometheus");
        let listen = format!("--web.listen-address={ADDRESS}");
        prometheus.run(&[
            &program.to_string_lossy(),
            &format!("--config.file={config}"),
            &format!("--storage.tsdb.path={data}"),
            &listen,
        ])?;
        eventually(|| prometheus.query("up")).context("Prometheus does not answer")?;
        Ok(prometheus)
    }

    /// Runs a program on the node. Killing nsenter does not kill its child, so that the child asks for a signal.
    fn run(&mut self, program: &[&str]) -> Result<()> {
        let log = fs::File::create(self.cluster.file("logs/prometheus.log"))?;
        let mut command = self.cluster.node_command("setpriv", &[&["--pdeathsig", "KILL"], program].concat());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.processes.push(command.spawn().with_context(|| format!("cannot run {}", program[0]))?);
        Ok(())
    }

    fn query(&self, query: &str) -> Result<Vec<Value>> {
        let address = format!("http://{ADDRESS}/api/v1/query");
        let query = format!("query={query}");
        let answer = self.cluster.on_node(&[
            "curl",
            "--silent",
            "--show-error",
            "--fail-with-body",
            "--max-time",
            "5",
            "--get",
            "--data-urlencode",
            &query,
            &address,
        ])?;
        let answer: Value = serde_json::from_str(&answer).context("cannot parse Prometheus' answer")?;
        Ok(answer["data"]["result"].as_array().context("Prometheus' answer has no result")?.clone())
    }

    /// Checks that a query returns something.
    pub(super) fn has_data(&self, query: &str) -> Result<()> {
        ensure!(!self.query(query)?.is_empty(), "Prometheus has no data for {query}");
        Ok(())
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
