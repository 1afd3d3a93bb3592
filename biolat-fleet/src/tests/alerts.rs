//! Tests when an alert fires.

use std::{collections::BTreeSet, time::Duration};

use crate::{alerts::AlertState, remote_write::Labels};

/// Evaluates an alert every minute for ten minutes, with a result in the given minutes. Returns the periods in which it fires.
fn fires(pending_for: u64, keep_firing_for: u64, results: &[i64]) -> Vec<(i64, i64)> {
    let minutes = |count| Duration::from_secs(60 * count);
    let mut state = AlertState::new(minutes(pending_for), minutes(keep_firing_for));
    let labels = Labels::from([("device".to_owned(), "sda".to_owned())]);
    for minute in 0..10 {
        let result = results.contains(&minute).then(|| labels.clone());
        state.evaluate(minute * 60_000, &result.into_iter().collect());
    }
    let episodes = state.into_episodes(600_000);
    assert!(episodes.iter().all(|episode| episode.labels == labels));
    episodes.iter().map(|episode| (episode.from / 60_000, episode.to / 60_000)).collect()
}

#[test]
fn fires_immediately_without_for() {
    assert_eq!(fires(0, 0, &[2, 3, 7]), [(2, 4), (7, 8)]);
}

#[test]
fn fires_only_after_the_pending_time() {
    assert_eq!(fires(2, 0, &[1, 2, 5, 6, 7, 8]), [(7, 9)]);
}

#[test]
fn gap_of_one_evaluation_resets_the_pending_time() {
    assert_eq!(fires(3, 0, &[0, 1, 2, 4, 5, 6]), []);
}

#[test]
fn keeps_firing_without_a_result() {
    // `keep_firing_for` starts with the first evaluation without a result.
    assert_eq!(fires(0, 2, &[1]), [(1, 4)]);
    assert_eq!(fires(0, 2, &[1, 3]), [(1, 6)]);
}

#[test]
fn pending_alert_is_not_kept() {
    assert_eq!(fires(2, 5, &[1, 2]), []);
}

#[test]
fn firing_alert_ends_with_the_run() {
    assert_eq!(fires(1, 0, &[8, 9]), [(9, 10)]);
}

#[test]
fn labels_are_evaluated_separately() {
    let mut state = AlertState::new(Duration::from_secs(60), Duration::ZERO);
    let [one, other] = ["sda", "sdb"].map(|name| Labels::from([("device".to_owned(), name.to_owned())]));
    state.evaluate(0, &BTreeSet::from([one.clone()]));
    state.evaluate(60_000, &BTreeSet::from([other]));
    state.evaluate(120_000, &BTreeSet::from([one]));
    assert_eq!(state.into_episodes(180_000), []);
}
