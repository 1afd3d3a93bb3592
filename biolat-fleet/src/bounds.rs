//! `--check`: small runs of all of it, whose figures have to be within bounds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use super::{
    history::{self, History, HistoryPlan, scenario_of_twice, usual_scenario},
    live::{Live, LivePlan},
    model::Scenario,
    rules::{ALERT, RuleSet, deployed_rules},
    weeks::{Weeks, WeeksPlan},
};

/// 20 with reads and writes, as README.md says, 12 or more by size, and what a node has once.
const MOST_SERIES_PER_DRIVE: f64 = 60.0;
/// A native histogram is some ten times a float. Twice what a large fleet needs, as few drives share little.
const MOST_HEAP_BYTES_PER_SERIES: f64 = 16_384.0;
/// Chunks that are not full yet, and the index, weigh more in a run of a minute than in a block of two hours.
const MOST_BYTES_PER_SAMPLE: f64 = 200.0;
/// CPU time of all groups once; three times what a large fleet needs, as a window has three times the samples here.
const MOST_RULE_CPU_MS_PER_DRIVE: f64 = 4.0;
/// So few drives are little work for a query, but this machine may be busy.
const MOST_QUERY_MS: f64 = 5000.0;
/// Remote write sends floats and histograms, each with a share of the labels.
const MOST_REMOTE_BYTES_PER_SAMPLE: f64 = 200.0;
/// The least share of faults that the alert has to find. The past is the same each time: what is found changes with rules and model
/// only. One fault is 0.12 of all here.
const LEAST_RECALL: f64 = 0.5;
/// One false alarm is 65 of them.
const MOST_FALSE_ALARMS: f64 = 0.0;
/// Of a week without Prometheus: of drives that are twice as slow for an hour or more.
const LEAST_RECALL_OF_A_WEEK: f64 = 0.9;
/// For 1,000 drives.
const MOST_FALSE_ALARMS_OF_A_WEEK: f64 = 1.0;

/// In the live run.
const NODES: usize = 6;
const DRIVES: usize = 12;
/// In the past: fewer drives would have too few siblings.
const PAST_NODES: usize = 9;
const PAST_DRIVES: usize = 24;
const PAST: Duration = Duration::from_secs(43_200);
const SEED: u64 = 1;
/// In the week.
const WEEK_NODES: usize = 42;
const WEEK_SEED: u64 = 11;
const INTERVAL: Duration = Duration::from_secs(3);
/// 1 January 2026.
const END: Duration = Duration::from_secs(1_767_225_600);

/// The end of a past that is the same in each run.
pub(crate) fn end() -> SystemTime {
    UNIX_EPOCH + END
}

/// Runs all of it and fails with the first figure that is out of bounds.
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
        scenario: usual_scenario()?,
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
        scenario: scenario_of_twice()?,
        length: Duration::from_hours(7 * 24),
        end: end(),
    };
    let weeks = plan.run()?;
    println!("{weeks}");
    check_weeks(&weeks)
}

fn check_live(live: &Live) -> Result<()> {
    let drives = live.drives as f64;
    at_most("series per drive", live.exposed_series / drives, MOST_SERIES_PER_DRIVE)?;
    at_most("bytes of heap per series", live.heap_per_series(), MOST_HEAP_BYTES_PER_SERIES)?;
    at_most("bytes on disk per sample", live.blocks_bytes_per_sample, MOST_BYTES_PER_SAMPLE)?;
    at_most("ms of CPU time for rules per drive", live.rule_cpu_ms_per_drive, MOST_RULE_CPU_MS_PER_DRIVE)?;
    for query in &live.queries {
        if let Some(error) = &query.error {
            bail!("the query of {}: {error}", query.panel);
        }
        at_most(&format!("ms for the query of {}", query.panel), query.warm_ms, MOST_QUERY_MS)?;
    }
    let remote = live.remote_write.iter().map(|remote| remote.bytes_per_sample);
    at_most("bytes per sample of remote write", remote.sum(), MOST_REMOTE_BYTES_PER_SAMPLE)
}

fn check_history(history: &History) -> Result<()> {
    if let Some(failure) = &history.first_failure {
        bail!("{} evaluations of rules failed, the first one of {failure}", history.failed_evaluations);
    }
    let Some(score) = history.scores.iter().find(|score| score.alert == ALERT) else {
        bail!("{ALERT} is not in the rule files");
    };
    let recall = score.recall().unwrap_or_default();
    if recall < LEAST_RECALL {
        bail!("out of bounds: {ALERT} finds {recall:.2} of the faults, at least {LEAST_RECALL} are expected");
    }
    let what = format!("false alarms of {ALERT} per 1,000 drives and week");
    at_most(&what, score.false_alarms_per_thousand_drives_and_week, MOST_FALSE_ALARMS)
}

fn check_weeks(weeks: &Weeks) -> Result<()> {
    let recall = weeks.recall();
    if recall.is_nan() || recall < LEAST_RECALL_OF_A_WEEK {
        bail!(
            "out of bounds: {recall:.3} of the faults are found, at least {LEAST_RECALL_OF_A_WEEK} are expected"
        );
    }
    let what = "false alarms per 1,000 drives and week, without Prometheus";
    at_most(what, weeks.false_alarms_per_thousand_drives_and_week(), MOST_FALSE_ALARMS_OF_A_WEEK)
}

fn at_most(what: &str, value: f64, bound: f64) -> Result<()> {
    // A figure that is no number is out of bounds, too.
    if value.is_nan() || value > bound {
        bail!("out of bounds: {value:.3} {what}, at most {bound} are expected");
    }
    Ok(())
}
