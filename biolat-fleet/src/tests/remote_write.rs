//! Tests that remote write sends what a node exposes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use biolat_daemon::expose::{Format, HistogramFormat, ServerState, encode};
use biolat_model::{
    device::Device,
    histogram::Histogram,
    snapshot::{DeviceView, SeriesView, Snapshot},
};
use prost::Message as _;

use crate::{
    messages::{Count, Request, Sample, TimeSeries, ZeroCount},
    remote_write::{Batch, Labels, STALE},
};

const START: SystemTime = UNIX_EPOCH;

/// Returns the exposition of a drive with reads in buckets 1, 2 and 9 of schema 3, which end at 1.09, 1.19 and 2.18 s.
fn exposition(reads: u64) -> Vec<u8> {
    let device = Histogram {
        zero: 5,
        buckets: vec![(1, reads), (2, reads + 3), (9, 4)],
        overflow: 0,
        sum_ns: 2_500_000_000,
    };
    let series = SeriesView {
        op: "read".to_owned(),
        bytes: 4096,
        histograms: [Histogram::new(), Histogram::new(), device, Histogram::new()],
        ..SeriesView::default()
    };
    let view = DeviceView {
        device: Device { name: "sda".to_owned(), ..Device::default() },
        since: START,
        phases: [true; 4],
        series: vec![series],
        ..DeviceView::default()
    };
    let snapshot = Snapshot {
        taken: START + Duration::from_secs(60),
        started: START,
        devices: vec![view],
        online_cpus: Some(2),
        ..Snapshot::default()
    };
    encode(&snapshot, ServerState::default(), HistogramFormat::default(), Format::Protobuf)
}

fn target() -> Labels {
    [("instance", "n1:9976"), ("cluster", "c"), ("job", "biolat"), ("zone", "")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// Decodes the request, as a receiver does.
fn decoded(mut batch: Batch) -> Request {
    Request::decode(&*batch.take_request().encode_to_vec()).unwrap()
}

fn labels(request: &Request, series: &TimeSeries) -> Vec<(String, String)> {
    let text = |index: &u32| request.symbols[*index as usize].clone();
    series.labels_refs.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

fn of_name<'a>(request: &'a Request, name: &str) -> Vec<&'a TimeSeries> {
    let is_it = |series: &&TimeSeries| labels(request, series)[0] == ("__name__".to_owned(), name.to_owned());
    request.timeseries.iter().filter(is_it).collect()
}

fn batch(is_wanted: impl Fn(&str) -> bool) -> Batch {
    let mut batch = Batch::default();
    batch.add_exposition(&exposition(10), &target(), 1000, &is_wanted).unwrap();
    batch.add_exposition(&exposition(20), &target(), 61_000, &is_wanted).unwrap();
    batch
}

#[test]
fn native_histogram_has_the_buckets_of_the_snapshot() {
    let request = decoded(batch(|_| true));
    let [series] = of_name(&request, "biolat_device_latency_seconds")[..] else { panic!("one series") };
    let times: Vec<_> = series.histograms.iter().map(|histogram| histogram.timestamp).collect();
    assert_eq!(times, [1000, 61_000]);
    let histogram = &series.histograms[1];
    assert_eq!(histogram.count, Some(Count::Int(5 + 20 + 23 + 4)));
    assert_eq!(histogram.zero_count, Some(ZeroCount::Int(5)));
    assert_eq!((histogram.sum, histogram.schema), (2.5, 3));
    assert_eq!(histogram.zero_threshold, f64::exp2(-20.0));
    // Decode the spans and deltas to absolute counts by index, according to the specification.
    let (mut index, mut count, mut deltas, mut buckets) =
        (0, 0, histogram.positive_deltas.iter(), Vec::new());
    for span in &histogram.positive_spans {
        index += span.offset;
        for _ in 0..span.length {
            count += deltas.next().unwrap();
            buckets.push((index, count));
            index += 1;
        }
    }
    assert_eq!(deltas.next(), None);
    buckets.retain(|(_, count)| *count > 0);
    assert_eq!(buckets, [(1, 20), (2, 23), (9, 4)]);
}

#[test]
fn labels_are_sorted_and_not_empty() {
    let request = decoded(batch(|_| true));
    assert_eq!(request.symbols[0], "");
    for series in &request.timeseries {
        let labels = labels(&request, series);
        assert!(labels.is_sorted_by(|one, next| one.0 < next.0), "{labels:?}");
        assert!(labels.iter().all(|(_, value)| !value.is_empty()), "{labels:?}");
        assert!(series.samples.is_empty() || series.histograms.is_empty(), "{labels:?}");
    }
    let labels = labels(&request, of_name(&request, "biolat_io_bytes_total")[0]);
    let pairs: Vec<_> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        pairs,
        [
            ("__name__", "biolat_io_bytes_total"),
            ("cluster", "c"),
            ("device", "sda"),
            ("instance", "n1:9976"),
            ("job", "biolat"),
            ("op", "read")
        ]
    );
}

#[test]
fn counters_and_gauges_have_their_values() {
    let request = decoded(batch(|_| true));
    let samples = |name: &str| of_name(&request, name)[0].samples.clone();
    let at = |value| [1000, 61_000].map(|timestamp| Sample { value, timestamp });
    assert_eq!(samples("biolat_io_bytes_total"), at(4096.0));
    assert_eq!(samples("biolat_online_cpus"), at(2.0));
}

#[test]
fn writes_and_counts_only_wanted_families() {
    let mut batch = batch(|name| name == "biolat_device_latency_seconds" || name == "biolat_io_bytes_total");
    let written = batch.encode().unwrap().written;
    assert_eq!((written.samples, written.histograms), (2, 2));
    // Encoding removed all samples.
    assert_eq!(decoded(batch).timeseries, []);
}

#[test]
fn rejects_truncated_exposition() {
    let whole = exposition(1);
    assert!(Batch::default().add_exposition(&whole[..whole.len() - 1], &target(), 0, |_| true).is_err());
}

#[test]
fn series_no_longer_exposed_get_one_stale_marker() {
    let mut batch = batch(|name| name == "biolat_device_latency_seconds" || name == "biolat_io_bytes_total");
    // This also holds for series in an earlier request.
    batch.take_request();
    let add = |batch: &mut Batch, timestamp, is_there: bool| {
        batch.add_exposition(&exposition(30), &target(), timestamp, |name| {
            is_there && name == "biolat_io_bytes_total"
        })
    };
    add(&mut batch, 121_000, true).unwrap();
    add(&mut batch, 181_000, false).unwrap();
    add(&mut batch, 241_000, false).unwrap();
    add(&mut batch, 301_000, true).unwrap();
    let request = decoded(batch);
    let [counter] = of_name(&request, "biolat_io_bytes_total")[..] else { panic!("one series") };
    let samples: Vec<_> = counter
        .samples
        .iter()
        .map(|sample| (sample.timestamp, sample.value.to_bits() == STALE.to_bits()))
        .collect();
    assert_eq!(samples, [(121_000, false), (181_000, true), (301_000, false)]);
    let [histogram] = of_name(&request, "biolat_device_latency_seconds")[..] else { panic!("one series") };
    let [stale] = &histogram.histograms[..] else { panic!("one marker") };
    assert_eq!((stale.timestamp, stale.sum.to_bits()), (121_000, STALE.to_bits()));
}
