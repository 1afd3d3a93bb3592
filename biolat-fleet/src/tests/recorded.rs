//! Tests of the samples that recording rules write.

use serde_json::json;

use crate::{
    messages::{Count, ZeroCount},
    recorded::{Point, Recorder, Series, Times, histogram},
    remote_write::{Labels, STALE},
    rules::Rule,
};

/// The JSON is Prometheus' output for `{schema:3, buckets at 1, 2 and 5, zero bucket of 2^-20}`.
#[test]
fn reconstructs_histogram_from_api_response() {
    let bound = |index: i32| (f64::from(index) / 8.0).exp2().to_string();
    let json = json!({"count": "10", "sum": "1.5", "buckets": [
        [3, "-9.5367431640625e-07", "9.5367431640625e-07", "1"],
        [0, bound(0), bound(1), "2"], [0, bound(1), bound(2), "3"], [0, bound(4), bound(5), "4"]]});
    let histogram = histogram(&json, 7).unwrap();
    assert_eq!(histogram.schema, 3);
    assert_eq!(histogram.zero_count, Some(ZeroCount::Float(1.0)));
    assert_eq!(histogram.zero_threshold, f64::exp2(-20.0));
    assert_eq!(histogram.count, Some(Count::Float(10.0)));
    assert_eq!(histogram.positive_counts, [2.0, 3.0, 4.0]);
    let spans: Vec<_> = histogram.positive_spans.iter().map(|span| (span.offset, span.length)).collect();
    assert_eq!(spans, [(1, 2), (2, 1)]);
}

fn recorder() -> Recorder {
    Recorder::new(Rule { record: Some("a:b".to_owned()), ..Rule::default() })
}

/// Records a series evaluated at four times, with points only at the given ones. Returns the times of the written samples, and
/// whether each is a stale marker.
fn written(recorder: &mut Recorder, first: i64, points: &[i64]) -> Vec<(i64, bool)> {
    let points = points.iter().map(|time| (*time, Point::Float(1.0))).collect();
    recorder.add(vec![Series { labels: Labels::new(), points }], Times { first, last: first + 3, step: 1 });
    let request = recorder.batch.take_request();
    let samples = request.timeseries.iter().flat_map(|series| &series.samples);
    samples.map(|sample| (sample.timestamp, sample.value.to_bits() == STALE.to_bits())).collect()
}

#[test]
fn ended_series_gets_one_stale_marker() {
    let mut recorder = recorder();
    assert_eq!(written(&mut recorder, 0, &[0, 1]), [(0, false), (1, false), (2, true)]);
    assert_eq!(written(&mut recorder, 4, &[6]), [(6, false), (7, true)]);
}

#[test]
fn series_that_ends_between_two_queries_gets_a_stale_marker() {
    let mut recorder = recorder();
    assert_eq!(written(&mut recorder, 0, &[3]), [(3, false)]);
    assert_eq!(written(&mut recorder, 4, &[]), [(4, true)]);
    assert_eq!(written(&mut recorder, 8, &[]), []);
}

#[test]
fn evaluations_are_at_multiples_of_the_step() {
    let times = |after, until, step| {
        Times::within(after, until, step).map(|times| times.iter().collect::<Vec<_>>()).unwrap_or_default()
    };
    assert_eq!(times(0, 30, 10), [10, 20, 30]);
    // If the step does not divide the range, no time is skipped or repeated.
    assert_eq!(times(0, 30, 8), [8, 16, 24]);
    assert_eq!(times(30, 60, 8), [32, 40, 48, 56]);
    assert!(times(0, 30, 40).is_empty());
}
