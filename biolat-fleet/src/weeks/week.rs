//! Draws a week of a fleet, and scores what the rules find in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result};

use super::{
    super::{
        alerts::AlertState,
        detection::{Score, Truth},
        generator::{drives_of, milliseconds, time},
        history::truth,
        model::{Fleet, Scenario},
        recorded::Times,
        remote_write::Labels,
        rules::ALERT,
    },
    judge::{Place, judge},
    past::{PastDriveVerdicts, PastNodeVerdicts},
    thresholds::Thresholds,
    windows::{WINDOW, Window, judged, windows},
};

/// Time between evaluations, as in the rules, in milliseconds.
const STEP: i64 = 240_000;
/// Time that a drive must be sick before the alert fires.
const PENDING_FOR: Duration = Duration::from_secs(600);
const OF_DRIVE: [&str; 4] = ["cluster", "instance", "device", "model"];
const OF_NODE: [&str; 3] = ["cluster", "instance", "model"];

/// The weeks to evaluate.
pub(crate) struct WeeksPlan {
    pub(crate) nodes: usize,
    pub(crate) drives: usize,
    pub(crate) seeds: Vec<u64>,
    pub(crate) scenario: Scenario,
    pub(crate) length: Duration,
    pub(crate) end: SystemTime,
}

/// The events and the drives' I/O of a week.
pub(crate) struct Week {
    start: i64,
    end: i64,
    drives: Vec<Labels>,
    places: Vec<Place>,
    truth: Vec<Truth>,
    /// Times of the evaluations.
    times: Vec<i64>,
    /// Windows of all drives at each of these times.
    windows: Vec<Vec<Window>>,
}

impl Week {
    pub(crate) fn draw(plan: &WeeksPlan, seed: u64) -> Result<Self> {
        let end = milliseconds(plan.end)? / STEP * STEP;
        let start = end - i64::try_from(plan.length.as_millis())? / STEP * STEP;
        let mut fleet = Fleet::new(plan.nodes, plan.drives, seed, &plan.scenario, time(start), plan.length);
        let times = Times::within(start + WINDOW, end, STEP).context("shorter than two evaluations")?;
        let times: Vec<_> = times.iter().collect();
        let windows = windows(&mut fleet.nodes, &times);
        let drives: Vec<Labels> = fleet.nodes.iter().flat_map(drives_of).collect();
        let truth = fleet.events.iter().map(|event| truth(event, &drives)).collect::<Result<_>>()?;
        Ok(Self { start, end, places: places(&drives), drives, truth, times, windows })
    }

    pub(crate) fn score(&self, thresholds: &Thresholds) -> Score {
        let mut drives = vec![PastDriveVerdicts::default(); self.places.len()];
        // Each node with one of its drives, which provides the labels.
        let mut nodes: BTreeMap<u64, (usize, PastNodeVerdicts)> = BTreeMap::new();
        for (drive, place) in self.places.iter().enumerate() {
            nodes.entry(place.of_model()).or_insert((drive, PastNodeVerdicts::default()));
        }
        let mut alerts = [(); 2].map(|()| AlertState::new(PENDING_FOR, Duration::ZERO));
        for (at, &now) in self.times.iter().enumerate() {
            let verdicts =
                judge(&self.places, &judged(&self.windows[..=at], thresholds.quiet_ios), thresholds);
            let mut sick = [(); 2].map(|()| BTreeSet::new());
            for ((past, verdict), labels) in drives.iter_mut().zip(&verdicts.drives).zip(&self.drives) {
                past.add(verdict);
                if past.is_sick() {
                    sick[0].insert(select_labels(labels, &OF_DRIVE));
                }
            }
            for (node, (drive, past)) in &mut nodes {
                past.add(verdicts.slow_nodes.contains(node));
                if past.is_sick() {
                    sick[1].insert(select_labels(&self.drives[*drive], &OF_NODE));
                }
            }
            for (alert, sick) in alerts.iter_mut().zip(&sick) {
                alert.evaluate(now, sick);
            }
        }
        let episodes: Vec<_> = alerts.into_iter().flat_map(|alert| alert.into_episodes(self.end)).collect();
        Score::new(ALERT, &episodes, &self.truth, &self.drives, self.start..self.end)
    }
}

fn select_labels(labels: &Labels, names: &[&str]) -> Labels {
    names.iter().map(|&name| (name.to_owned(), labels[name].clone())).collect()
}

/// Converts the labels to numbers.
fn places(drives: &[Labels]) -> Vec<Place> {
    let names = |label: &str| -> Vec<&String> {
        let names: BTreeSet<_> = drives.iter().map(|labels| &labels[label]).collect();
        names.into_iter().collect()
    };
    let [clusters, nodes, models] = ["cluster", "instance", "model"].map(names);
    let number = |names: &[&String], name: &String| names.binary_search(&name).unwrap_or_default() as u64;
    let place = |labels: &Labels| Place {
        cluster: number(&clusters, &labels["cluster"]),
        node: number(&nodes, &labels["instance"]),
        model: number(&models, &labels["model"]),
    };
    drives.iter().map(place).collect()
}
