//! Every format of one snapshot, parsed and compared with it: three for Prometheus, and JSON.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use biolat_common::size::BAND_CELLS;
use biolat_daemon::{
    expose::{ClassicBuckets, Format, HistogramFormat, HistogramKinds, ServerState, encode},
    version,
};
use biolat_model::{
    band_histogram::BandHistogram,
    cgroup::Identity,
    device::{Device, Group, Holder, MultipathPath},
    histogram::Histogram,
    io_names::IoNames,
    size_histogram::SizeHistogram,
    snapshot::{
        BandView, CpuSpread, DeviceView, Health, Inflight, PoolWaits, ProbeRuns, Process, SeriesView,
        SizesView, SlowIo, Snapshot, Stalled, TagWaits, WorkloadRoom, WorkloadUsage, WorkloadView,
    },
};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{
    Exemplar, Histogram as Encoded, LabelPair, Metric, MetricFamily,
};
use prost::Message as _;
use serde::Deserialize as _;
use serde_json::Value;

fn histogram(scale: u64) -> Histogram {
    Histogram {
        zero: scale,
        buckets: vec![(-120, 2 * scale), (-119, scale), (-110, 7 * scale), (-1, scale), (80, 3)],
        overflow: 5,
        sum_ns: 123_456_789_012,
    }
}

fn holder(device: &str, kind: &str, name: &str, depth: u32) -> Holder {
    let [device, kind, name] = [device, kind, name].map(str::to_owned);
    Holder { device, kind, name, depth }
}

/// A read in the first second of the device's life, with this latency.
fn slow_io(number: u64, milliseconds: Option<u64>) -> SlowIo {
    SlowIo {
        number,
        completed: UNIX_EPOCH + Duration::from_micros(1_700_000_001_250_001 + number),
        device: "nvme0n1".into(),
        op: "read".into(),
        sector: 1000 + number,
        bytes: 4096,
        status: if milliseconds.is_none() { "ioerr" } else { "ok" }.into(),
        latencies: [None, None, None, milliseconds.map(Duration::from_millis)],
        cpu: 3,
        workload: None,
        names: IoNames::default(),
    }
}

fn sizes(scale: u64) -> SizesView {
    let mut cells = [0; BAND_CELLS];
    (cells[0], cells[20], cells[21], cells[62]) = (1, scale, 2, 1);
    SizesView {
        requests: SizeHistogram { zero: 1, buckets: vec![(12, 3 * scale), (20, 4)], overflow: 2 },
        bands: vec![
            BandView { size: "le_4KiB".into(), device: BandHistogram::from_cells(&cells, 3_000) },
            BandView {
                size: "gt_1MiB".into(),
                device: BandHistogram::from_cells(&[scale; BAND_CELLS], 1 << 40),
            },
        ],
    }
}

/// A workload with this many reads.
fn workload(cgroup: &str, reads: u64) -> WorkloadView {
    let mut cells = [0; BAND_CELLS];
    cells[30] = reads;
    let since = UNIX_EPOCH + Duration::from_secs(1_700_000_002);
    WorkloadView {
        usage: vec![WorkloadUsage {
            device: "nvme0n1".into(),
            op: "read".into(),
            bytes: 4096 * reads,
            errors: reads / 5,
            queue_ns: 250_000_000,
            device_ns: 1_500_000_000,
            latency: BandHistogram::from_cells(&cells, 1_750_000_000),
        }],
        // The root cgroup has no pressure.
        stalled: (cgroup != "/").then_some(Stalled {
            some: Duration::from_millis(8250),
            full: Duration::from_millis(7500),
            has_limit: true,
        }),
        ..WorkloadView::new(cgroup, &Identity::of_path(cgroup), since)
    }
}

fn snapshot() -> Snapshot {
    let earlier =
        SlowIo { completed: UNIX_EPOCH + Duration::from_secs(1_700_000_000), ..slow_io(1, Some(900)) };
    let ios = [
        earlier,
        slow_io(2, Some(880)),
        slow_io(3, Some(1_000_000)),
        slow_io(4, Some(900)),
        slow_io(5, None),
        slow_io(6, Some(1_100_000)),
        SlowIo { op: "write".into(), ..slow_io(7, Some(900)) },
    ];
    let series = |op: &str, scale| SeriesView {
        op: op.into(),
        bytes: 4096 * scale,
        histograms: [Histogram::new(), histogram(scale), Histogram::new(), histogram(2 * scale)],
        errors: [("medium".into(), scale), ("nospc".into(), 1)].into(),
        requeues: scale,
        sizes: Some(sizes(scale)),
        ended_workload_ios: 7 * scale,
    };
    let write_zeroes = SeriesView {
        histograms: [histogram(5), histogram(3), Histogram::new(), histogram(6)],
        sizes: None,
        ..series("write_zeroes", 3)
    };
    Snapshot {
        host: "example".into(),
        interval: Duration::from_millis(2500),
        taken: UNIX_EPOCH + Duration::from_micros(1_700_000_005_500_123),
        started: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        devices: vec![DeviceView {
            device: Device {
                name: "nvme0n1".into(),
                model: "A \"quoted\" \\ drive".into(),
                number: "259:0".into(),
                sequence: Some(9),
                firmware: "4B2QJXD7".into(),
                transport: "tcp".into(),
                scheduler: "none".into(),
                stack: [holder("dm-0", "crypt", "secret", 1), holder("dm-0", "mount", "/srv/my \"data\"", 2)]
                    .into(),
                path: Some(MultipathPath {
                    of: "dm-0".into(),
                    transport: "tcp".into(),
                    address: "traddr=192.0.2.1,trsvcid=4420".into(),
                    state: "connecting".into(),
                }),
                ..Device::default()
            },
            since: UNIX_EPOCH + Duration::from_millis(1_700_000_001_250),
            phases: [false, false, true, true],
            lacks: "no timestamp of the dispatch".into(),
            series: vec![series("read", 10), write_zeroes],
            unseen: Group::ALL.into_iter().zip([4, 0, 0, 1]).collect(),
            inflight: Inflight {
                reads: 12,
                writes: 3,
                oldest: Duration::from_millis(16_250),
                is_exact: true,
            },
            tag_waits: Some(TagWaits {
                driver: PoolWaits { waits: 41, tags: 64 },
                scheduler: PoolWaits { waits: 2, tags: 256 },
                reserved: PoolWaits::default(),
            }),
            spread: CpuSpread {
                completions: vec![7, 0, 9],
                effective_cpus: Some(1.9),
                largest_share: Some(0.5625),
                off_node_share: None,
            },
            nvme_events: [("failover".into(), 6), ("retry".into(), 0)].into(),
        }],
        workloads: Some(vec![workload("/", 4), workload("/system.slice/a.service", 6)]),
        lost: [("iostats_off".into(), 17), ("no_room".into(), 0)].into(),
        slow: ios.into(),
        slow_dropped: 6,
        health: Health {
            durations: histogram(1),
            failures: 2,
            overruns: 1,
            lost_requeues: 5,
            lost_tag_waits: Some(3),
            slots: 8,
            map_bytes: 51_200,
            workload_room: Some(WorkloadRoom { places: 256, used: 3, refused_ios: 9 }),
            ..Health::default()
        },
        probe: Some(ProbeRuns { count: 1000, time: Duration::from_nanos(50_500) }),
        process: Some(Process { cpu_seconds: 1.5, resident_bytes: 7 << 20, ..Process::default() }),
        online_cpus: Some(16),
        ..Snapshot::default()
    }
}

fn families(histograms: HistogramFormat) -> BTreeMap<String, MetricFamily> {
    families_of(&snapshot(), histograms)
}

pub(crate) fn families_of(
    snapshot: &Snapshot,
    histograms: HistogramFormat,
) -> BTreeMap<String, MetricFamily> {
    let bytes = encode(snapshot, ServerState::default(), histograms, Format::Protobuf);
    let mut rest = &bytes[..];
    let mut families = BTreeMap::new();
    while !rest.is_empty() {
        let family = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        assert!(families.insert(family.name.clone(), family).is_none(), "duplicate family");
    }
    families
}

fn find<'a>(family: &'a MetricFamily, labels: &[(&str, &str)]) -> Vec<&'a Metric> {
    let has = |metric: &&Metric| {
        labels.iter().all(|(name, value)| metric.label.iter().any(|l| l.name == *name && l.value == *value))
    };
    family.metric.iter().filter(has).collect()
}

fn with<'a>(family: &'a MetricFamily, labels: &[(&str, &str)]) -> &'a Metric {
    let found = find(family, labels);
    assert_eq!(found.len(), 1, "{labels:?} in {}", family.name);
    found[0]
}

/// Returns the counts by native index, without empty buckets.
fn native(histogram: &Encoded) -> Vec<(i32, u64)> {
    let mut buckets = crate::support::native::decode(histogram);
    buckets.retain(|(_, count)| *count > 0);
    buckets
}

const BOTH: HistogramFormat = with_all_buckets(HistogramKinds::Both);

const fn with_all_buckets(kinds: HistogramKinds) -> HistogramFormat {
    HistogramFormat { schema: 3, kinds, classic: ClassicBuckets::All }
}

#[test]
fn protobuf_agrees_with_snapshot() {
    let families = families(BOTH);
    let of_series = [("device", "nvme0n1"), ("op", "read")];
    let metric = with(&families["biolat_queue_latency_seconds"], &of_series);
    let encoded = metric.histogram.as_ref().unwrap();
    assert_eq!((encoded.sample_count, encoded.sample_sum), (10 * 12 + 3 + 5, 123.456_789_012));
    assert_eq!((encoded.schema, encoded.zero_count, encoded.zero_threshold), (3, 10, 2f64.powi(-20)));
    assert_eq!(native(encoded), [(-120, 20), (-119, 10), (-110, 70), (-1, 10), (80, 8)]);
    let since = encoded.start_timestamp.unwrap();
    assert_eq!((since.seconds, since.nanos), (1_700_000_001, 250_000_000));
    let empty = with(&families["biolat_device_latency_seconds"], &of_series).histogram.as_ref().unwrap();
    assert_eq!((empty.sample_count, empty.positive_span.len()), (0, 0));
    assert!(empty.zero_threshold > 0.0, "an empty native histogram looks like a classic one");

    let bytes = with(&families["biolat_io_bytes_total"], &of_series).counter.as_ref().unwrap();
    assert_eq!(bytes.value, 40_960.0);
    assert_eq!(bytes.start_timestamp.unwrap(), since);
    let errors = &families["biolat_io_errors_total"];
    let count = |status| {
        let labels = [("device", "nvme0n1"), ("op", "read"), ("status", status)];
        with(errors, &labels).counter.as_ref().unwrap().value
    };
    assert_eq!(["medium", "nospc"].map(count), [10.0, 1.0]);
    assert_eq!(errors.metric.len(), 4, "expected only statuses that occurred");
    let counter = |name: &str, labels: &[_]| with(&families[name], labels).counter.as_ref().unwrap().value;
    assert_eq!(counter("biolat_failed_ios_total", &[]), 15.0);
    assert_eq!(counter("biolat_requeues_total", &of_series), 10.0);
    // Per op: 3 in the last bucket, 5 above it, one in a bucket that ends at 1 s, and none in the one that ends at 1/8 s.
    let over = |over| counter("biolat_slow_ios_total", &[("over", over)]);
    assert_eq!(["0.125", "1", "8"].map(over), [20.0 + 6.0 + 16.0, 16.0, 16.0]);
    let gauge = |name: &str, labels: &[_]| with(&families[name], labels).gauge.as_ref().unwrap().value;
    assert_eq!(["read", "write"].map(|op| gauge("biolat_inflight_ios", &[("op", op)])), [12.0, 3.0]);
    assert_eq!(gauge("biolat_oldest_inflight_seconds", &[]), 16.25);
    assert!(families["biolat_oldest_inflight_exact"].metric.is_empty(), "the age is exact here");
    // Admission is not available, but one series still has earlier counts.
    let admission = &families["biolat_admission_latency_seconds"];
    assert_eq!(admission.metric.len(), 1);
    assert_eq!(with(admission, &[("op", "write_zeroes")]).histogram.as_ref().unwrap().sample_count, 68);
    let is_drive = ("device", "nvme0n1");
    let device = [is_drive, ("firmware", "4B2QJXD7"), ("transport", "tcp"), ("scheduler", "none")];
    assert_eq!(gauge("biolat_device_info", &device), 1.0);
    for [kind, name, depth] in [["crypt", "secret", "1"], ["mount", "/srv/my \"data\"", "2"]] {
        let holder = [is_drive, ("holder", "dm-0"), ("kind", kind), ("name", name), ("depth", depth)];
        assert_eq!(gauge("biolat_device_holder_info", &holder), 1.0);
    }
    let phase = |phase| {
        let found =
            find(&families["biolat_device_phase_available"], &[("device", "nvme0n1"), ("phase", phase)]);
        found.first().map(|metric| metric.gauge.as_ref().unwrap().value)
    };
    assert_eq!(["admission", "queue", "device", "total"].map(phase), [Some(0.0), Some(0.0), None, None]);
    let unseen = &families["biolat_unseen_completions_total"];
    assert_eq!(with(unseen, &[("op", "read")]).counter.as_ref().unwrap().value, 4.0);
    assert_eq!(unseen.metric.len(), 2, "expected read and flush");
    assert_eq!(counter("biolat_unseen_ios_total", &[]), 5.0);
    assert_eq!(
        with(&families["biolat_lost_completions_total"], &[("reason", "iostats_off")])
            .counter
            .as_ref()
            .unwrap()
            .value,
        17.0
    );
    assert_eq!(
        families["biolat_probe_run_seconds_total"].metric[0].counter.as_ref().unwrap().value,
        50_500e-9
    );
    let overflows = [("device", "nvme0n1"), ("op", "read"), ("phase", "total")];
    assert_eq!(
        with(&families["biolat_latency_overflows_total"], &overflows).counter.as_ref().unwrap().value,
        5.0
    );
    assert_eq!(
        families["biolat_latency_overflows_total"].metric.len(),
        5,
        "expected only phases with overflows"
    );
}

#[test]
fn histogram_formats() {
    let of_series = [("device", "nvme0n1"), ("op", "read")];
    let read = |format| {
        with(&families(format)["biolat_total_latency_seconds"], &of_series).histogram.clone().unwrap()
    };
    let coarse = read(HistogramFormat { schema: 0, ..with_all_buckets(HistogramKinds::Native) });
    assert_eq!(native(&coarse), [(-15, 40), (-14, 20), (-13, 140), (0, 20), (10, 8)]);
    assert!(coarse.bucket.is_empty());
    let classic = read(with_all_buckets(HistogramKinds::Classic));
    assert_eq!((classic.zero_threshold, classic.positive_span.len(), classic.bucket.len()), (0.0, 0, 32));
    let both = read(BOTH);
    assert!(both.bucket.len() == 32 && !both.positive_span.is_empty());
    let few = read(HistogramFormat { classic: ClassicBuckets::Few, ..BOTH });
    assert!(few.bucket.len() == 12 && few.bucket.iter().all(|bucket| both.bucket.contains(bucket)));
    let default = read(HistogramFormat::default());
    assert!(default.bucket.is_empty() && default.positive_span == both.positive_span);
}

#[test]
fn exemplars_are_latest_in_bucket() {
    let total = |kinds, op| {
        let families = families(with_all_buckets(kinds));
        let labels = [("device", "nvme0n1"), ("op", op)];
        with(&families["biolat_total_latency_seconds"], &labels).histogram.clone().unwrap()
    };
    let sector = |exemplar: &Exemplar| exemplar.label[0].value.clone();
    let both = total(HistogramKinds::Both, "read");
    // The last native bucket also holds the latencies above the range.
    assert_eq!(both.exemplars.iter().map(sector).collect::<Vec<_>>(), ["1004", "1006"]);
    let classic = both.bucket.iter().filter_map(|bucket| {
        Some((bucket.upper_bound, sector(bucket.exemplar.as_ref()?), bucket.exemplar.as_ref()?.value))
    });
    let expected = [(1.0, "1004", 0.9), (1024.0, "1003", 1000.0), (f64::INFINITY, "1006", 1100.0)];
    assert_eq!(
        classic.collect::<Vec<_>>(),
        expected.map(|(le, sector, value)| (le, sector.to_owned(), value))
    );
    let exemplar = &both.exemplars[0];
    let labels: Vec<_> = exemplar.label.iter().map(|label| (&*label.name, &*label.value)).collect();
    assert_eq!(labels, [("sector", "1004"), ("bytes", "4096")]);
    let at = exemplar.timestamp.unwrap();
    assert_eq!((exemplar.value, at.seconds, at.nanos), (0.9, 1_700_000_001, 250_005_000));

    let native = total(HistogramKinds::Native, "read");
    assert_eq!((native.exemplars, native.bucket.len()), (both.exemplars, 0));
    let classic = total(HistogramKinds::Classic, "read");
    assert_eq!((classic.exemplars.len(), classic.bucket), (0, both.bucket));
    assert!(total(HistogramKinds::Both, "write_zeroes").exemplars.is_empty());
    for phase in ["queue", "device", "admission"] {
        let family = &families(BOTH)[&format!("biolat_{phase}_latency_seconds")];
        assert!(family.metric.iter().all(|metric| metric.histogram.as_ref().unwrap().exemplars.is_empty()));
    }
}

#[test]
fn exemplars_in_text_formats() {
    let text = |kinds, format| {
        let histograms = with_all_buckets(kinds);
        String::from_utf8(encode(&snapshot(), ServerState::default(), histograms, format)).unwrap()
    };
    let exemplars = |kinds| -> Vec<String> {
        let text = text(kinds, Format::OpenMetrics);
        let lines = text.lines().filter_map(|line| line.split_once(" # ").filter(|_| !line.starts_with('#')));
        lines
            .map(|(sample, exemplar)| format!("{} {exemplar}", sample.split("le=").nth(1).unwrap()))
            .collect()
    };
    let both = [
        r#""1.0"} 240 {sector="1004",bytes="4096"} 0.9 1700000001.250005"#,
        r#""1024.0"} 243 {sector="1003",bytes="4096"} 1000 1700000001.250004"#,
        r#""+Inf"} 248 {sector="1006",bytes="4096"} 1100 1700000001.250007"#,
    ];
    assert_eq!(exemplars(HistogramKinds::Auto), both);
    assert_eq!(exemplars(HistogramKinds::Both), both);
    assert_eq!(exemplars(HistogramKinds::Classic), both);
    // With native histograms the only classic bucket holds all latencies.
    assert_eq!(exemplars(HistogramKinds::Native), both[2..]);
    assert!(!text(HistogramKinds::Both, Format::Text).contains("sector"));
}

/// Returns the samples of a text format by name and labels, without exemplars.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(EXEMPLAR).map_or(line, |(sample, _)| sample))
        .collect();
    let names: std::collections::BTreeSet<_> =
        lines.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(names.len(), lines.len(), "duplicate sample");
    lines
        .into_iter()
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

/// Start of an exemplar; occurs in no label.
const EXEMPLAR: &str = " # {sector=\"";

/// Returns the exemplars of an OpenMetrics text by bucket: sector, bytes and value.
fn exemplars(text: &str) -> BTreeMap<&str, (u64, u64, f64)> {
    let parsed = |line| -> Option<_> {
        let (sample, exemplar): (&str, &str) = str::split_once(line, EXEMPLAR)?;
        let (sector, rest) = exemplar.split_once("\",bytes=\"")?;
        let (bytes, rest) = rest.split_once("\"} ")?;
        let (value, _) = rest.split_once(' ')?;
        let number = |text: &str| text.parse().unwrap();
        Some((sample.rsplit_once(' ')?.0, (number(sector), number(bytes), value.parse().unwrap())))
    };
    text.lines().filter_map(parsed).collect()
}

#[test]
fn text_formats_agree_with_protobuf() {
    assert_texts_agree_with_protobuf(&snapshot());
}

pub(crate) fn assert_texts_agree_with_protobuf(snapshot: &Snapshot) {
    let families = families_of(snapshot, BOTH);
    for format in [Format::Text, Format::OpenMetrics] {
        let bytes = encode(snapshot, ServerState::default(), BOTH, format);
        let text = std::str::from_utf8(&bytes).unwrap();
        let (samples, mut exemplars) = (samples(text), exemplars(text));
        let mut check_exemplar = |bucket: &str, expected: Option<&Exemplar>| {
            let expected = expected.filter(|_| format == Format::OpenMetrics).map(|expected| {
                let number = |at: usize| expected.label[at].value.parse().unwrap();
                (number(0), number(1), expected.value)
            });
            assert_eq!(exemplars.remove(bucket), expected, "{bucket}");
        };
        for (name, family) in &families {
            for metric in &family.metric {
                let labels: Vec<_> = metric
                    .label
                    .iter()
                    .map(|label| {
                        format!(
                            "{}=\"{}\"",
                            label.name,
                            label.value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
                        )
                    })
                    .collect();
                let key = |suffix: &str, le: Option<&str>| {
                    let all: Vec<_> =
                        labels.iter().cloned().chain(le.map(|le| format!("le=\"{le}\""))).collect();
                    if all.is_empty() {
                        format!("{name}{suffix}")
                    } else {
                        format!("{name}{suffix}{{{}}}", all.join(","))
                    }
                };
                let value = |key: &str| *samples.get(key).unwrap_or_else(|| panic!("no {key} in {text}"));
                if let Some(counter) = &metric.counter {
                    assert_eq!(value(&key("", None)), counter.value);
                } else if let Some(gauge) = &metric.gauge {
                    assert_eq!(value(&key("", None)), gauge.value);
                } else if let Some(histogram) = &metric.histogram {
                    assert_eq!(value(&key("_sum", None)), histogram.sample_sum);
                    assert_eq!(value(&key("_count", None)), histogram.sample_count as f64);
                    let infinite = key("_bucket", Some("+Inf"));
                    assert_eq!(value(&infinite), histogram.sample_count as f64);
                    check_exemplar(&infinite, histogram.bucket.last().unwrap().exemplar.as_ref());
                    for bucket in histogram.bucket.iter().filter(|bucket| bucket.upper_bound.is_finite()) {
                        let prefix = key("_bucket", Some("")).trim_end_matches("\"}").to_owned();
                        let bound =
                            |name: &str| name.strip_prefix(&prefix)?.trim_end_matches("\"}").parse().ok();
                        let found = samples.iter().find(|(name, _)| bound(name) == Some(bucket.upper_bound));
                        let (name, count) = found.unwrap();
                        assert_eq!(*count, bucket.cumulative_count as f64, "{name}");
                        check_exemplar(name, bucket.exemplar.as_ref());
                    }
                }
            }
        }
        assert!(exemplars.is_empty(), "{exemplars:?}");
    }
}

/// Unknown values are absent, because zero would be a value.
#[test]
fn omits_process_metrics_without_procfs() {
    let text = |snapshot: &Snapshot| {
        String::from_utf8(encode(snapshot, ServerState::default(), HistogramFormat::default(), Format::Text))
            .unwrap()
    };
    let mut snapshot = snapshot();
    assert_eq!(text(&snapshot).lines().filter(|line| line.starts_with("process_")).count(), 6);
    snapshot.process = None;
    assert!(!text(&snapshot).lines().any(|line| line.starts_with("process_")));
}

/// The metric exists only with TLS.
#[test]
fn exposes_certificate_expiry() {
    let text = |certificate_expires| {
        let server = ServerState { certificate_expires, ..ServerState::default() };
        String::from_utf8(encode(&snapshot(), server, HistogramFormat::default(), Format::Text)).unwrap()
    };
    let time = UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    let line = "\nbiolat_certificate_expiry_timestamp_seconds 4102444800\n";
    assert!(text(Some(time)).contains(line));
    assert!(!text(None).contains("biolat_certificate_expiry_timestamp_seconds"));
}

#[test]
fn history_memory() {
    let text = |history_bytes| {
        let server = ServerState { history_bytes, ..ServerState::default() };
        String::from_utf8(encode(&snapshot(), server, HistogramFormat::default(), Format::Text)).unwrap()
    };
    assert!(text(Some(8_000_000)).contains("\nbiolat_history_bytes 8000000\n"));
    assert!(!text(None).contains("biolat_history_bytes"));
}

#[test]
fn completions_by_cpu_on_request() {
    let text = |per_cpu| {
        let server = ServerState { per_cpu, ..ServerState::default() };
        String::from_utf8(encode(&snapshot(), server, HistogramFormat::default(), Format::Text)).unwrap()
    };
    let lines = text(true);
    let samples: Vec<_> = lines.lines().filter(|line| line.starts_with("biolat_completions_total")).collect();
    let of_cpu = |cpu, count| format!("biolat_completions_total{{device=\"nvme0n1\",cpu=\"{cpu}\"}} {count}");
    assert_eq!(samples, [of_cpu(0, 7), of_cpu(2, 9)]);
    assert!(!text(false).contains("biolat_completions_total"));
}

#[test]
fn types_and_units_in_text_formats() {
    let text = String::from_utf8(encode(&snapshot(), ServerState::default(), BOTH, Format::Text)).unwrap();
    assert!(text.contains("# TYPE biolat_io_bytes_total counter\n"));
    assert!(text.contains("# TYPE biolat_device_info gauge\n"));
    assert!(text.contains("model=\"A \\\"quoted\\\" \\\\ drive\""), "{text}");
    let open =
        String::from_utf8(encode(&snapshot(), ServerState::default(), BOTH, Format::OpenMetrics)).unwrap();
    assert!(
        open.contains("# TYPE biolat_io_bytes counter\n# UNIT biolat_io_bytes bytes\nbiolat_io_bytes_total{")
    );
    assert!(open.contains("# TYPE biolat_device info\n"));
    assert!(!open.contains("_created"));
    let created = ServerState { created: true, ..ServerState::default() };
    let open = String::from_utf8(encode(&snapshot(), created, BOTH, Format::OpenMetrics)).unwrap();
    assert!(open.contains("biolat_io_bytes_created{device=\"nvme0n1\",op=\"read\"} 1700000001.250\n"));
    let native = with_all_buckets(HistogramKinds::Native);
    let text = String::from_utf8(encode(&snapshot(), ServerState::default(), native, Format::Text)).unwrap();
    assert!(
        text.contains("biolat_total_latency_seconds_count{device=\"nvme0n1\",op=\"read\"} 248\n"),
        "{text}"
    );
    assert!(text.contains("le=\"+Inf\"} 248\n") && !text.contains("le=\"0.5\""));
}

/// Every value in the JSON equals the one in the protobuf.
#[test]
fn json_agrees_with_protobuf() {
    let json = assert_json_agrees_with_protobuf(&snapshot());
    assert_eq!((&json["version"], &json["biolat"]), (&1.into(), &env!("CARGO_PKG_VERSION").into()));
    assert_eq!((&json["host"], &json["interval"]), (&"example".into(), &2.5.into()));
    assert_eq!((&json["taken"], &json["started"]), (&1_700_000_005.500_123.into(), &1_700_000_000.0.into()));
}

pub(crate) fn assert_json_agrees_with_protobuf(snapshot: &Snapshot) -> Value {
    let json = serde_json::to_vec(snapshot).unwrap();
    let read: Snapshot = serde_json::from_slice(&json).unwrap();
    // Slow I/Os have a document of their own.
    assert_eq!(read, Snapshot { slow: Arc::default(), ..snapshot.clone() });

    let json: Value = serde_json::from_slice(&json).unwrap();
    let families = families_of(snapshot, BOTH);
    let number = |name: &str, labels: &[(&str, &str)]| {
        let found = families.get(name).map_or(Vec::new(), |family| find(family, labels));
        assert!(found.len() <= 1, "{labels:?} in {name}");
        let number = |metric: &&Metric| match &metric.counter {
            Some(counter) => counter.value,
            None => metric.gauge.as_ref().unwrap().value,
        };
        found.first().map(number)
    };
    let count = |name: &str| families[name].metric.len();
    assert_eq!(counts(&json["lost"]).count(), count("biolat_lost_completions_total"));
    for (reason, lost) in counts(&json["lost"]) {
        assert_eq!(Some(lost), number("biolat_lost_completions_total", &[("reason", reason)]));
    }
    let devices = elements(&json["devices"]);
    assert_eq!(devices.len(), count("biolat_device_info"));
    let ops = devices.iter().flat_map(|device| elements(&device["ops"]));
    assert_eq!(ops.filter(|op| op["op"] != "flush").count(), count("biolat_io_bytes_total"));
    let missed = devices.iter().flat_map(|device| counts(&device["unseen"]));
    assert_eq!(missed.filter(|(_, count)| *count > 0.0).count(), count("biolat_unseen_completions_total"));
    for device in devices {
        assert_device_agrees_with_protobuf(device, &families, &number);
    }
    let workloads = json["workloads"].as_array().map_or(&[][..], Vec::as_slice);
    assert_eq!(workloads.len(), count("biolat_workload_info"));
    for workload in workloads {
        assert_workload_agrees_with_protobuf(workload, &families, &number);
    }

    let collections = families["biolat_collect_duration_seconds"].metric[0].histogram.as_ref().unwrap();
    assert_same_histogram(&json["daemon"]["collections"], collections);
    for (field, name) in [
        ("/taken", "biolat_collect_timestamp_seconds"),
        ("/slow_dropped", "biolat_slow_records_dropped_total"),
        ("/daemon/failures", "biolat_collect_failures_total"),
        ("/daemon/overruns", "biolat_collect_overruns_total"),
        ("/daemon/lost_requeues", "biolat_lost_requeues_total"),
        ("/daemon/lost_tag_waits", "biolat_lost_tag_waits_total"),
        ("/daemon/slots", "biolat_series_slots"),
        ("/daemon/map_bytes", "biolat_map_bytes"),
        ("/daemon/workload_room/used", "biolat_workload_places_used"),
        ("/daemon/workload_room/refused_ios", "biolat_workload_no_room_ios_total"),
        ("/probe/runs", "biolat_probe_runs_total"),
        ("/probe/seconds", "biolat_probe_run_seconds_total"),
        ("/process/cpu_seconds", "process_cpu_seconds_total"),
        ("/process/resident_bytes", "process_resident_memory_bytes"),
        ("/process/virtual_bytes", "process_virtual_memory_bytes"),
        ("/process/open_fds", "process_open_fds"),
        ("/process/max_fds", "process_max_fds"),
        ("/process/start_time_seconds", "process_start_time_seconds"),
        ("/online_cpus", "biolat_online_cpus"),
    ] {
        assert_eq!(json.pointer(field).and_then(Value::as_f64), number(name, &[]), "{name}");
    }
    json
}

fn elements(list: &Value) -> &[Value] {
    list.as_array().unwrap()
}

/// Returns the members of a JSON object whose values are counts.
fn counts(object: &Value) -> impl Iterator<Item = (&str, f64)> {
    object.as_object().unwrap().iter().map(|(name, count)| (name.as_str(), count.as_f64().unwrap()))
}

fn assert_device_agrees_with_protobuf(
    device: &Value,
    families: &BTreeMap<String, MetricFamily>,
    number: &impl Fn(&str, &[(&str, &str)]) -> Option<f64>,
) {
    let of_device = ("device", device["name"].as_str().unwrap());
    let info = with(&families["biolat_device_info"], &[of_device]);
    let label = |name: &str| info.label.iter().find(|label| label.name == name).unwrap().value.as_str();
    for name in ["model", "serial", "firmware", "transport", "scheduler"] {
        assert_eq!(device[name], label(name), "{name}");
    }
    assert_eq!(device["rotational"], label("rotational") == "1");
    let paths = families.get("biolat_path_info").map_or(Vec::new(), |family| find(family, &[of_device]));
    assert_eq!(device["path"].is_object(), paths.len() == 1);
    for path in paths {
        let values: Vec<_> = path.label.iter().map(|label| Value::from(&*label.value)).collect();
        let fields = ["of", "transport", "address", "state"].map(|field| device["path"][field].clone());
        assert_eq!(values[1..], fields);
    }
    for phase in ["admission", "queue", "device", "total"] {
        let is_missing = number("biolat_device_phase_available", &[of_device, ("phase", phase)]).is_some();
        assert_eq!(elements(&device["phases"]).contains(&phase.into()), !is_missing, "{phase}");
    }
    for (field, name) in [
        ("/inflight/oldest_seconds", "biolat_oldest_inflight_seconds"),
        ("/effective_cpus", "biolat_completion_cpus"),
        ("/largest_share", "biolat_completion_cpu_share_max"),
        ("/off_node_share", "biolat_completion_off_node_share"),
    ] {
        assert_eq!(device.pointer(field).unwrap().as_f64(), number(name, &[of_device]), "{name}");
    }
    for op in ["read", "write"] {
        assert_eq!(device["inflight"][op].as_f64(), number("biolat_inflight_ios", &[of_device, ("op", op)]));
    }
    for (pool, of_pool) in device["tag_waits"].as_object().into_iter().flatten() {
        let exposed = number("biolat_tag_waits_total", &[of_device, ("pool", pool)]);
        assert_eq!(of_pool["waits"].as_f64(), exposed.or(Some(0.0)), "{pool}");
    }
    let is_exact = number("biolat_oldest_inflight_exact", &[of_device]).is_none();
    assert_eq!(device["inflight"]["exact"], is_exact);
    let ops = elements(&device["ops"]);
    let errors = ops.iter().flat_map(|op| counts(&op["errors"])).map(|(_, count)| count).sum();
    assert_eq!(Some(errors), number("biolat_failed_ios_total", &[of_device]));
    for (over, exponent) in [("0.125", -3), ("1", 0), ("8", 3)] {
        let above =
            |op: &Value| Histogram::deserialize(&op["latency"]["total"]).unwrap().count_above(exponent);
        let slow = ops.iter().map(above).sum::<u64>();
        if slow > 0 || exponent >= 0 {
            let exposed = number("biolat_slow_ios_total", &[of_device, ("over", over)]);
            assert_eq!(Some(slow as f64), exposed);
        }
    }
    for (op, count) in counts(&device["unseen"]) {
        let exposed = number("biolat_unseen_completions_total", &[of_device, ("op", op)]);
        assert_eq!(count, exposed.unwrap_or(0.0));
    }
    let missed = counts(&device["unseen"]).map(|(_, count)| count).sum();
    assert_eq!(Some(missed), number("biolat_unseen_ios_total", &[of_device]));
    for op in ops {
        let labels = [of_device, ("op", op["op"].as_str().unwrap())];
        if op["op"] != "flush" {
            assert_eq!(op["bytes"].as_f64(), number("biolat_io_bytes_total", &labels));
        }
        for (status, count) in counts(&op["errors"]) {
            let labels = [labels[0], labels[1], ("status", status)];
            assert_eq!(Some(count), number("biolat_io_errors_total", &labels));
        }
        for (field, name) in
            [("requeues", "biolat_requeues_total"), ("ended_workload_ios", "biolat_workload_ended_ios_total")]
        {
            assert_eq!(op[field].as_f64(), number(name, &labels).or(Some(0.0)), "{name}");
        }
        let sizes = find(&families["biolat_io_size_bytes"], &labels);
        assert_eq!(op["sizes"].is_object(), sizes.len() == 1);
        let bands = find(&families["biolat_size_device_latency_seconds"], &labels);
        if let [encoded] = sizes[..] {
            assert_same_sizes(&op["sizes"]["requests"], &op["bytes"], encoded.histogram.as_ref().unwrap());
            let found = elements(&op["sizes"]["bands"]);
            assert_eq!(found.len(), bands.len());
            for (band, encoded) in found.iter().zip(bands) {
                assert_eq!(
                    encoded.label.last().map(|label| (&*label.name, &*label.value)),
                    Some(("size", band["size"].as_str().unwrap()))
                );
                assert_same_histogram(&band["device"], encoded.histogram.as_ref().unwrap());
            }
        }
        for phase in ["admission", "queue", "device", "total"] {
            let histogram = &op["latency"][phase];
            let is_available = elements(&device["phases"]).contains(&phase.into());
            let family = &families[&format!("biolat_{phase}_latency_seconds")];
            if is_available || histogram["count"] != 0 || phase != "admission" {
                assert_same_histogram(histogram, with(family, &labels).histogram.as_ref().unwrap());
            } else {
                assert!(find(family, &labels).is_empty());
            }
            let labels = [labels[0], labels[1], ("phase", phase)];
            let overflows = number("biolat_latency_overflows_total", &labels);
            assert_eq!(histogram["overflow"].as_f64(), overflows.or(Some(0.0)));
        }
    }
}

fn assert_workload_agrees_with_protobuf(
    workload: &Value,
    families: &BTreeMap<String, MetricFamily>,
    number: &impl Fn(&str, &[(&str, &str)]) -> Option<f64>,
) {
    let of_workload = ("cgroup", workload["cgroup"].as_str().unwrap());
    for LabelPair { name, value, .. } in &with(&families["biolat_workload_info"], &[of_workload]).label {
        assert_eq!(workload[name], **value, "{name}");
    }
    for usage in elements(&workload["usage"]) {
        let label = |name| (name, usage[name].as_str().unwrap());
        let labels = [label("device"), label("op"), of_workload];
        for (field, name) in [
            ("bytes", "biolat_workload_io_bytes_total"),
            ("errors", "biolat_workload_failed_ios_total"),
            ("queue_seconds", "biolat_workload_queue_seconds_total"),
            ("device_seconds", "biolat_workload_device_seconds_total"),
        ] {
            assert_eq!(usage[field].as_f64(), number(name, &labels).or(Some(0.0)), "{name}");
        }
        let encoded = with(&families["biolat_workload_latency_seconds"], &labels);
        assert_same_histogram(&usage["total"], encoded.histogram.as_ref().unwrap());
    }
}

/// Compares the whole output with the recorded one, so any change to a metric shows up in a diff.
#[test]
fn output_matches_fixtures() {
    for (format, file) in [(Format::Text, "metrics.txt"), (Format::OpenMetrics, "metrics.openmetrics.txt")] {
        let server = ServerState { history_bytes: Some(8_000_000), ..ServerState::default() };
        let histograms = HistogramFormat::default();
        let text = String::from_utf8(encode(&snapshot(), server, histograms, format)).unwrap();
        let build =
            format!("version=\"{}\",revision=\"{}\"", biolat_model::version::VERSION, version::REVISION);
        assert!(text.contains(&build));
        let text = text.replace(&build, "version=\"VERSION\",revision=\"REVISION\"");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/userspace/fixtures").join(file);
        if std::env::var_os("BIOLAT_UPDATE_FIXTURES").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &text).unwrap();
        }
        let recorded = fs::read_to_string(&path).unwrap_or_default();
        let differs = text.lines().zip(recorded.lines()).find(|(now, before)| now != before);
        assert!(
            text == recorded,
            "{file} differs from the recorded output, first in (now, before) {differs:?}. If that is intended:\n\n    \
             BIOLAT_UPDATE_FIXTURES=1 cargo test -p biolat-daemon --test userspace output_matches_fixtures\n"
        );
    }
}

/// The last bucket includes sizes above the range.
fn assert_same_sizes(sizes: &Value, bytes: &Value, encoded: &Encoded) {
    assert_eq!(bytes.as_f64(), Some(encoded.sample_sum));
    assert_eq!((encoded.zero_threshold, encoded.schema), (256.0, 0));
    assert_same_buckets(sizes, encoded, 25);
    let sizes = SizeHistogram::deserialize(sizes).unwrap();
    assert_eq!(sizes.count(), encoded.sample_count);
}

/// The last native bucket includes latencies above the range.
fn assert_same_histogram(histogram: &Value, encoded: &Encoded) {
    assert_eq!(histogram["count"], encoded.sample_count);
    assert_eq!(histogram["seconds"], encoded.sample_sum);
    assert_same_buckets(histogram, encoded, 10 << encoded.schema);
}

fn assert_same_buckets(histogram: &Value, encoded: &Encoded, last: i32) {
    assert_eq!(histogram["zero"], encoded.zero_count);
    let mut buckets: BTreeMap<i32, u64> =
        Vec::deserialize(&histogram["buckets"]).unwrap().into_iter().collect();
    let overflow = histogram["overflow"].as_u64().unwrap();
    if overflow > 0 {
        *buckets.entry(last).or_default() += overflow;
    }
    assert_eq!(buckets.into_iter().collect::<Vec<_>>(), native(encoded));
}
