//! The metric contract: every family that biolat exposes, with its name, labels and value.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use biolat_common::{
    bucket::ZERO_EXPONENT,
    series::{PHASES, Phase},
};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as model;

use super::{HistogramFormat, buckets, help};
use crate::{
    histogram::Histogram,
    snapshot::{DeviceView, SeriesView, Snapshot},
    version,
};
use model::{Metric, MetricFamily, MetricType};

/// Errors that are shown from the start, so that their first increase is not missed. Others come as they occur.
const USUAL_ERRORS: [&str; 3] = ["ioerr", "medium", "timeout"];

/// Every family of a snapshot.
#[must_use]
pub fn families(snapshot: &Snapshot, format: HistogramFormat) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    latencies(snapshot, format, &mut families);
    traffic(snapshot, &mut families);
    devices(snapshot, &mut families);
    losses(snapshot, &mut families);
    daemon(snapshot, format, &mut families);
    process(snapshot, &mut families);
    families
}

fn latencies(snapshot: &Snapshot, format: HistogramFormat, families: &mut Vec<MetricFamily>) {
    const METRICS: [(&str, &str); PHASES] = [
        ("biolat_queue_latency_seconds", help::QUEUE),
        ("biolat_device_latency_seconds", help::DEVICE),
        ("biolat_total_latency_seconds", help::TOTAL),
    ];
    for (phase, (name, help)) in Phase::ALL.into_iter().zip(METRICS) {
        let metrics = of_series(snapshot, |device, series| {
            let histogram = &series.histograms[phase as usize];
            vec![histogram_metric(&labels(device, series), histogram, format, device.since)]
        });
        families.push(family(name, help, MetricType::Histogram, metrics));
    }
}

fn traffic(snapshot: &Snapshot, families: &mut Vec<MetricFamily>) {
    let bytes = of_series(snapshot, |device, series| {
        vec![counter(&labels(device, series), series.bytes as f64, device.since)]
    });
    families.push(family("biolat_io_bytes_total", help::BYTES, MetricType::Counter, bytes));

    let errors = of_series(snapshot, |device, series| {
        let usual =
            USUAL_ERRORS.into_iter().filter(|name| series.errors.iter().all(|(found, _)| found != name));
        let all = series.errors.iter().copied().chain(usual.map(|name| (name, 0)));
        all.map(|(status, count)| {
            let [device_label, op] = labels(device, series);
            counter(&[device_label, op, ("status", status)], count as f64, device.since)
        })
        .collect()
    });
    families.push(family("biolat_io_errors_total", help::ERRORS, MetricType::Counter, errors));

    let overflows = of_series(snapshot, |device, series| {
        let [device_label, op] = labels(device, series);
        let of_phase = |phase: Phase| {
            let count = series.histograms[phase as usize].overflow;
            counter(&[device_label, op, ("phase", phase.name())], count as f64, device.since)
        };
        Phase::ALL.map(of_phase).to_vec()
    });
    families.push(family("biolat_latency_overflows_total", help::OVERFLOWS, MetricType::Counter, overflows));
}

fn devices(snapshot: &Snapshot, families: &mut Vec<MetricFamily>) {
    let info = snapshot.devices.iter().map(|view| {
        let device = &view.device;
        let sequence = device.sequence.map(|sequence| sequence.to_string()).unwrap_or_default();
        let node = device.numa_node.map(|node| node.to_string()).unwrap_or_default();
        let labels = [
            ("device", device.name.as_str()),
            ("dev", &device.number),
            ("diskseq", &sequence),
            ("model", &device.model),
            ("serial", &device.serial),
            ("wwid", &device.wwid),
            ("rotational", if device.rotational { "1" } else { "0" }),
            ("numa_node", &node),
            ("path_of", device.path_of.as_deref().unwrap_or_default()),
            ("holders", &device.holders.join(",")),
        ];
        gauge(&labels, 1.0)
    });
    families.push(family("biolat_device_info", help::DEVICE_INFO, MetricType::Gauge, info));

    let phases = snapshot.devices.iter().flat_map(|view| {
        Phase::ALL.map(|phase| {
            let available = view.phases[phase as usize];
            gauge(&[("device", &view.device.name), ("phase", phase.name())], f64::from(u8::from(available)))
        })
    });
    families.push(family("biolat_device_phase_available", help::PHASE_AVAILABLE, MetricType::Gauge, phases));

    let unseen = snapshot.devices.iter().flat_map(|view| {
        view.unseen.iter().map(|&(group, count)| {
            counter(&[("device", &view.device.name), ("op", group.name())], count as f64, view.since)
        })
    });
    families.push(family("biolat_unseen_completions_total", help::UNSEEN, MetricType::Counter, unseen));
}

fn losses(snapshot: &Snapshot, families: &mut Vec<MetricFamily>) {
    let lost = snapshot
        .lost
        .iter()
        .map(|&(reason, count)| counter(&[("reason", reason)], count as f64, snapshot.started));
    families.push(family("biolat_lost_completions_total", help::LOST, MetricType::Counter, lost));
}

fn daemon(snapshot: &Snapshot, format: HistogramFormat, families: &mut Vec<MetricFamily>) {
    let health = &snapshot.health;
    let since = snapshot.started;
    let build = [("version", version::VERSION), ("revision", version::REVISION)];
    families.push(family("biolat_build_info", help::BUILD_INFO, MetricType::Gauge, [gauge(&build, 1.0)]));
    families.push(family(
        "biolat_collect_duration_seconds",
        help::COLLECT_DURATION,
        MetricType::Histogram,
        [histogram_metric(&[], &health.durations, format, since)],
    ));
    let mut count = |name: &str, help: &str, value: f64| {
        families.push(family(name, help, MetricType::Counter, [counter(&[], value, since)]));
    };
    count("biolat_collect_failures_total", help::COLLECT_FAILURES, health.failures as f64);
    count("biolat_collect_overruns_total", help::COLLECT_OVERRUNS, health.overruns as f64);
    if let Some(runs) = snapshot.probe {
        count("biolat_probe_runs_total", help::PROBE_RUNS, runs.count as f64);
        count("biolat_probe_run_seconds_total", help::PROBE_SECONDS, runs.time.as_secs_f64());
    }
    let mut measure = |name: &str, help: &str, value: f64| {
        families.push(family(name, help, MetricType::Gauge, [gauge(&[], value)]));
    };
    measure("biolat_collect_timestamp_seconds", help::COLLECTED, seconds(snapshot.taken));
    measure("biolat_series_slots", help::SLOTS, health.slots as f64);
    measure("biolat_map_bytes", help::MAP_BYTES, health.map_bytes as f64);
}

/// The metrics that every exporter has of itself; their names are a convention.
fn process(snapshot: &Snapshot, families: &mut Vec<MetricFamily>) {
    let process = &snapshot.process;
    let started = UNIX_EPOCH + Duration::try_from_secs_f64(process.start_time_seconds).unwrap_or_default();
    let cpu = [counter(&[], process.cpu_seconds, started)];
    families.push(family("process_cpu_seconds_total", help::CPU, MetricType::Counter, cpu));
    for (name, help, value) in [
        ("process_resident_memory_bytes", help::RESIDENT, process.resident_bytes as f64),
        ("process_virtual_memory_bytes", help::VIRTUAL, process.virtual_bytes as f64),
        ("process_open_fds", help::OPEN_FDS, process.open_fds as f64),
        ("process_max_fds", help::MAX_FDS, process.max_fds as f64),
        ("process_start_time_seconds", help::START_TIME, process.start_time_seconds),
    ] {
        families.push(family(name, help, MetricType::Gauge, [gauge(&[], value)]));
    }
}

/// Metrics for each series of each device.
fn of_series(snapshot: &Snapshot, metrics: impl Fn(&DeviceView, &SeriesView) -> Vec<Metric>) -> Vec<Metric> {
    let pairs =
        snapshot.devices.iter().flat_map(|device| device.series.iter().map(move |series| (device, series)));
    pairs.flat_map(|(device, series)| metrics(device, series)).collect()
}

fn labels<'a>(device: &'a DeviceView, series: &'a SeriesView) -> [(&'static str, &'a str); 2] {
    [("device", &device.device.name), ("op", &series.op)]
}

fn family(
    name: &str,
    help: &str,
    kind: MetricType,
    metrics: impl IntoIterator<Item = Metric>,
) -> MetricFamily {
    MetricFamily {
        name: name.to_owned(),
        help: help.to_owned(),
        r#type: kind.into(),
        metric: metrics.into_iter().collect(),
        ..MetricFamily::default()
    }
}

fn label_pairs(labels: &[(&str, &str)]) -> Vec<model::LabelPair> {
    labels
        .iter()
        .map(|&(name, value)| model::LabelPair { name: name.to_owned(), value: value.to_owned() })
        .collect()
}

fn gauge(labels: &[(&str, &str)], value: f64) -> Metric {
    Metric { label: label_pairs(labels), gauge: Some(model::Gauge { value }), ..Metric::default() }
}

fn counter(labels: &[(&str, &str)], value: f64, since: SystemTime) -> Metric {
    let start_timestamp = Some(since.into());
    let counter = Some(model::Counter { value, start_timestamp, exemplar: None });
    Metric { label: label_pairs(labels), counter, ..Metric::default() }
}

fn histogram_metric(
    labels: &[(&str, &str)],
    histogram: &Histogram,
    format: HistogramFormat,
    since: SystemTime,
) -> Metric {
    let mut encoded = model::Histogram {
        sample_count: histogram.count(),
        sample_sum: histogram.sum_seconds(),
        start_timestamp: Some(since.into()),
        ..model::Histogram::default()
    };
    if format.kinds.classic() {
        encoded.bucket = buckets::classic(histogram);
    }
    if format.kinds.native() {
        encoded.schema = format.schema.cast_signed();
        encoded.zero_threshold = f64::from(ZERO_EXPONENT).exp2();
        encoded.zero_count = histogram.zero;
        (encoded.positive_span, encoded.positive_delta) = buckets::native(histogram, format.schema);
    }
    Metric { label: label_pairs(labels), histogram: Some(encoded), ..Metric::default() }
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
