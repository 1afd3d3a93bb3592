//! Builds the metric families of a snapshot in the protobuf data model, from which all formats are written.

use std::time::SystemTime;

use biolat_common::{
    bucket::ZERO_EXPONENT,
    size::{BAND_SCHEMA, ZERO_BUCKET_BYTES},
};
use biolat_model::{
    histogram::Histogram,
    size_histogram::SizeHistogram,
    snapshot::{SlowIo, Snapshot},
};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as model;

use super::{
    HistogramEncoding, ServerState, buckets, exemplars,
    metrics::{METRICS, Metric, Samples},
};

/// Returns each exposed metric of the table with its samples in this snapshot.
#[must_use]
pub(super) fn families(
    snapshot: &Snapshot,
    server: ServerState,
    encoding: HistogramEncoding,
) -> Vec<model::MetricFamily> {
    let exposed = METRICS.iter().filter(|metric| metric.exposed.applies_to(snapshot, server));
    exposed.map(|metric| family(metric, snapshot, server, encoding)).collect()
}

fn family(
    metric: &Metric,
    snapshot: &Snapshot,
    server: ServerState,
    encoding: HistogramEncoding,
) -> model::MetricFamily {
    let mut metrics = Vec::new();
    let with_labels = |values: &[&str]| model::Metric {
        label: label_pairs(metric.labels, values),
        ..model::Metric::default()
    };
    let bounds = encoding.classic.map(buckets::latency_bounds);
    let gauge =
        |labels: &[&str], value| model::Metric { gauge: Some(model::Gauge { value }), ..with_labels(labels) };
    match metric.samples {
        Samples::Gauge(each) => each(snapshot, &mut |labels, value| metrics.push(gauge(labels, value))),
        Samples::OfDevice(value) => metrics.extend(snapshot.drives().filter_map(|device| {
            let value = value(device)?;
            Some(gauge(&[&device.device.name], value))
        })),
        Samples::OfServer(value) => metrics.extend(value(server).map(|value| gauge(&[], value))),
        Samples::Counter(each) => each(snapshot, &mut |labels, value, start| {
            let counter = model::Counter { value, start_timestamp: Some(start.into()), exemplar: None };
            metrics.push(model::Metric { counter: Some(counter), ..with_labels(labels) });
        }),
        Samples::BandHistogram(each) | Samples::WorkloadHistogram(each) => {
            let schema = encoding.schema.map(|schema| schema.min(BAND_SCHEMA));
            let bounds = match metric.samples {
                Samples::WorkloadHistogram(_) => encoding.classic.map(|_| buckets::WORKLOAD_BOUNDS.to_vec()),
                _ => bounds,
            };
            each(snapshot, &mut |labels, histogram, start| {
                let histogram = encoded(histogram.at_most_schema_1(), schema, bounds.as_deref(), start, &[]);
                metrics.push(model::Metric { histogram: Some(histogram), ..with_labels(labels) });
            });
        }
        Samples::SizeHistogram(each) => each(snapshot, &mut |labels, sizes, bytes, start| {
            let histogram = Some(encoded_sizes(sizes, bytes, encoding, start));
            metrics.push(model::Metric { histogram, ..with_labels(labels) });
        }),
        Samples::Histogram(each) => each(snapshot, &mut |labels, histogram, start, slow| {
            let histogram = Some(encoded(histogram, encoding.schema, bounds.as_deref(), start, slow));
            metrics.push(model::Metric { histogram, ..with_labels(labels) });
        }),
    }
    model::MetricFamily {
        name: metric.name.to_owned(),
        help: metric.help.to_owned(),
        r#type: metric.samples.kind().into(),
        metric: metrics,
        ..model::MetricFamily::default()
    }
}

fn label_pairs(names: &[&str], values: &[&str]) -> Vec<model::LabelPair> {
    debug_assert_eq!(names.len(), values.len(), "a value for each of {names:?}");
    let pair = |(name, value): (&&str, &&str)| model::LabelPair {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    names.iter().zip(values).map(pair).collect()
}

/// Encodes a histogram with native buckets if there is a `schema`, and with classic ones if there are `bounds`.
fn encoded(
    histogram: &Histogram,
    schema: Option<u32>,
    bounds: Option<&[i32]>,
    start: SystemTime,
    slow: &[&SlowIo],
) -> model::Histogram {
    let mut encoded = model::Histogram {
        sample_count: histogram.count(),
        sample_sum: histogram.sum_seconds(),
        start_timestamp: Some(start.into()),
        ..model::Histogram::default()
    };
    if let Some(bounds) = bounds {
        encoded.bucket = buckets::classic(histogram, bounds);
        exemplars::set_classic(slow, &mut encoded.bucket);
    }
    if let Some(schema) = schema {
        let native = buckets::native(histogram, schema);
        encoded.schema = native.schema.cast_signed();
        encoded.zero_threshold = f64::from(ZERO_EXPONENT).exp2();
        encoded.zero_count = histogram.zero;
        (encoded.positive_span, encoded.positive_delta) = (native.spans, native.deltas);
        encoded.exemplars = exemplars::native(slow, native.schema);
    }
    encoded
}

fn encoded_sizes(
    sizes: &SizeHistogram,
    bytes: u64,
    encoding: HistogramEncoding,
    start: SystemTime,
) -> model::Histogram {
    let mut encoded = model::Histogram {
        sample_count: sizes.count(),
        sample_sum: bytes as f64,
        start_timestamp: Some(start.into()),
        ..model::Histogram::default()
    };
    if let Some(which) = encoding.classic {
        encoded.bucket = buckets::classic_sizes(sizes, which);
    }
    if encoding.schema.is_some() {
        encoded.zero_threshold = f64::from(ZERO_BUCKET_BYTES);
        encoded.zero_count = sizes.zero;
        (encoded.positive_span, encoded.positive_delta) = buckets::native_sizes(sizes);
    }
    encoded
}
