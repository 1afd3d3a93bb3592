//! A fleet's past, written to Prometheus by remote write, with the rules evaluated on the way as if it were today.

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
    queries::{self, Timed, View, of_dashboard},
    recorded::{Failures, Recorder, Times},
    remote_write::{Encoded, Labels, Written},
    rules::{Rule, RuleSet},
    serve::instance,
};

/// Which past, and what to find in it.
pub(crate) struct HistoryPlan {
    pub(crate) nodes: usize,
    pub(crate) drives: usize,
    pub(crate) seed: u64,
    pub(crate) scenario: Scenario,
    pub(crate) length: Duration,
    /// When it ends.
    pub(crate) end: SystemTime,
    /// Between two scrapes.
    pub(crate) interval: Duration,
    /// At least so long between two evaluations of a rule, whatever its group says.
    pub(crate) rule_step: Duration,
    pub(crate) rules: RuleSet,
    /// All metrics, not only those that the rules read.
    pub(crate) is_whole: bool,
    pub(crate) dump: Option<PathBuf>,
}

/// What became of it.
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
    /// Evaluations of rules that Prometheus refused, and why the first one.
    pub(crate) failed_evaluations: usize,
    pub(crate) first_failure: Option<String>,
    pub(crate) faults: usize,
    pub(crate) innocent_events: usize,
    pub(crate) scores: Vec<Score>,
    /// Of the dashboard, if they are asked for.
    pub(crate) queries: Vec<Timed>,
    /// Seconds since the epoch.
    #[serde(skip)]
    pub(crate) end: f64,
    #[serde(skip)]
    pub(crate) one_instance: String,
}

/// A server for this.
pub(crate) async fn server() -> Result<Prometheus> {
    Prometheus::start("global: {}\n", &["--web.enable-remote-write-receiver"]).await
}

/// The faults and innocent events that come with the model.
pub(crate) fn usual_scenario() -> Result<Scenario> {
    include_str!("../scenarios/faults.yml").parse().context("scenarios/faults.yml")
}

/// Drives that are exactly twice as slow, and innocent events.
pub(crate) fn scenario_of_twice() -> Result<Scenario> {
    include_str!("../scenarios/twice.yml").parse().context("scenarios/twice.yml")
}

impl HistoryPlan {
    /// Writes and evaluates all of it.
    pub(crate) async fn run(self, prometheus: &Prometheus) -> Result<History> {
        let began = Instant::now();
        let chunk = i64::try_from(CHUNK.as_millis())?;
        let chunks = i64::try_from(self.length.as_millis())? / chunk;
        ensure!(chunks > 0, "the past is shorter than {} minutes", chunk / 60_000);
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
                // Without a request the generator has failed; it says below why.
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
        // Rules of one name are one alert.
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
    /// Times the queries of the dashboard at the end of the past: of an hour, and of a day if it is that long.
    pub(crate) async fn time_queries(&mut self, prometheus: &Prometheus, interval: f64) -> Result<()> {
        let sent = of_dashboard()?;
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
