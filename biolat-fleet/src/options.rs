//! Parses the command line.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};

use super::{
    bounds, duration,
    history::{HistoryPlan, faults_scenario, twice_as_slow_scenario},
    live::LivePlan,
    model::Scenario,
    plan::Plan,
    rules::{ALERT, RuleSet, deployed_rules},
    weeks::WeeksPlan,
};

/// Measure the load that a synthetic fleet puts on a real Prometheus, and how well the rules find sick drives
#[derive(Parser)]
#[command(name = "cargo xtask fleet", bin_name = "cargo xtask fleet", args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    fleet: Fleet,
    /// How long Prometheus scrapes the fleet, the first half of it without rules
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = duration::parse)]
    length: Duration,
    /// Also send everything to a second Prometheus via remote write 2.0
    #[arg(long)]
    remote_write: bool,
    /// Time only the dashboard's queries that read recorded series (the others take minutes with thousands of drives)
    #[arg(long)]
    recorded_only: bool,
    /// Run everything on a small scale, and fail if a figure is out of bounds
    #[arg(long)]
    check: bool,
}

#[derive(Args)]
struct Fleet {
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    nodes: u32,
    /// Drives per node
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=1000))]
    drives: u32,
    /// Time between scrapes
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    interval: Duration,
    /// Faults and innocent events (default: none in a live run, biolat-fleet/scenarios/faults.yml in a history)
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Write a history with faults, evaluate the rules over it, and compare fired alerts with injected faults
    History(HistoryOptions),
    /// Evaluate weeks of many fleets without Prometheus, using a reimplementation of the BlockDeviceFailSlow rules
    Weeks(WeeksOptions),
}

#[derive(Args)]
struct WeeksOptions {
    #[arg(long, default_value_t = 42, value_parser = clap::value_parser!(u32).range(1..=1000))]
    nodes: u32,
    /// Drives per node
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=1000))]
    drives: u32,
    #[arg(long, default_value_t = 7.0)]
    days: f64,
    /// Seeds, one week each
    #[arg(long = "seed", value_name = "SEED", value_delimiter = ',', default_value = "1")]
    seeds: Vec<u64>,
    /// Faults and innocent events (default: biolat-fleet/scenarios/twice.yml)
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Print JSON, with each missed fault and each false alarm
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct HistoryOptions {
    #[command(flatten)]
    fleet: Fleet,
    #[arg(long, default_value_t = 7.0)]
    days: f64,
    /// Minimum time between evaluations of a rule, even if its group has a shorter interval
    #[arg(long, value_name = "TIME", default_value = "4m", value_parser = duration::parse)]
    rule_step: Duration,
    /// Rule files, evaluated in the given order (default: recording.yml and alerts.yml of deploy/prometheus)
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// Alerts to compare
    #[arg(long = "alert", value_name = "NAME", default_value = ALERT)]
    alerts: Vec<String>,
    /// Write all metrics, not only those that the rules need
    #[arg(long)]
    all_metrics: bool,
    /// Also time the dashboard's queries
    #[arg(long)]
    queries: bool,
    /// Also write each drive's I/O in five-minute windows, as CSV
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
}

impl WeeksOptions {
    fn plan(self) -> Result<Plan> {
        let plan = WeeksPlan {
            nodes: self.nodes as usize,
            drives: self.drives as usize,
            seeds: self.seeds,
            scenario: read(self.scenario.as_deref())?.map_or_else(twice_as_slow_scenario, Ok)?,
            length: days(self.days)?,
            end: bounds::end(),
        };
        Ok(Plan::Weeks { plan, is_json: self.json })
    }
}

fn read(scenario: Option<&Path>) -> Result<Option<Scenario>> {
    let Some(file) = scenario else { return Ok(None) };
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let scenario = text.parse().with_context(|| format!("{} is not a scenario", file.display()))?;
    Ok(Some(scenario))
}

fn days(days: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(days * 86_400.0).context("--days")
}

impl Options {
    /// Runs the selected command and prints the result.
    pub async fn run(self) -> Result<()> {
        self.plan()?.run().await
    }

    fn plan(self) -> Result<Plan> {
        if self.check {
            return Ok(Plan::Check);
        }
        let Some(command) = self.command else {
            let scenario = read(self.fleet.scenario.as_deref())?.unwrap_or_else(Scenario::none);
            let Fleet { nodes, drives, interval, seed, json, .. } = self.fleet;
            let plan = LivePlan {
                nodes: nodes as usize,
                drives: drives as usize,
                seed,
                scenario,
                length: self.length,
                interval,
                is_remote: self.remote_write,
                is_recorded_only: self.recorded_only,
            };
            return Ok(Plan::Live { plan, is_json: json });
        };
        let history = match command {
            Command::History(history) => history,
            Command::Weeks(weeks) => return weeks.plan(),
        };
        let scenario = read(history.fleet.scenario.as_deref())?.map_or_else(faults_scenario, Ok)?;
        let files = if history.rules.is_empty() { deployed_rules().to_vec() } else { history.rules };
        let plan = HistoryPlan {
            nodes: history.fleet.nodes as usize,
            drives: history.fleet.drives as usize,
            seed: history.fleet.seed,
            scenario,
            length: days(history.days)?,
            end: bounds::end(),
            interval: history.fleet.interval,
            rule_step: history.rule_step,
            rules: RuleSet::read(&files, &history.alerts)?,
            is_whole: history.all_metrics,
            dump: history.dump,
        };
        Ok(Plan::History { plan, is_json: history.fleet.json, with_queries: history.queries })
    }
}
