//! A scrape in the protobuf format, decoded with the schema of the format.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{
    Histogram, Metric, MetricFamily,
};
use prost::Message as _;

use super::{diskstats::Fields, http, kernel, native::decode};

pub(crate) const PROTOBUF: &str = "Accept: application/vnd.google.protobuf; \
    proto=io.prometheus.client.MetricFamily; encoding=delimited\r\n";

/// At most so many reads look for partitions of a new disk.
const SCAN_READS: f64 = 8.0;

/// A scrape.
pub(crate) struct Figures(Vec<MetricFamily>);

/// Set by a test of I/O with data that has no dispatch timestamp: its bands have more I/Os than the device latency, although
/// none failed.
pub(crate) static UNDISPATCHED: AtomicBool = AtomicBool::new(false);

impl Figures {
    pub(crate) fn scrape(address: SocketAddr) -> Self {
        let answer = http::get(address, "/metrics", PROTOBUF).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.head);
        let mut bytes = &answer.body[..];
        let mut families = Vec::new();
        while !bytes.is_empty() {
            families.push(MetricFamily::decode_length_delimited(&mut bytes).unwrap());
        }
        let figures = Self(families);
        figures.assert_sizes_add_up();
        figures.assert_workloads_add_up();
        figures
    }

    /// Counts by size are those of all sizes, in each scrape. Only I/Os that fail before they are dispatched (of a drive that is
    /// removed) have a band and no device latency.
    fn assert_sizes_add_up(&self) {
        for metric in self.metrics("biolat_io_size_bytes", &[]) {
            let label = |name: &str| {
                metric
                    .label
                    .iter()
                    .find(|label| label.name == name)
                    .map(|label| label.value.as_str())
                    .unwrap()
            };
            let (device, op) = (label("device"), label("op"));
            let (sizes, total) = (metric.histogram.as_ref().unwrap(), self.latencies("total", device, op));
            assert_eq!(sizes.sample_count, total, "{op}s of {device} by size");
            let bytes = self.value("biolat_io_bytes_total", &[("device", device), ("op", op)]);
            assert_eq!(sizes.sample_sum, bytes, "bytes of {op}s of {device} by size");
            let bands = self.bands(device, op);
            let count: u64 = bands.iter().map(|(_, latencies)| latencies.sample_count).sum();
            let seconds: f64 = bands.iter().map(|(_, latencies)| latencies.sample_sum).sum();
            if !["read", "write", "zone_append"].contains(&op) {
                assert!(bands.is_empty(), "{op}s of {device}");
                continue;
            }
            assert_eq!(count, total - sizes.zero_count, "{op}s of {device} with data, by band");
            if !self.has_phase(device, "device") || UNDISPATCHED.load(Ordering::Relaxed) {
                continue;
            }
            let undispatched = count - self.latencies("device", device, op);
            let failed = self.value("biolat_failed_ios_total", &[("device", device)]);
            let is_scan = op == "read" && kernel::scans_partitions_without_dispatch_times();
            let of_scan = if is_scan { SCAN_READS } else { 0.0 };
            assert!(
                undispatched as f64 <= failed + of_scan,
                "{count} {op}s of {device} by band, {undispatched} too many"
            );
            if undispatched == 0 {
                let expected = self.seconds("device", device, op);
                assert!(
                    (seconds - expected).abs() <= expected * 1e-9,
                    "{seconds} s by band, {expected} s of {count} {op}s of {device}, {} without data",
                    sizes.zero_count
                );
            }
        }
    }

    /// The workloads of a device are all of its I/O, in each scrape.
    fn assert_workloads_add_up(&self) {
        if self.metrics("biolat_workload_ios_total", &[]).is_empty() {
            return;
        }
        let sum = |name: &str, labels: &[(&str, &str)]| -> f64 {
            let metrics = self.metrics(name, labels).into_iter();
            metrics.map(|metric| metric.counter.as_ref().unwrap().value).sum()
        };
        for metric in self.metrics("biolat_total_latency_seconds", &[]) {
            let label =
                |name: &str| metric.label.iter().find(|label| label.name == name).unwrap().value.as_str();
            let (device, op) = (label("device"), label("op"));
            let labels = [("device", device), ("op", op)];
            let total = metric.histogram.as_ref().unwrap();
            let what = format!("{op}s of {device} by workload");
            let ended = self.value("biolat_workload_ended_ios_total", &labels);
            let ios = sum("biolat_workload_ios_total", &labels);
            assert_eq!(ios + ended, total.sample_count as f64, "{what}, {ended} of them ended");
            if ended > 0.0 {
                // Of workloads that have ended, only the I/Os are exposed.
                continue;
            }
            let bytes = self.value("biolat_io_bytes_total", &labels);
            assert_eq!(sum("biolat_workload_io_bytes_total", &labels), bytes, "bytes of {what}");
            let latencies = self.metrics("biolat_workload_latency_seconds", &labels);
            let latencies = latencies.into_iter().map(|metric| metric.histogram.as_ref().unwrap());
            let (counts, seconds): (Vec<_>, Vec<_>) =
                latencies.map(|latency| (latency.sample_count, latency.sample_sum)).unzip();
            assert_eq!(counts.iter().sum::<u64>(), total.sample_count, "latencies of {what}");
            let is_near = |one: f64, other: f64| (one - other).abs() <= other.abs() * 1e-9 + 1e-9;
            assert!(is_near(seconds.iter().sum(), total.sample_sum), "seconds of {what}");
            for (phase, name) in [
                ("queue", "biolat_workload_queue_seconds_total"),
                ("device", "biolat_workload_device_seconds_total"),
            ] {
                let (workloads, all) = (sum(name, &labels), self.seconds(phase, device, op));
                assert!(is_near(workloads, all), "{phase} seconds of {what}: {workloads}, not {all}");
            }
        }
        for metric in self.metrics("biolat_failed_ios_total", &[]) {
            let labels = [("device", metric.label[0].value.as_str())];
            if !self.metrics("biolat_workload_ended_ios_total", &labels).is_empty() {
                continue;
            }
            let failed = metric.counter.as_ref().unwrap().value;
            assert_eq!(sum("biolat_workload_failed_ios_total", &labels), failed, "failed I/Os of {labels:?}");
        }
    }

    /// I/Os of a workload; 0 if there is no such workload.
    pub(crate) fn workload_ios(&self, device: &str, op: &str, cgroup: &str) -> u64 {
        let labels = [("device", device), ("op", op), ("cgroup", cgroup)];
        let found = self.metrics("biolat_workload_ios_total", &labels);
        found.first().map_or(0, |metric| metric.counter.as_ref().unwrap().value as u64)
    }

    /// The cgroups that have done I/O of this op on a device.
    pub(crate) fn cgroups(&self, device: &str, op: &str) -> Vec<String> {
        let metrics = self.metrics("biolat_workload_ios_total", &[("device", device), ("op", op)]);
        let cgroup = |metric: &&Metric| metric.label.iter().find(|label| label.name == "cgroup").cloned();
        metrics.iter().filter_map(|metric| Some(cgroup(metric)?.value)).collect()
    }

    /// The device latencies of each band that has some.
    pub(crate) fn bands(&self, device: &str, op: &str) -> Vec<(&str, &Histogram)> {
        let metrics = self.metrics("biolat_size_device_latency_seconds", &[("device", device), ("op", op)]);
        metrics
            .into_iter()
            .map(|metric| (metric, metric.histogram.as_ref().unwrap()))
            .map(|(metric, latencies)| {
                let label = metric.label.iter().find(|label| label.name == "size").unwrap();
                (label.value.as_str(), latencies)
            })
            .collect()
    }

    /// Requests of each size: the exponent of the upper bound of a bucket in bytes, and its count. The exponent 8 is of
    /// requests without data.
    pub(crate) fn sizes(&self, device: &str, op: &str) -> BTreeMap<i32, u64> {
        let metrics = self.metrics("biolat_io_size_bytes", &[("device", device), ("op", op)]);
        let Some(sizes) = metrics.first().and_then(|metric| metric.histogram.as_ref()) else {
            return BTreeMap::new();
        };
        let zero = (sizes.zero_count > 0).then_some((8, sizes.zero_count));
        let buckets = decode(sizes).into_iter().filter(|(_, count)| *count > 0);
        zero.into_iter().chain(buckets).collect()
    }

    /// Metrics of a family that have at least these labels.
    pub(crate) fn metrics<'a>(&'a self, name: &str, labels: &[(&str, &str)]) -> Vec<&'a Metric> {
        let family = self.0.iter().find(|family| family.name == name);
        family
            .into_iter()
            .flat_map(|family| &family.metric)
            .filter(|metric| {
                let has = |(name, value): &(&str, &str)| {
                    metric.label.iter().any(|label| label.name == *name && label.value == *value)
                };
                labels.iter().all(has)
            })
            .collect()
    }

    /// A label of the one metric of a family that has these labels.
    pub(crate) fn label(&self, name: &str, labels: &[(&str, &str)], wanted: &str) -> Option<String> {
        let metrics = self.metrics(name, labels);
        let label = metrics.first()?.label.iter().find(|label| label.name == wanted)?;
        Some(label.value.clone())
    }

    /// The sum of counters and gauges that have these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let value = |metric: &&Metric| {
            metric
                .counter
                .as_ref()
                .map(|counter| counter.value)
                .or(metric.gauge.as_ref().map(|gauge| gauge.value))
        };
        self.metrics(name, labels).iter().filter_map(value).sum()
    }

    pub(crate) fn histogram(&self, phase: &str, device: &str, op: &str) -> Option<&Histogram> {
        let name = format!("biolat_{phase}_latency_seconds");
        let metrics = self.metrics(&name, &[("device", device), ("op", op)]);
        assert!(metrics.len() < 2, "{name} of {device} {op} twice");
        metrics.first().and_then(|metric| metric.histogram.as_ref())
    }

    /// Requests of an op group.
    pub(crate) fn count(&self, device: &str, group: Fields) -> u64 {
        let histograms = group.ops().filter_map(|op| self.histogram("total", device, op));
        histograms.map(|histogram| histogram.sample_count).sum()
    }

    /// The sum of the latencies of a phase, in seconds.
    pub(crate) fn seconds(&self, phase: &str, device: &str, op: &str) -> f64 {
        self.histogram(phase, device, op).map_or(0.0, |histogram| histogram.sample_sum)
    }

    /// The number of latencies of a phase.
    pub(crate) fn latencies(&self, phase: &str, device: &str, op: &str) -> u64 {
        self.histogram(phase, device, op).map_or(0, |histogram| histogram.sample_count)
    }

    /// Whether a phase of a device is available.
    pub(crate) fn has_phase(&self, device: &str, phase: &str) -> bool {
        self.metrics("biolat_device_phase_available", &[("device", device), ("phase", phase)]).is_empty()
    }

    /// Failures with this status.
    pub(crate) fn errors(&self, device: &str, op: &str, status: &str) -> u64 {
        let labels = [("device", device), ("op", op), ("status", status)];
        self.value("biolat_io_errors_total", &labels) as u64
    }

    pub(crate) fn has_device(&self, device: &str) -> bool {
        !self.metrics("biolat_device_info", &[("device", device)]).is_empty()
    }

    pub(crate) fn bytes(&self, device: &str, group: Fields) -> u64 {
        let bytes =
            group.ops().map(|op| self.value("biolat_io_bytes_total", &[("device", device), ("op", op)]));
        bytes.sum::<f64>() as u64
    }

    pub(crate) fn unseen(&self, device: &str) -> u64 {
        self.value("biolat_unseen_ios_total", &[("device", device)]) as u64
    }

    pub(crate) fn unseen_of(&self, device: &str, group: Fields) -> u64 {
        self.value("biolat_unseen_completions_total", &[("device", device), ("op", group.name)]) as u64
    }

    pub(crate) fn lost(&self, reason: &str) -> u64 {
        self.value("biolat_lost_completions_total", &[("reason", reason)]) as u64
    }

    /// When the collection read the kernel's counters.
    pub(crate) fn taken(&self) -> Duration {
        Duration::from_secs_f64(self.value("biolat_collect_timestamp_seconds", &[]))
    }
}

/// Growth between two scrapes, by native bucket index.
pub(crate) fn grown(before: Option<&Histogram>, after: &Histogram) -> Vec<(i32, u64)> {
    let before = before.map(decode).unwrap_or_default();
    let count_before =
        |index: i32| before.iter().find(|(found, _)| *found == index).map_or(0, |(_, count)| *count);
    decode(after).into_iter().map(|(index, count)| (index, count - count_before(index))).collect()
}

/// The native index of the bucket that holds a quantile.
pub(crate) fn quantile_index(buckets: &[(i32, u64)], quantile: f64) -> i32 {
    let rank = (buckets.iter().map(|(_, count)| count).sum::<u64>() as f64 * quantile).ceil() as u64;
    let mut cumulative = 0;
    for (index, count) in buckets {
        cumulative += count;
        if cumulative >= rank {
            return *index;
        }
    }
    panic!("no bucket holds the quantile {quantile}")
}

/// The native index of a latency.
pub(crate) fn index_of(seconds: f64) -> i32 {
    (seconds.log2() * 8.0).ceil() as i32
}

/// The share of observations in the bucket of a latency and above.
pub(crate) fn share_from(buckets: &[(i32, u64)], seconds: f64) -> f64 {
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    let lowest = index_of(seconds);
    let above: u64 = buckets.iter().filter(|(index, _)| *index >= lowest).map(|(_, count)| count).sum();
    above as f64 / all as f64
}
