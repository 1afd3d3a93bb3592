//! Writes a fleet's history to Prometheus by remote write, and evaluates the rules along the way as if it were live.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use tokio::sync::mpsc;

use super::{
    alerts::AlertState,
    detection::{Score, Truth},
    generator::{CHUNK, Generator, milliseconds, time},
    model::{DriveName, Event, Fleet, Scenario},
    prometheus::Prometheus,
    queries::{self, Timed, View, dashboard_queries},
    recorded::{Failures, Recorder, Times},
    remote_write::{Encoded, Labels, Written},
    rules::{Rule, RuleSet},
    serve::instance,
};

/// The history to write, and the rules to evaluate.
pub(crate) struct HistoryPlan {
    pub(crate) nodes: usize,
    pub(crate) drives: usize,
    pub(crate) seed: u64,
    pub(crate) scenario: Scenario,
    pub(crate) length: Duration,
    /// End of the history.
    pub(crate) end: SystemTime,
    /// Time between two scrapes.
    pub(crate) interval: Duration,
    /// Minimum time between two evaluations of a rule, even if its group has a shorter interval.
    pub(crate) rule_step: Duration,
    pub(crate) rules: RuleSet,
    /// Whether all metrics are written, not only those that the rules read.
    pub(crate) is_whole: bool,
    pub(crate) dump: Option<PathBuf>,
}

/// Results of a history.
#[derive(Serialize)]
pub(crate) struct History {
    pub(crate) nodes: usize,
    pub(crate) drives: usize,
    pub(crate) days: f64,
    pub(crate) samples: u64,
    pub(crate) histograms: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) rule_seconds: f64,
    /// Number of rule evaluations that failed.
    pub(crate) failed_evaluations: usize,
    /// The first failed rule and its error.
    pub(crate) first_failure: Option<String>,
    pub(crate) faults: usize,
    pub(crate) innocent_events: usize,
    pub(crate) scores: Vec<Score>,
    /// The dashboard's queries, if requested.
    pub(crate) queries: Vec<Timed>,
    /// End of the history, in seconds since the epoch.
    #[serde(skip)]
    pub(crate) end: f64,
    #[serde(skip)]
    pub(crate) one_instance: String,
}

/// Starts a server that receives remote write.
pub(crate) async fn server() -> Result<Prometheus> {
    Prometheus::start("global: {}\n", &["--web.enable-remote-write-receiver"]).await
}

/// Returns the scenario with every kind of fault.
pub(crate) fn faults_scenario() -> Result<Scenario> {
    include_str!("../scenarios/faults.yml").parse().context("scenarios/faults.yml")
}

/// Returns the scenario with drives that are exactly twice as slow.
pub(crate) fn twice_as_slow_scenario() -> Result<Scenario> {
    include_str!("../scenarios/twice.yml").parse().context("scenarios/twice.yml")
}

impl HistoryPlan {
    /// Writes the history and evaluates the rules.
    pub(crate) async fn run(self, prometheus: &Prometheus) -> Result<History> {
        let began = Instant::now();
        let chunk = i64::try_from(CHUNK.as_millis())?;
        let chunks = i64::try_from(self.length.as_millis())? / chunk;
        ensure!(chunks > 0, "the history is shorter than {} minutes", chunk / 60_000);
        let start = (milliseconds(self.end)? / chunk - chunks) * chunk;
        let fleet = Fleet::new(self.nodes, self.drives, self.seed, &self.scenario, time(start), self.length);
        let events = fleet.events;
        let one_instance = fleet.nodes.first().map(instance).unwrap_or_default();
        let nodes = fleet.nodes.len();
        let mut recorders: Vec<_> = self.rules.recording.iter().cloned().map(Recorder::new).collect();
        let mut alerts: Vec<_> = self
            .rules
            .alerts
            .iter()
            .map(|rule| (rule.clone(), AlertState::new(rule.pending_for, rule.keep_firing_for)))
            .collect();

        let families = (!self.is_whole).then(|| self.rules.identifiers());
        let (requests, mut generated) = mpsc::channel(8);
        let generator =
            Generator::new(fleet.nodes, start, chunks, self.interval, families, self.dump.as_deref())?;
        let generator = tokio::task::spawn_blocking(move || generator.run(&requests));
        let (mut written, mut rule_time, mut failures) =
            (Written::default(), Duration::ZERO, Failures::default());
        for number in 0..chunks {
            for _ in 0..nodes {
                // If there is no request, the generator has failed. Its error is returned below.
                let Some(request) = generated.recv().await else { break };
                let request: Encoded = request;
                written.add(request.written);
                request.send(prometheus.address).await?;
            }
            let (after, until) = (start + number * chunk, start + (number + 1) * chunk);
            let times = |rule: &Rule| {
                let step = self.rule_step.max(rule.interval).as_millis();
                Times::within(after, until, i64::try_from(step).unwrap_or(i64::MAX))
            };
            let began = Instant::now();
            for recorder in &mut recorders {
                if let Some(times) = times(recorder.rule()) {
                    recorder.record(prometheus, times, &mut failures).await?;
                }
            }
            for (rule, state) in &mut alerts {
                if let Some(times) = times(rule) {
                    let results = failures.evaluate(prometheus, rule, times).await;
                    for time in times.iter() {
                        let has_result = results.iter().filter(|series| series.points.contains_key(&time));
                        state.evaluate(time, &has_result.map(|series| series.labels.clone()).collect());
                    }
                }
            }
            rule_time += began.elapsed();
        }
        let drives = generator.await??;
        let truth = events.iter().map(|event| truth(event, &drives)).collect::<Result<Vec<_>>>()?;
        let end = start + chunks * chunk;
        // Rules with the same name are one alert.
        let mut episodes: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (rule, state) in alerts {
            episodes.entry(rule.alert.unwrap_or_default()).or_default().extend(state.into_episodes(end));
        }
        let scores =
            episodes.iter().map(|(alert, episodes)| Score::new(alert, episodes, &truth, &drives, start..end));
        Ok(History {
            nodes,
            drives: drives.len(),
            days: (end - start) as f64 / 86_400_000.0,
            samples: written.samples,
            histograms: written.histograms,
            sent_bytes: written.bytes,
            seconds: began.elapsed().as_secs_f64(),
            rule_seconds: rule_time.as_secs_f64(),
            failed_evaluations: failures.count,
            first_failure: failures.first,
            faults: truth.iter().filter(|truth| truth.is_fault).count(),
            innocent_events: truth.iter().filter(|truth| !truth.is_fault).count(),
            scores: scores.collect(),
            queries: Vec::new(),
            end: end as f64 / 1e3,
            one_instance,
        })
    }
}

impl History {
    /// Times the dashboard's queries at the end of the history, over an hour and, if it is long enough, over a day.
    pub(crate) async fn time_queries(&mut self, prometheus: &Prometheus, interval: f64) -> Result<()> {
        let sent = dashboard_queries()?;
        let ranges = [Some(3600.0), (self.days >= 1.0).then_some(86_400.0)];
        for length in ranges.into_iter().flatten() {
            for instance in [None, Some(self.one_instance.as_str())] {
                let view = View { end: self.end, length, interval, instance };
                self.queries.extend(queries::time(prometheus, &sent, view).await);
            }
        }
        Ok(())
    }
}

pub(crate) fn truth(event: &Event, drives: &[Labels]) -> Result<Truth> {
    let is_it = |labels: &Labels, name: &DriveName| {
        labels["cluster"] == name.cluster
            && labels["device"] == name.device
            && labels["instance"].split(':').next() == Some(&name.node)
    };
    let index = |name: &DriveName| drives.iter().position(|labels| is_it(labels, name));
    Ok(Truth {
        kind: serde_json::to_value(event.kind)?.as_str().context("a kind without a name")?.to_owned(),
        is_fault: event.is_fault,
        drives: event.drives.iter().filter_map(index).collect(),
        from: milliseconds(event.from)?,
        to: milliseconds(event.to)?,
    })
}
