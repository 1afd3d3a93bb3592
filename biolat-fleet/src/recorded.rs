//! Evaluates recording rules over a history: turns the results of a range query into samples to write.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{
    messages::{BucketSpan, Count, Histogram, RESET_HINT_GAUGE, Sample, ZeroCount},
    prometheus::Prometheus,
    remote_write::{Batch, Labels},
    rules::Rule,
};

/// Evenly spaced times, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) step: i64,
}

impl Times {
    /// Returns the multiples of `step` after `after`, up to and including `until`, or `None` if there are none.
    pub(crate) fn within(after: i64, until: i64, step: i64) -> Option<Self> {
        let (first, last) = ((after.div_euclid(step) + 1) * step, until.div_euclid(step) * step);
        (first <= last).then_some(Self { first, last, step })
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = i64> {
        (self.first..=self.last).step_by(self.step.unsigned_abs() as usize)
    }

    /// Evaluates an expression at these times.
    pub(crate) async fn evaluate(self, prometheus: &Prometheus, expression: &str) -> Result<Vec<Series>> {
        let [first, last, step] = [self.first, self.last, self.step].map(|time| time as f64 / 1e3);
        let answer = prometheus.query_range(expression, first, last, step).await?;
        answer.iter().map(Series::parse).collect()
    }
}

/// A series that a range query yielded.
pub(crate) struct Series {
    pub(crate) labels: Labels,
    pub(crate) points: BTreeMap<i64, Point>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Point {
    Float(f64),
    Histogram(Box<Histogram>),
}

impl Point {
    fn write(&self, batch: &mut Batch, labels: &BTreeMap<&str, &str>, timestamp: i64) {
        match self {
            Self::Float(value) => batch.add_sample(labels, Sample { value: *value, timestamp }),
            Self::Histogram(histogram) => {
                batch.add_histogram(labels, Histogram { timestamp, ..(**histogram).clone() });
            }
        }
    }
}

impl Series {
    fn parse(series: &Value) -> Result<Self> {
        let labels = serde_json::from_value(series["metric"].clone())?;
        let pairs = |name: &str| series[name].as_array().cloned().unwrap_or_default();
        let mut points = BTreeMap::new();
        for pair in pairs("values") {
            let value = pair[1].as_str().context("a sample without a value")?;
            // Rust parses NaN, +Inf and -Inf as Prometheus writes them.
            points.insert(milliseconds(&pair)?, Point::Float(value.parse()?));
        }
        for pair in pairs("histograms") {
            let time = milliseconds(&pair)?;
            points.insert(time, Point::Histogram(Box::new(histogram(&pair[1], time)?)));
        }
        Ok(Self { labels, points })
    }
}

fn milliseconds(pair: &Value) -> Result<i64> {
    Ok((pair[0].as_f64().context("a sample without a time")? * 1e3).round() as i64)
}

/// Reconstructs a float histogram from the bucket bounds in an API response.
pub(crate) fn histogram(json: &Value, timestamp: i64) -> Result<Histogram> {
    let number =
        |value: &Value| -> Result<f64> { Ok(value.as_str().context("a bucket without a number")?.parse()?) };
    let mut buckets = Vec::new();
    let (mut zero_count, mut zero_threshold) = (0.0, 0.0);
    for bucket in json["buckets"].as_array().into_iter().flatten() {
        let (lower, upper, count) = (number(&bucket[1])?, number(&bucket[2])?, number(&bucket[3])?);
        if lower < 0.0 {
            (zero_count, zero_threshold) = (count, upper);
        } else {
            buckets.push((lower, upper, count));
        }
    }
    let schema = buckets.first().map_or(0, |(lower, upper, _)| -(upper / lower).log2().log2().round() as i32);
    let mut positive_spans: Vec<BucketSpan> = Vec::new();
    let mut next = 0;
    for (_, upper, _) in &buckets {
        let index = (upper.log2() * f64::from(schema).exp2()).round() as i32;
        match positive_spans.last_mut() {
            Some(span) if index == next => span.length += 1,
            _ => positive_spans.push(BucketSpan { offset: index - next, length: 1 }),
        }
        next = index + 1;
    }
    Ok(Histogram {
        count: Some(Count::Float(number(&json["count"])?)),
        sum: number(&json["sum"])?,
        schema,
        zero_threshold,
        zero_count: Some(ZeroCount::Float(zero_count)),
        positive_spans,
        positive_deltas: Vec::new(),
        positive_counts: buckets.iter().map(|(.., count)| *count).collect(),
        reset_hint: RESET_HINT_GAUGE,
        timestamp,
    })
}

/// A recording rule and the series that it has recorded.
pub(crate) struct Recorder {
    rule: Rule,
    pub(crate) batch: Batch,
}

impl Recorder {
    pub(crate) fn new(rule: Rule) -> Self {
        Self { rule, batch: Batch::default() }
    }

    pub(crate) const fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Evaluates the rule at these times and writes the results.
    pub(crate) async fn record(
        &mut self,
        prometheus: &Prometheus,
        times: Times,
        failures: &mut Failures,
    ) -> Result<()> {
        let results = failures.evaluate(prometheus, &self.rule, times).await;
        self.add(results, times);
        self.batch.encode()?.send(prometheus.address).await
    }

    /// Adds the results at these times, and a stale marker where a series ends.
    pub(crate) fn add(&mut self, mut results: Vec<Series>, times: Times) {
        let name = self.rule.record.clone().unwrap_or_default();
        for series in &mut results {
            series.labels.extend(self.rule.labels.clone());
            series.labels.insert("__name__".to_owned(), name.clone());
        }
        for time in times.iter() {
            for series in &results {
                if let Some(point) = series.points.get(&time) {
                    let labels = series.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                    point.write(&mut self.batch, &labels.collect(), time);
                }
            }
            self.batch.mark_stale(time);
        }
    }
}

/// Failed rule evaluations, which have no result, as in Prometheus.
#[derive(Default)]
pub(crate) struct Failures {
    pub(crate) count: usize,
    pub(crate) first: Option<String>,
}

impl Failures {
    /// Evaluates a rule at these times, falling back to one time after another if that fails.
    pub(crate) async fn evaluate(
        &mut self,
        prometheus: &Prometheus,
        rule: &Rule,
        times: Times,
    ) -> Vec<Series> {
        if let Ok(series) = times.evaluate(prometheus, &rule.expr).await {
            return series;
        }
        let mut all: BTreeMap<Labels, BTreeMap<i64, Point>> = BTreeMap::new();
        for time in times.iter() {
            let one = Times { first: time, last: time, step: times.step };
            match one.evaluate(prometheus, &rule.expr).await {
                Ok(series) => {
                    for Series { labels, points } in series {
                        all.entry(labels).or_default().extend(points);
                    }
                }
                Err(error) => {
                    let name = rule.record.as_ref().or(rule.alert.as_ref()).map_or("", String::as_str);
                    self.count += 1;
                    self.first.get_or_insert_with(|| format!("{name}: {}", error.root_cause()));
                }
            }
        }
        all.into_iter().map(|(labels, points)| Series { labels, points }).collect()
    }
}
