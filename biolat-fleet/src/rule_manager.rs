//! Checks that a history records the same samples as Prometheus' rule manager.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{
    prometheus::Prometheus,
    recorded::{Point, Times},
    remote_write::Labels,
    rules::{RuleSet, deployed},
};

/// Alert whose recording rules are compared.
const ALERT: &str = "BlockDeviceSlowerThanSiblings";

/// Minimum share of equal samples. A later query also sees scrapes that were in progress when the rule was evaluated.
const MIN_SHARE: f64 = 0.95;

/// Re-evaluates expressions at the rule manager's evaluation times, and returns the number of equal samples.
pub(crate) async fn compare(prometheus: &Prometheus, files: &[&str], now: f64) -> Result<usize> {
    let files: Vec<_> = files.iter().map(|file| deployed(&format!("prometheus/{file}"))).collect();
    let set = RuleSet::read(&files, &[ALERT.to_owned()])?;
    let (mut compared, mut same) = (0, 0);
    for rule in &set.recording {
        let name = rule.record.as_deref().unwrap_or_default();
        let recorded = prometheus.query(&format!("{name}[2m]"), now).await?;
        let recorded = recorded.iter().map(last).collect::<Result<Vec<_>>>()?;
        let Some(time) = recorded.iter().map(|(_, time, _)| *time).max() else { continue };
        let again = Times { first: time, last: time, step: 1000 }.evaluate(prometheus, &rule.expr).await?;
        let again: BTreeMap<_, _> = again.iter().map(|series| (&series.labels, &series.points)).collect();
        for (labels, _, value) in recorded.iter().filter(|(_, at, _)| *at == time) {
            let point = again.get(labels).and_then(|points| points.get(&time));
            compared += 1;
            same += usize::from(matches!(point, Some(Point::Float(again)) if is_same(*again, *value)));
        }
    }
    ensure!(compared > 0, "the rules of {ALERT} have recorded nothing");
    ensure!(
        same as f64 >= compared as f64 * MIN_SHARE,
        "only {same} of {compared} samples that the rule manager recorded match a query"
    );
    Ok(same)
}

/// Returns a series' labels, and the time in milliseconds and the value of its last sample.
fn last(series: &Value) -> Result<(Labels, i64, f64)> {
    let mut labels: Labels = serde_json::from_value(series["metric"].clone())?;
    labels.remove("__name__");
    let last =
        series["values"].as_array().and_then(|values| values.last()).context("a series without samples")?;
    let time = last[0].as_f64().context("a sample without a time")?;
    let value = last[1].as_str().context("a sample without a value")?.parse()?;
    Ok((labels, (time * 1e3).round() as i64, value))
}

/// Whether two values are equal except for the last digits of sums, which depend on the order of addition.
fn is_same(one: f64, other: f64) -> bool {
    one == other || (one / other - 1.0).abs() < 1e-9
}
