//! Implements `--check`: small runs of everything, whose figures must be within bounds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use super::{
    history::{self, History, HistoryPlan, faults_scenario, twice_as_slow_scenario},
    live::{Live, LivePlan},
    model::Scenario,
    rules::{ALERT, RuleSet, deployed_rules},
    weeks::{Weeks, WeeksPlan},
};

/// 20 series for reads and writes, as README.md says, at least 12 more for sizes, and a share of the node's series.
const MAX_SERIES_PER_DRIVE: f64 = 60.0;
/// A native histogram takes about ten times as much as a float. Twice the value for a large fleet, because little is shared among
/// so few drives.
const MAX_HEAP_BYTES_PER_SERIES: f64 = 16_384.0;
/// Partially filled chunks and the index take up more in a one-minute run than in a two-hour block.
const MAX_BYTES_PER_SAMPLE: f64 = 200.0;
/// CPU time to evaluate all groups once. Three times the value for a large fleet, because a window has three times the samples
/// here, and twice that for slow machines: one has needed 5.5 ms.
const MAX_RULE_CPU_MS_PER_DRIVE: f64 = 8.0;
/// A query over so few drives is fast, but this machine may be busy.
const MAX_QUERY_MS: f64 = 5000.0;
/// Remote write sends floats and histograms, each with a share of the labels.
const MAX_REMOTE_BYTES_PER_SAMPLE: f64 = 200.0;
/// Minimum share of faults that the alert must find. The history is the same each time, so the share changes only with the rules
/// and the model. One fault is 0.12 of the total here.
const MIN_RECALL: f64 = 0.5;
/// One false alarm here amounts to 65 per 1,000 drives per week.
const MAX_FALSE_ALARMS: f64 = 0.0;
/// Minimum recall in a week without Prometheus, for drives that are twice as slow for an hour or more.
const MIN_WEEK_RECALL: f64 = 0.9;
/// False alarms per 1,000 drives in that week.
const MAX_WEEK_FALSE_ALARMS: f64 = 1.0;

/// Size of the live run.
const NODES: usize = 6;
const DRIVES: usize = 12;
/// Size of the history. With fewer drives, each would have too few siblings.
const PAST_NODES: usize = 9;
const PAST_DRIVES: usize = 24;
const PAST: Duration = Duration::from_secs(43_200);
const SEED: u64 = 1;
/// Size and seed of the week.
const WEEK_NODES: usize = 42;
const WEEK_SEED: u64 = 11;
const INTERVAL: Duration = Duration::from_secs(3);
/// 1 January 2026, as time since the epoch.
const END: Duration = Duration::from_secs(1_767_225_600);

/// Returns the end of the history, which is the same in each run.
pub(crate) fn end() -> SystemTime {
    UNIX_EPOCH + END
}

/// Runs everything and fails with the first figure that is out of bounds.
pub(crate) async fn check() -> Result<()> {
    let plan = LivePlan {
        nodes: NODES,
        drives: DRIVES,
        seed: SEED,
        scenario: Scenario::none(),
        length: Duration::from_secs(40),
        interval: INTERVAL,
        is_remote: true,
        is_recorded_only: false,
    };
    let live = plan.run().await?;
    println!("{live}");
    check_live(&live)?;

    let plan = HistoryPlan {
        nodes: PAST_NODES,
        drives: PAST_DRIVES,
        seed: SEED,
        scenario: faults_scenario()?,
        length: PAST,
        end: end(),
        interval: Duration::from_secs(60),
        rule_step: Duration::from_secs(240),
        rules: RuleSet::read(&deployed_rules(), &[ALERT.to_owned()])?,
        is_whole: false,
        dump: None,
    };
    let prometheus = history::server().await?;
    let history = plan.run(&prometheus).await?;
    println!("{history}");
    check_history(&history)?;

    let plan = WeeksPlan {
        nodes: WEEK_NODES,
        drives: PAST_DRIVES,
        seeds: vec![WEEK_SEED],
        scenario: twice_as_slow_scenario()?,
        length: Duration::from_hours(7 * 24),
        end: end(),
    };
    let weeks = plan.run()?;
    println!("{weeks}");
    check_weeks(&weeks)
}

fn check_live(live: &Live) -> Result<()> {
    let drives = live.drives as f64;
    at_most("series per drive", live.exposed_series / drives, MAX_SERIES_PER_DRIVE)?;
    at_most("bytes of heap per series", live.heap_per_series(), MAX_HEAP_BYTES_PER_SERIES)?;
    at_most("bytes on disk per sample", live.blocks_bytes_per_sample, MAX_BYTES_PER_SAMPLE)?;
    at_most("ms of CPU time for rules per drive", live.rule_cpu_ms_per_drive, MAX_RULE_CPU_MS_PER_DRIVE)?;
    for query in &live.queries {
        if let Some(error) = &query.error {
            bail!("the query of panel {}: {error}", query.panel);
        }
        at_most(&format!("ms for the query of panel {}", query.panel), query.warm_ms, MAX_QUERY_MS)?;
    }
    let remote = live.remote_write.iter().map(|remote| remote.bytes_per_sample);
    at_most("bytes per sample of remote write", remote.sum(), MAX_REMOTE_BYTES_PER_SAMPLE)
}

fn check_history(history: &History) -> Result<()> {
    if let Some(failure) = &history.first_failure {
        bail!("{} rule evaluations failed; the first: {failure}", history.failed_evaluations);
    }
    let Some(score) = history.scores.iter().find(|score| score.alert == ALERT) else {
        bail!("{ALERT} is not in the rule files");
    };
    let recall = score.recall().unwrap_or_default();
    if recall < MIN_RECALL {
        bail!("out of bounds: {ALERT} finds {recall:.2} of the faults, expected at least {MIN_RECALL}");
    }
    let what = format!("false alarms of {ALERT} per 1,000 drives and week");
    at_most(&what, score.false_alarms_per_thousand_drives_and_week, MAX_FALSE_ALARMS)
}

fn check_weeks(weeks: &Weeks) -> Result<()> {
    let recall = weeks.recall();
    if recall.is_nan() || recall < MIN_WEEK_RECALL {
        bail!("out of bounds: {recall:.3} of the faults are found, expected at least {MIN_WEEK_RECALL}");
    }
    let what = "false alarms per 1,000 drives and week, without Prometheus";
    at_most(what, weeks.false_alarms_per_thousand_drives_and_week(), MAX_WEEK_FALSE_ALARMS)
}

fn at_most(what: &str, value: f64, bound: f64) -> Result<()> {
    // NaN is out of bounds too.
    if value.is_nan() || value > bound {
        bail!("out of bounds: {value:.3} {what}, expected at most {bound}");
    }
    Ok(())
}
