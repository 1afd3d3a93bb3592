//! Times the dashboard's queries, sent the way Grafana sends them.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;

use super::{prometheus::Prometheus, rules::deployed};

/// A query of the dashboard.
pub(crate) struct Query {
    pub(crate) panel: String,
    pub(crate) expression: String,
    /// Whether only the latest values are queried, for a table.
    pub(crate) is_instant: bool,
    /// Maximum number of points that Grafana requests.
    pub(crate) points: f64,
}

/// Timing and result of a query.
#[derive(Debug, Serialize)]
pub(crate) struct Timed {
    pub(crate) panel: String,
    /// Selected nodes: `all` or `one`.
    pub(crate) nodes: &'static str,
    pub(crate) hours: f64,
    /// Whether it reads series that recording rules have written.
    pub(crate) is_recorded: bool,
    /// Time of the first round.
    pub(crate) cold_ms: f64,
    /// Median time of the other rounds.
    pub(crate) warm_ms: f64,
    pub(crate) slowest_ms: f64,
    pub(crate) series: usize,
    /// Error from Prometheus, if the query failed.
    pub(crate) error: Option<String>,
}

impl Timed {
    /// Returns the kind of series that it reads.
    pub(crate) const fn reads(&self) -> &'static str {
        if self.is_recorded { "recorded" } else { "raw" }
    }
}

/// Grafana's default for a panel without its own limit.
const POINTS: f64 = 1000.0;

/// Returns the queries of `deploy/grafana/biolat.json`, with their variables still in place.
pub(crate) fn dashboard_queries() -> Result<Vec<Query>> {
    let file = deployed("grafana/biolat.json");
    let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let board: Value = serde_json::from_slice(&text)?;
    let mut queries = Vec::new();
    let rows = board["panels"].as_array().context("a dashboard without panels")?;
    for panel in
        rows.iter().flat_map(|row| std::iter::once(row).chain(row["panels"].as_array().into_iter().flatten()))
    {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push(Query {
                panel: panel["title"].as_str().unwrap_or_default().to_owned(),
                expression: target["expr"].as_str().context("a target without a query")?.to_owned(),
                is_instant: target["instant"].as_bool().unwrap_or_default(),
                points: panel["maxDataPoints"].as_f64().unwrap_or(POINTS),
            });
        }
    }
    for annotation in board["annotations"]["list"].as_array().into_iter().flatten() {
        queries.push(Query {
            panel: format!("annotation {}", annotation["name"].as_str().unwrap_or_default()),
            expression: annotation["expr"].as_str().context("an annotation without a query")?.to_owned(),
            is_instant: false,
            points: POINTS,
        });
    }
    Ok(queries)
}

/// The dashboard's time range, in seconds, and the selected nodes.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) end: f64,
    pub(crate) length: f64,
    /// Scrape interval, which is set in the data source.
    pub(crate) interval: f64,
    /// Selected node, or `None` for all.
    pub(crate) instance: Option<&'a str>,
}

/// Each query is sent this many times, because rules that run at the same time can slow down any one of them.
const ROUNDS: usize = 5;
/// A query that takes longer is sent only twice.
const SLOW: Duration = Duration::from_secs(10);

/// Times these queries in rounds.
pub(crate) async fn time(prometheus: &Prometheus, queries: &[Query], view: View<'_>) -> Vec<Timed> {
    let mut sent: Vec<_> = queries.iter().map(|query| (query, Vec::new(), Ok(0))).collect();
    for round in 0..ROUNDS {
        for (query, took, answer) in &mut sent {
            let is_slow = took.first().is_some_and(|first| *first > SLOW);
            if answer.is_ok() && (round < 2 || !is_slow) {
                let began = Instant::now();
                *answer = query.send(prometheus, view).await;
                took.push(began.elapsed());
            }
        }
    }
    sent.into_iter().map(|(query, took, answer)| query.timed(view, &took, answer)).collect()
}

impl Query {
    fn timed(&self, view: View<'_>, took: &[Duration], answer: Result<usize>) -> Timed {
        let mut ms: Vec<_> = took.iter().map(|took| took.as_secs_f64() * 1e3).collect();
        let cold_ms = ms.remove(0);
        ms.sort_unstable_by(f64::total_cmp);
        let (series, error) =
            answer.map_or_else(|error| (0, Some(error.root_cause().to_string())), |count| (count, None));
        Timed {
            panel: self.panel.clone(),
            nodes: if view.instance.is_some() { "one" } else { "all" },
            hours: view.length / 3600.0,
            is_recorded: self.is_recorded(),
            cold_ms,
            warm_ms: ms.get(ms.len() / 2).copied().unwrap_or(f64::NAN),
            slowest_ms: ms.last().copied().unwrap_or(cold_ms).max(cold_ms),
            series,
            error,
        }
    }

    async fn send(&self, prometheus: &Prometheus, view: View<'_>) -> Result<usize> {
        let step = (view.length / self.points).max(view.interval).ceil();
        let expression = self.interpolate(view, step);
        let end = (view.end / step).floor() * step;
        let series = if self.is_instant {
            prometheus.query(&expression, view.end).await
        } else {
            prometheus.query_range(&expression, end - view.length, end, step).await
        };
        Ok(series?.len())
    }

    /// Returns the expression with the variables replaced by their values.
    pub(crate) fn interpolate(&self, view: View<'_>, step: f64) -> String {
        // As in Grafana: <https://grafana.com/docs/grafana/latest/datasources/prometheus/template-variables/>.
        let rate_interval = (step + view.interval).max(4.0 * view.interval);
        let text = self.expression.replace("$__rate_interval", &format!("{rate_interval}s"));
        let text = text.replace("$__range", &format!("{}s", view.length)).replace("$op", "read|write|flush");
        let text = text.replace("$node", view.instance.unwrap_or(".*"));
        ["$cluster", "$model", "$device"]
            .into_iter()
            .fold(text, |text, variable| text.replace(variable, ".*"))
    }

    /// Whether it reads recorded series, whose names have colons.
    pub(crate) fn is_recorded(&self) -> bool {
        self.expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').any(|word| {
            word.split_once(':')
                .is_some_and(|(level, metric)| !level.is_empty() && metric.starts_with("biolat_"))
        })
    }
}
