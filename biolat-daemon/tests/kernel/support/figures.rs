//! A scrape in the protobuf format, decoded with the format's schema.

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

use super::{
    diskstats::Fields,
    http,
    kernel::{self, Ability},
    native::decode,
};

pub(crate) const PROTOBUF: &str = "Accept: application/vnd.google.protobuf; \
    proto=io.prometheus.client.MetricFamily; encoding=delimited\r\n";

/// Maximum number of reads that look for partitions on a new disk.
const SCAN_READS: f64 = 8.0;

/// The metrics of one scrape.
pub(crate) struct Figures(Vec<MetricFamily>);

/// Set by a test whose I/O has data but no dispatch timestamp, so the bands have more I/Os than the device latency although none
/// failed.
pub(crate) static ALLOW_UNDISPATCHED: AtomicBool = AtomicBool::new(false);

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

    /// Asserts that the counts by size add up to the totals. Only I/Os that fail before they are dispatched (on a removed drive)
    /// have a band but no device latency.
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
            if !self.has_phase(device, "device") || ALLOW_UNDISPATCHED.load(Ordering::Relaxed) {
                continue;
            }
            let undispatched = count - self.latencies("device", device, op);
            let failed = self.value("biolat_failed_ios_total", &[("device", device)]);
            let is_scan = op == "read" && !kernel::has(Ability::DispatchedScans);
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

    /// Asserts that the workloads of each device add up to all of its I/O.
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
            assert_eq!(ios + ended, total.sample_count as f64, "{what}, {ended} of ended workloads");
            if ended > 0.0 {
                // For ended workloads, only the I/Os are exposed.
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

    /// Returns a workload's I/Os, or 0 if there is no such workload.
    pub(crate) fn workload_ios(&self, device: &str, op: &str, cgroup: &str) -> u64 {
        let labels = [("device", device), ("op", op), ("cgroup", cgroup)];
        let found = self.metrics("biolat_workload_ios_total", &labels);
        found.first().map_or(0, |metric| metric.counter.as_ref().unwrap().value as u64)
    }

    /// Returns the cgroups with I/O of this op on a device.
    pub(crate) fn cgroups(&self, device: &str, op: &str) -> Vec<String> {
        let metrics = self.metrics("biolat_workload_ios_total", &[("device", device), ("op", op)]);
        let cgroup = |metric: &&Metric| metric.label.iter().find(|label| label.name == "cgroup").cloned();
        metrics.iter().filter_map(|metric| Some(cgroup(metric)?.value)).collect()
    }

    /// Returns the device latencies of each non-empty band.
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

    /// Returns the requests by size: the exponent of a bucket's upper bound in bytes, and its count. Requests without data have
    /// the exponent 8.
    pub(crate) fn sizes(&self, device: &str, op: &str) -> BTreeMap<i32, u64> {
        let metrics = self.metrics("biolat_io_size_bytes", &[("device", device), ("op", op)]);
        let Some(sizes) = metrics.first().and_then(|metric| metric.histogram.as_ref()) else {
            return BTreeMap::new();
        };
        let zero = (sizes.zero_count > 0).then_some((8, sizes.zero_count));
        let buckets = decode(sizes).into_iter().filter(|(_, count)| *count > 0);
        zero.into_iter().chain(buckets).collect()
    }

    /// Returns a family's metrics that have at least these labels.
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

    /// Returns a label of the only metric in a family with these labels.
    pub(crate) fn label(&self, name: &str, labels: &[(&str, &str)], wanted: &str) -> Option<String> {
        let metrics = self.metrics(name, labels);
        let label = metrics.first()?.label.iter().find(|label| label.name == wanted)?;
        Some(label.value.clone())
    }

    /// Returns the sum of the counters and gauges with these labels.
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
        assert!(metrics.len() < 2, "duplicate {name} of {device} {op}");
        metrics.first().and_then(|metric| metric.histogram.as_ref())
    }

    /// Returns the requests of an op group.
    pub(crate) fn count(&self, device: &str, group: Fields) -> u64 {
        let histograms = group.ops().filter_map(|op| self.histogram("total", device, op));
        histograms.map(|histogram| histogram.sample_count).sum()
    }

    /// Returns the sum of a phase's latencies, in seconds.
    pub(crate) fn seconds(&self, phase: &str, device: &str, op: &str) -> f64 {
        self.histogram(phase, device, op).map_or(0.0, |histogram| histogram.sample_sum)
    }

    /// Returns the number of a phase's latencies.
    pub(crate) fn latencies(&self, phase: &str, device: &str, op: &str) -> u64 {
        self.histogram(phase, device, op).map_or(0, |histogram| histogram.sample_count)
    }

    /// Whether a phase is available on a device.
    pub(crate) fn has_phase(&self, device: &str, phase: &str) -> bool {
        self.metrics("biolat_device_phase_available", &[("device", device), ("phase", phase)]).is_empty()
    }

    /// Returns the failures with this status.
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

    pub(crate) fn missed(&self, device: &str) -> u64 {
        self.value("biolat_unseen_ios_total", &[("device", device)]) as u64
    }

    pub(crate) fn missed_of(&self, device: &str, group: Fields) -> u64 {
        self.value("biolat_unseen_completions_total", &[("device", device), ("op", group.name)]) as u64
    }

    pub(crate) fn lost(&self, reason: &str) -> u64 {
        self.value("biolat_lost_completions_total", &[("reason", reason)]) as u64
    }

    /// Returns the time at which the collection read the kernel's counters.
    pub(crate) fn taken(&self) -> Duration {
        Duration::from_secs_f64(self.value("biolat_collect_timestamp_seconds", &[]))
    }
}

/// Returns the growth between two scrapes, by native bucket index.
pub(crate) fn grown(before: Option<&Histogram>, after: &Histogram) -> Vec<(i32, u64)> {
    let before = before.map(decode).unwrap_or_default();
    let count_before =
        |index: i32| before.iter().find(|(found, _)| *found == index).map_or(0, |(_, count)| *count);
    decode(after).into_iter().map(|(index, count)| (index, count - count_before(index))).collect()
}

/// Returns the native index of the bucket that holds a quantile.
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

/// Returns the native bucket index of a latency.
pub(crate) fn index_of(seconds: f64) -> i32 {
    (seconds.log2() * 8.0).ceil() as i32
}

/// Returns the share of observations in a latency's bucket and above.
pub(crate) fn share_from(buckets: &[(i32, u64)], seconds: f64) -> f64 {
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    let lowest = index_of(seconds);
    let above: u64 = buckets.iter().filter(|(index, _)| *index >= lowest).map(|(_, count)| count).sum();
    above as f64 / all as f64
}
