//! The families of a snapshot, as the protobuf format has them; the text formats are written from the same.

use std::time::SystemTime;

use biolat_common::{
    bucket::ZERO_EXPONENT,
    size::{BAND_SCHEMA, ZERO_BUCKET_BYTES},
};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as model;

use super::{
    HistogramFormat, ServerState, buckets, exemplars,
    metrics::{METRICS, Metric, Samples},
};
use crate::{
    histogram::Histogram,
    size_histogram::SizeHistogram,
    snapshot::{SlowIo, Snapshot},
};

/// Every metric of the table with its samples in this snapshot.
#[must_use]
pub fn families(
    snapshot: &Snapshot,
    server: ServerState,
    format: HistogramFormat,
) -> Vec<model::MetricFamily> {
    let exposed = METRICS.iter().filter(|metric| metric.exposed.applies_to(snapshot, server));
    exposed.map(|metric| family(metric, snapshot, server, format)).collect()
}

fn family(
    metric: &Metric,
    snapshot: &Snapshot,
    server: ServerState,
    format: HistogramFormat,
) -> model::MetricFamily {
    let mut metrics = Vec::new();
    let with_labels = |values: &[&str]| model::Metric {
        label: label_pairs(metric.labels, values),
        ..model::Metric::default()
    };
    let gauge =
        |labels: &[&str], value| model::Metric { gauge: Some(model::Gauge { value }), ..with_labels(labels) };
    match metric.samples {
        Samples::Gauge(each) => each(snapshot, &mut |labels, value| metrics.push(gauge(labels, value))),
        Samples::OfDevice(value) => metrics.extend(snapshot.devices.iter().filter_map(|device| {
            let value = value(device)?;
            Some(gauge(&[&device.device.name], value))
        })),
        Samples::OfServer(value) => metrics.extend(value(server).map(|value| gauge(&[], value))),
        Samples::Counter(each) => each(snapshot, &mut |labels, value, start| {
            let counter = model::Counter { value, start_timestamp: Some(start.into()), exemplar: None };
            metrics.push(model::Metric { counter: Some(counter), ..with_labels(labels) });
        }),
        Samples::BandHistogram(each) | Samples::WorkloadHistogram(each) => {
            each(snapshot, &mut |labels, histogram, start| {
                let format = HistogramFormat { schema: format.schema.min(BAND_SCHEMA), ..format };
                let mut encoded = encoded(histogram.at_most_schema_1(), format, start, &[]);
                if matches!(metric.samples, Samples::WorkloadHistogram(_)) {
                    encoded.bucket.retain(buckets::is_of_few);
                }
                metrics.push(model::Metric { histogram: Some(encoded), ..with_labels(labels) });
            });
        }
        Samples::SizeHistogram(each) => each(snapshot, &mut |labels, sizes, bytes, start| {
            let histogram = Some(encoded_sizes(sizes, bytes, format, start));
            metrics.push(model::Metric { histogram, ..with_labels(labels) });
        }),
        Samples::Histogram(each) => each(snapshot, &mut |labels, histogram, start, slow| {
            let histogram = Some(encoded(histogram, format, start, slow));
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

fn encoded(
    histogram: &Histogram,
    format: HistogramFormat,
    start: SystemTime,
    slow: &[&SlowIo],
) -> model::Histogram {
    let mut encoded = model::Histogram {
        sample_count: histogram.count(),
        sample_sum: histogram.sum_seconds(),
        start_timestamp: Some(start.into()),
        ..model::Histogram::default()
    };
    if format.kinds.classic() {
        encoded.bucket = buckets::classic(histogram);
        exemplars::set_classic(slow, &mut encoded.bucket);
    }
    if format.kinds.native() {
        encoded.schema = format.schema.cast_signed();
        encoded.zero_threshold = f64::from(ZERO_EXPONENT).exp2();
        encoded.zero_count = histogram.zero;
        (encoded.positive_span, encoded.positive_delta) = buckets::native(histogram, format.schema);
        encoded.exemplars = exemplars::native(slow, format.schema);
    }
    encoded
}

fn encoded_sizes(
    sizes: &SizeHistogram,
    bytes: u64,
    format: HistogramFormat,
    start: SystemTime,
) -> model::Histogram {
    let mut encoded = model::Histogram {
        sample_count: sizes.count(),
        sample_sum: bytes as f64,
        start_timestamp: Some(start.into()),
        ..model::Histogram::default()
    };
    if format.kinds.classic() {
        encoded.bucket = buckets::classic_sizes(sizes);
    }
    if format.kinds.native() {
        encoded.zero_threshold = f64::from(ZERO_BUCKET_BYTES);
        encoded.zero_count = sizes.zero;
        (encoded.positive_span, encoded.positive_delta) = buckets::native_sizes(sizes);
    }
    encoded
}
