//! Determines when an alert fires, from the times at which its expression has a result. `for` and `keep_firing_for` work as in
//! Prometheus. <https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/>

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::remote_write::Labels;

/// A period during which an alert fired for these labels, in milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Episode {
    pub(crate) labels: Labels,
    pub(crate) from: i64,
    /// First time at which it no longer fired.
    pub(crate) to: i64,
}

/// State of one alert rule.
#[derive(Default)]
pub(crate) struct AlertState {
    pending_for: i64,
    keep_firing_for: i64,
    active: BTreeMap<Labels, Active>,
    episodes: Vec<Episode>,
}

#[derive(Clone, Copy)]
struct Active {
    since: i64,
    firing_since: Option<i64>,
    /// When the alert, while firing, stopped having a result.
    kept_since: Option<i64>,
}

impl AlertState {
    pub(crate) fn new(pending_for: Duration, keep_firing_for: Duration) -> Self {
        let milliseconds = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        Self {
            pending_for: milliseconds(pending_for),
            keep_firing_for: milliseconds(keep_firing_for),
            ..Self::default()
        }
    }

    /// Evaluates the rule, given the labels of all its results. `now` must be later than in the previous call.
    pub(crate) fn evaluate(&mut self, now: i64, results: &BTreeSet<Labels>) {
        let (keep_firing_for, episodes) = (self.keep_firing_for, &mut self.episodes);
        self.active.retain(|labels, active| {
            if results.contains(labels) {
                active.kept_since = None;
                return true;
            }
            let Some(from) = active.firing_since else { return false };
            let kept_since = *active.kept_since.get_or_insert(now);
            let is_kept = now - kept_since < keep_firing_for;
            if !is_kept {
                episodes.push(Episode { labels: labels.clone(), from, to: now });
            }
            is_kept
        });
        for labels in results {
            let active = self.active.entry(labels.clone());
            let active = active.or_insert(Active { since: now, firing_since: None, kept_since: None });
            if active.firing_since.is_none() && now - active.since >= self.pending_for {
                active.firing_since = Some(now);
            }
        }
    }

    /// Returns all periods during which it fired. For an alert that is still firing, the period ends at `end`.
    pub(crate) fn into_episodes(mut self, end: i64) -> Vec<Episode> {
        let firing = self
            .active
            .into_iter()
            .filter_map(|(labels, active)| Some(Episode { labels, from: active.firing_since?, to: end }));
        self.episodes.extend(firing);
        self.episodes
    }
}
