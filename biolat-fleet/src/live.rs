//! Measures the cost of a fleet that a real Prometheus scrapes live.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{
    blocks::Blocks,
    duration,
    model::{Fleet, Scenario},
    own_metrics::OwnMetrics,
    prometheus::{Prometheus, now},
    queries::{self, Query, Timed, View, dashboard_queries},
    remote::{self, RemoteCost},
    rule_manager,
    rules::deployed,
    serve::{LIST, Targets, instance},
};

/// The deployed rule files.
const RULE_FILES: [&str; 2] = ["recording.yml", "alerts.yml"];

/// How long the fleet model continues after the scrapes, while rules are evaluated and queries timed.
const AFTERWARDS: Duration = Duration::from_secs(3600);

pub(crate) struct LivePlan {
    pub(crate) nodes: usize,
    pub(crate) drives: usize,
    pub(crate) seed: u64,
    pub(crate) scenario: Scenario,
    pub(crate) length: Duration,
    pub(crate) interval: Duration,
    pub(crate) is_remote: bool,
    /// Whether only queries that read recorded series are timed.
    pub(crate) is_recorded_only: bool,
}

/// Cost of a fleet.
#[derive(Serialize)]
pub(crate) struct Live {
    pub(crate) nodes: usize,
    pub(crate) drives: usize,
    pub(crate) interval_seconds: f64,
    /// Series that all nodes expose, excluding those that Prometheus adds.
    pub(crate) exposed_series: f64,
    /// Native histograms among the exposed series.
    pub(crate) exposed_histograms: f64,
    /// Memory before the first scrape.
    pub(crate) empty: Memory,
    /// Memory after scrapes without rules.
    pub(crate) scraped: Memory,
    /// Memory after scrapes with rules.
    pub(crate) with_rules: Memory,
    pub(crate) samples_per_second: f64,
    /// CPU time of scraping per sample, without rules.
    pub(crate) scrape_cpu_us_per_sample: f64,
    /// Share of a CPU used by scraping.
    pub(crate) scrape_cpu_share: f64,
    /// Share of a CPU used by rules, on average.
    pub(crate) rule_cpu_share: f64,
    /// CPU time of rules per drive in one default evaluation interval.
    pub(crate) rule_cpu_ms_per_drive: f64,
    pub(crate) groups: Vec<Group>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) blocks_bytes_per_sample: f64,
    pub(crate) chunk_bytes_per_sample: f64,
    pub(crate) queries: Vec<Timed>,
    pub(crate) remote_write: Option<RemoteCost>,
    /// Recorded samples that match a later query of the rule's expression.
    pub(crate) compared_samples: usize,
}

#[derive(Clone, Copy, Serialize)]
pub(crate) struct Memory {
    pub(crate) series: f64,
    /// Heap in use after a garbage collection.
    pub(crate) heap_bytes: f64,
    pub(crate) resident_bytes: u64,
}

#[derive(Serialize)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) rules: usize,
    pub(crate) seconds: f64,
}

/// A recording rule and the duration of its last evaluation.
#[derive(Serialize)]
pub(crate) struct Rule {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) seconds: f64,
}

/// CPU time and samples at a point in time.
struct Checkpoint {
    at: Instant,
    cpu: f64,
    samples: f64,
}

impl Live {
    /// Returns the heap per series, excluding the heap of an empty server.
    pub(crate) fn heap_per_series(&self) -> f64 {
        (self.with_rules.heap_bytes - self.empty.heap_bytes) / self.with_rules.series
    }
}

impl Checkpoint {
    fn new(metrics: &OwnMetrics) -> Self {
        Self {
            at: Instant::now(),
            cpu: metrics.sum("process_cpu_seconds_total", ""),
            samples: metrics.sum("prometheus_tsdb_head_samples_appended_total", ""),
        }
    }
}

impl LivePlan {
    pub(crate) async fn run(self) -> Result<Live> {
        let interval = self.interval.as_secs_f64();
        ensure!(self.length >= 4 * self.interval, "the run is shorter than four scrapes: --for, --interval");
        let start = SystemTime::now();
        let fleet =
            Fleet::new(self.nodes, self.drives, self.seed, &self.scenario, start, self.length + AFTERWARDS);
        let (nodes, one) = (fleet.nodes.len(), fleet.nodes.first().map(instance).unwrap_or_default());
        let targets = Targets::serve(fleet.nodes).await?;
        let receiver = if self.is_remote { Some(remote::receiver().await?) } else { None };
        let config = config(interval, targets.address, receiver.as_ref());
        let prometheus = Prometheus::start(&config, &[]).await?;
        let empty = memory(&prometheus).await?;
        wait_for_all(&prometheus, nodes, Duration::from_secs(30) + 2 * self.interval).await?;

        // Without rules.
        let before = Checkpoint::new(&prometheus.own_metrics().await?);
        sleep(self.length / 2).await;
        let after = Checkpoint::new(&prometheus.own_metrics().await?);
        let scraped = memory(&prometheus).await?;
        let (cpu, samples) = (after.cpu - before.cpu, after.samples - before.samples);
        let seconds = (after.at - before.at).as_secs_f64();

        for file in RULE_FILES {
            let rules = fs::read_to_string(deployed(&format!("prometheus/{file}")))?;
            prometheus.write(file, &with_intervals(&rules, minute(interval)))?;
        }
        prometheus.reload().await?;
        let rules_before = Checkpoint::new(&prometheus.own_metrics().await?);
        sleep(self.length / 2).await;
        wait_for_groups(&prometheus, Duration::from_secs_f64(15.0 * minute(interval))).await?;
        let metrics = prometheus.own_metrics().await?;
        let rules_after = Checkpoint::new(&metrics);
        let groups = groups(&metrics);
        let rules = rules(&prometheus).await?;
        let with_rules = memory(&prometheus).await?;
        let both = (rules_after.cpu - rules_before.cpu) / (rules_after.at - rules_before.at).as_secs_f64();

        let now = now();
        let exposed_series = prometheus.value("sum(scrape_samples_scraped{job=\"biolat\"})", now).await?;
        let drives = prometheus.value("count(biolat_device_info)", now).await?;
        let histograms = "count({__name__=~\"biolat_.*(_latency_seconds|_size_bytes|_duration_seconds)\", job=\"biolat\"})";
        let exposed_histograms = prometheus.value(histograms, now).await?;
        // The rules keep running meanwhile, as in production.
        let is_timed = |query: &Query| query.is_recorded() || !self.is_recorded_only;
        let sent: Vec<_> = dashboard_queries()?.into_iter().filter(is_timed).collect();
        let mut queries = Vec::new();
        for instance in [None, Some(one.as_str())] {
            let view = View { end: now, length: 3600.0, interval, instance };
            queries.extend(queries::time(&prometheus, &sent, view).await);
        }
        let compared_samples = rule_manager::compare(&prometheus, &RULE_FILES, now).await?;
        let remote_write = match &receiver {
            Some(receiver) => Some(RemoteCost::measure(&prometheus, receiver, start).await?),
            None => None,
        };
        let blocks = Blocks::of(&prometheus.snapshot().await?)?;
        Ok(Live {
            nodes,
            drives: drives as usize,
            interval_seconds: interval,
            exposed_series,
            exposed_histograms,
            empty,
            scraped,
            with_rules,
            samples_per_second: samples / seconds,
            scrape_cpu_us_per_sample: cpu / samples * 1e6,
            scrape_cpu_share: cpu / seconds,
            rule_cpu_share: both - cpu / seconds,
            rule_cpu_ms_per_drive: (both - cpu / seconds) * minute(interval) * 1e3 / drives,
            groups,
            rules,
            blocks_bytes_per_sample: blocks.bytes_per_sample(),
            chunk_bytes_per_sample: blocks.chunk_bytes as f64 / blocks.samples() as f64,
            queries,
            remote_write,
            compared_samples,
        })
    }
}

fn config(interval: f64, targets: std::net::SocketAddr, receiver: Option<&Prometheus>) -> String {
    let remote_write = receiver.map(remote::config).unwrap_or_default();
    let (timeout, minute) = (interval.min(10.0), minute(interval));
    let files = RULE_FILES.join(", ");
    format!(
        "global: {{scrape_interval: {interval}s, scrape_timeout: {timeout}s, evaluation_interval: {minute}s}}\n\
         rule_files: [{files}]\n\
         scrape_configs:\n\
         - job_name: biolat\n  \
           scrape_native_histograms: true\n  \
           http_sd_configs: [{{url: 'http://{targets}{LIST}', refresh_interval: 1d}}]\n\
         {remote_write}"
    )
}

async fn wait_for_all(prometheus: &Prometheus, nodes: usize, timeout: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let up = prometheus.value("sum(up{job=\"biolat\"})", now()).await? as usize;
        if up == nodes {
            return Ok(());
        }
        if began.elapsed() > timeout {
            let error = prometheus.state("targets?state=active").await.ok();
            let error = error.and_then(|data| {
                let targets = data["activeTargets"].as_array()?.clone();
                targets.iter().find_map(|target| {
                    target["lastError"].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
                })
            });
            bail!("only {up} of {nodes} nodes are scraped after {timeout:?}: {}", error.unwrap_or_default());
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Returns the number of seconds that stand for a minute in a rule file: 60, or the scrape interval if that is shorter.
fn minute(interval: f64) -> f64 {
    interval.min(60.0)
}

/// Scales the intervals of a rule file's groups to a minute of this many seconds.
fn with_intervals(rules: &str, minute: f64) -> String {
    let lines = rules.lines().map(|line| match line.strip_prefix("    interval: ").map(duration::parse) {
        Some(Ok(interval)) => {
            format!("    interval: {}ms\n", (interval.as_secs_f64() / 60.0 * minute * 1e3).round())
        }
        _ => format!("{line}\n"),
    });
    lines.collect()
}

/// Waits until each group has been evaluated twice more. In the first evaluation, few of the series that the rules read exist
/// yet.
async fn wait_for_groups(prometheus: &Prometheus, timeout: Duration) -> Result<()> {
    let began = Instant::now();
    for _ in 0..2 {
        let before = evaluated(&prometheus.own_metrics().await?);
        while evaluated(&prometheus.own_metrics().await?).iter().zip(&before).any(|(now, had)| now <= had) {
            ensure!(
                began.elapsed() < timeout,
                "a rule group has not been evaluated twice within {timeout:?}"
            );
            sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

/// Returns the time of each group's last evaluation.
fn evaluated(metrics: &OwnMetrics) -> Vec<f64> {
    const LAST: &str = "prometheus_rule_group_last_evaluation_timestamp_seconds";
    metrics.of(LAST).map(|(_, time)| time.max(0.0)).collect()
}

async fn memory(prometheus: &Prometheus) -> Result<Memory> {
    prometheus.collect_garbage().await?;
    let metrics = prometheus.own_metrics().await?;
    Ok(Memory {
        series: metrics.sum("prometheus_tsdb_head_series", ""),
        heap_bytes: metrics.sum("go_memstats_heap_inuse_bytes", ""),
        resident_bytes: prometheus.resident_bytes()?,
    })
}

fn groups(metrics: &OwnMetrics) -> Vec<Group> {
    let of_label =
        |labels: &str| labels.rsplit_once(';').map(|(_, name)| name.trim_end_matches(['"', '}']).to_owned());
    let group = |(labels, seconds): (&str, f64)| Group {
        name: of_label(labels).unwrap_or_default(),
        rules: metrics.sum("prometheus_rule_group_rules", labels) as usize,
        seconds,
    };
    metrics.of("prometheus_rule_group_last_duration_seconds").map(group).collect()
}

async fn rules(prometheus: &Prometheus) -> Result<Vec<Rule>> {
    let state = prometheus.state("rules?type=record").await?;
    let rules = state["groups"].as_array().into_iter().flatten().flat_map(|group| {
        let of_group = group["rules"].as_array().into_iter().flatten();
        of_group.filter_map(|rule| {
            let (group, name) = (group["name"].as_str()?.to_owned(), rule["name"].as_str()?.to_owned());
            Some(Rule { group, name, seconds: rule["evaluationTime"].as_f64()? })
        })
    });
    Ok(rules.collect())
}
