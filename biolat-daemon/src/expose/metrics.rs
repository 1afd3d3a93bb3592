//! The table of all metrics, with their names, types, labels, help texts and samples. [`families`](super::families) and
//! `docs/metrics.md` are generated from it.
//!
//! To add a metric, add one entry, plus a field in [`Snapshot`] if its value is new.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_common::series::Phase;
use biolat_model::{
    band_histogram::BandHistogram,
    cgroup::Identity,
    histogram::Histogram,
    size_histogram::SizeHistogram,
    snapshot::{DeviceView, SeriesView, SlowIo, Snapshot, Stalled, WorkloadUsage, WorkloadView},
};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::MetricType;

use super::ServerState;
use crate::version;

/// One metric.
pub(crate) struct Metric {
    /// Full name, with unit and `_total`.
    pub(crate) name: &'static str,
    /// Label names, in the order of the values that `samples` adds.
    pub(crate) labels: &'static [&'static str],
    /// Description for `# HELP` and the documentation.
    pub(crate) help: &'static str,
    pub(crate) samples: Samples,
    pub(crate) exposed: Exposed,
}

/// The function that adds the samples, by metric type. Counters and histograms have a start: the time when they were zero.
pub(crate) enum Samples {
    Gauge(fn(&Snapshot, &mut AddGauge<'_>)),
    /// A gauge per device, with the device as its only label. Can be absent.
    OfDevice(fn(&DeviceView) -> Option<f64>),
    Counter(fn(&Snapshot, &mut AddCounter<'_>)),
    Histogram(fn(&Snapshot, &mut AddHistogram<'_>)),
    /// At most two native buckets per octave.
    BandHistogram(fn(&Snapshot, &mut AddBandHistogram<'_>)),
    /// Like `BandHistogram`, with only a few classic buckets because there are many workloads.
    WorkloadHistogram(fn(&Snapshot, &mut AddBandHistogram<'_>)),
    /// Sizes, with one native bucket per octave.
    SizeHistogram(fn(&Snapshot, &mut AddSizeHistogram<'_>)),
    /// A gauge of the server, without labels. Can be absent.
    OfServer(fn(ServerState) -> Option<f64>),
}

/// Adds a sample: label values and value.
pub(crate) type AddGauge<'a> = dyn FnMut(&[&str], f64) + 'a;
/// Adds a sample: label values, value, start.
pub(crate) type AddCounter<'a> = dyn FnMut(&[&str], f64, SystemTime) + 'a;
/// Adds a sample: label values, value, start, and its recorded I/Os for exemplars.
pub(crate) type AddHistogram<'a> = dyn FnMut(&[&str], &Histogram, SystemTime, &[&SlowIo]) + 'a;

/// Adds a sample: label values, value, start.
pub(crate) type AddBandHistogram<'a> = dyn FnMut(&[&str], &BandHistogram, SystemTime) + 'a;
/// Adds a sample: label values, value, sum in bytes, start.
pub(crate) type AddSizeHistogram<'a> = dyn FnMut(&[&str], &SizeHistogram, u64, SystemTime) + 'a;

/// When a metric is exposed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposed {
    Always,
    /// Only with `--probe-stats`.
    WithProbeStats,
    /// Only with TLS.
    WithTls,
    /// Only with `--per-cpu`.
    PerCpu,
    /// Except with `--history off`.
    WithHistory,
}

impl Samples {
    pub(crate) const fn kind(&self) -> MetricType {
        match self {
            Self::Gauge(_) | Self::OfDevice(_) | Self::OfServer(_) => MetricType::Gauge,
            Self::Counter(_) => MetricType::Counter,
            Self::Histogram(_)
            | Self::BandHistogram(_)
            | Self::WorkloadHistogram(_)
            | Self::SizeHistogram(_) => MetricType::Histogram,
        }
    }
}

impl Exposed {
    pub(crate) const fn applies_to(self, snapshot: &Snapshot, server: ServerState) -> bool {
        match self {
            Self::Always => true,
            Self::WithProbeStats => snapshot.probe.is_some(),
            Self::WithTls => server.certificate_expires.is_some(),
            Self::PerCpu => server.per_cpu,
            Self::WithHistory => server.history_bytes.is_some(),
        }
    }
}

/// Returns the unit of a metric. OpenMetrics requires it at the end of the name, before `_total`.
pub(crate) fn unit(name: &str) -> Option<&'static str> {
    ["seconds", "bytes"]
        .into_iter()
        .find(|unit| name.strip_suffix(unit).is_some_and(|name| name.ends_with('_')))
}

/// Values of the label `over` in seconds, each with its exponent as a power of two.
const SLOW: [(&str, i32); 3] = [("0.125", -3), ("1", 0), ("8", 3)];

/// A gauge of [`Process`](biolat_model::snapshot::Process).
macro_rules! process_gauge {
    ($name:literal, $help:literal, $field:ident) => {
        Metric {
            name: $name,
            labels: &[],
            help: $help,
            samples: Samples::Gauge(|snapshot, add| {
                if let Some(process) = snapshot.process {
                    add(&[], process.$field as f64);
                }
            }),
            exposed: Exposed::Always,
        }
    };
}

/// Every metric, in the order of exposition.
pub(crate) const METRICS: &[Metric] = &[
    Metric {
        name: "biolat_admission_latency_seconds",
        labels: &["device", "op"],
        help: "Admission latency of block requests in seconds: from submission of the first bio to allocation of the \
               request, including writeback throttling, io.latency, io.cost and the wait for a tag, but not io.max. On \
               Linux 6.18 and later with io.cost, only the wait for a tag. Exposed only where the kernel records it.",
        samples: Samples::Histogram(|snapshot, add| {
            for (device, series) in series(snapshot) {
                if has_phase(device, series, Phase::Admission) {
                    let histogram = &series.histograms[Phase::Admission as usize];
                    add(&[&device.device.name, &series.op], histogram, device.since, &[]);
                }
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_queue_latency_seconds",
        labels: &["device", "op"],
        help: "Queue latency of block requests in seconds: from allocation of the request to its dispatch to the \
               driver, in the plug and the I/O scheduler. The wait for a tag precedes the allocation and is admission \
               latency.",
        samples: Samples::Histogram(|snapshot, add| latencies(snapshot, Phase::Queue, add)),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_device_latency_seconds",
        labels: &["device", "op"],
        help: "Device latency of block requests in seconds: from dispatch to the driver to completion.",
        samples: Samples::Histogram(|snapshot, add| latencies(snapshot, Phase::Device, add)),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_total_latency_seconds",
        labels: &["device", "op"],
        help: "Total latency of block requests in seconds: from allocation of the request to completion, which is queue \
               plus device latency. Admission latency is not included.",
        samples: Samples::Histogram(|snapshot, add| {
            let slow = slow_ios(snapshot);
            for (device, series) in series(snapshot) {
                let labels = [device.device.name.as_str(), &series.op];
                let slow = slow.get(&labels).into_iter().flatten();
                // The histogram does not include I/Os of an earlier drive with the same name.
                let slow: Vec<_> = slow.copied().filter(|io| io.completed >= device.since).collect();
                add(&labels, &series.histograms[Phase::Total as usize], device.since, &slow);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_io_size_bytes",
        labels: &["device", "op"],
        help: "Sizes of block requests in bytes, with all parts of a request added up; the last native bucket counts \
               everything above 16 MiB. The sum equals biolat_io_bytes_total, which also includes bytes of partially \
               completed requests. Exposed unless --sizes is off.",
        samples: Samples::SizeHistogram(|snapshot, add| {
            for (device, series) in series(snapshot) {
                if let Some(sizes) = &series.sizes {
                    let labels = [device.device.name.as_str(), &series.op];
                    add(&labels, &sizes.requests, series.bytes, device.since);
                }
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_size_device_latency_seconds",
        labels: &["device", "op", "size"],
        help: "Device latency of block requests in seconds, by the size of the request; total latency where the kernel \
               does not record the dispatch (see biolat_device_phase_available). Only for reads, writes and zone appends, \
               and for sizes that have occurred. Exposed unless --sizes is off.",
        samples: Samples::BandHistogram(|snapshot, add| {
            for (device, series) in series(snapshot) {
                for band in series.sizes.iter().flat_map(|sizes| &sizes.bands) {
                    add(&[&device.device.name, &series.op, &band.size], &band.device, device.since);
                }
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_workload_info",
        labels: &[
            "cgroup",
            "name",
            "kind",
            "unit",
            "namespace",
            "pod",
            "container",
            "pod_uid",
            "container_id",
        ],
        help: "Attributes of a workload, by the path of its cgroup; always 1. name: a short human-readable name. kind: root, \
               service, container, pod, session and others. Labels that do not apply are empty.",
        samples: Samples::Gauge(|snapshot, add| {
            for WorkloadView { cgroup, identity, .. } in snapshot.workloads.iter().flatten() {
                let Identity { kind, unit, pod_uid, qos: _, container_id, container, namespace, pod } =
                    identity;
                let name = identity.short_name(cgroup);
                let labels =
                    [cgroup, &name, kind.name(), unit, namespace, pod, container, pod_uid, container_id];
                add(&labels, 1.0);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_workload_ios_total",
        labels: &["device", "op", "cgroup"],
        help: "Completed block requests of a workload. cgroup: path of the cgroup that the kernel charges, like cAdvisor's \
               label id. \"/\" is the root cgroup, with the I/O of the kernel (journal, metadata, flushes, md) and of \
               processes in it; \"other\" is all I/O that there was no room for. The sum over cgroups plus \
               biolat_workload_ended_ios_total equals the count of biolat_total_latency_seconds. Exposed unless \
               --workloads is off.",
        samples: Samples::Counter(|snapshot, add| {
            for (labels, start, usage) in workloads(snapshot) {
                add(&labels, usage.latency.count() as f64, start);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_workload_ended_ios_total",
        labels: &["device", "op"],
        help: "Completed block requests of workloads that are no longer exposed because their cgroup is gone. Appears with \
               the first one.",
        samples: Samples::Counter(|snapshot, add| {
            for (device, series) in series(snapshot).filter(|(_, series)| series.ended_workload_ios > 0) {
                add(&[&device.device.name, &series.op], series.ended_workload_ios as f64, device.since);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_workload_io_bytes_total",
        labels: &["device", "op", "cgroup"],
        help: "Bytes transferred by completed block requests of a workload. Until the first workload ends, the sum over \
               cgroups equals biolat_io_bytes_total.",
        samples: Samples::Counter(|snapshot, add| {
            for (labels, start, usage) in workloads(snapshot) {
                add(&labels, usage.bytes as f64, start);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_workload_failed_ios_total",
        labels: &["device", "op", "cgroup"],
        help: "Block requests of a workload that completed with an error. A workload appears with its first error; \
               biolat_failed_ios_total is exposed from the start.",
        samples: Samples::Counter(|snapshot, add| {
            for (labels, start, usage) in workloads(snapshot).filter(|(.., usage)| usage.errors > 0) {
                add(&labels, usage.errors as f64, start);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_workload_queue_seconds_total",
        labels: &["device", "op", "cgroup"],
        help: "Total time that block requests of a workload spent in the queue, in seconds. Until the first workload ends, \
               the sum over cgroups equals the sum of biolat_queue_latency_seconds.",
        samples: Samples::Counter(|snapshot, add| {
            for (labels, start, usage) in workloads(snapshot) {
                add(&labels, usage.queue_seconds(), start);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_workload_device_seconds_total",
        labels: &["device", "op", "cgroup"],
        help: "Total time that block requests of a workload spent in the device, in seconds; its rate is the mean number of \
               requests in the device. Until the first workload ends, the sum over cgroups equals the sum of \
               biolat_device_latency_seconds.",
        samples: Samples::Counter(|snapshot, add| {
            for (labels, start, usage) in workloads(snapshot) {
                add(&labels, usage.device_seconds(), start);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_workload_io_stalled_seconds_total",
        labels: &["cgroup", "kind"],
        help: "Time for which tasks of a workload's cgroup, or of a cgroup below it, were stalled on I/O, in seconds (the \
               kernel's io.pressure). kind: some (at least one task) or full (all tasks that were not idle). Includes waits \
               that are in no latency, such as the one for io.max. Only with cgroup v2.",
        samples: Samples::Counter(|snapshot, add| {
            for WorkloadView { cgroup, since, stalled, .. } in snapshot.workloads.iter().flatten() {
                if let Some(Stalled { some, full, has_limit: _ }) = stalled {
                    add(&[cgroup, "some"], some.as_secs_f64(), *since);
                    add(&[cgroup, "full"], full.as_secs_f64(), *since);
                }
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_workload_latency_seconds",
        labels: &["device", "op", "cgroup"],
        help: "Total latency of block requests of a workload in seconds, which is queue plus device latency. At most two \
               native buckets per octave; classic buckets span three octaves.",
        samples: Samples::WorkloadHistogram(|snapshot, add| {
            for (labels, start, usage) in workloads(snapshot) {
                add(&labels, &usage.latency, start);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_io_bytes_total",
        labels: &["device", "op"],
        help: "Bytes transferred by completed block requests, as the kernel's disk statistics count them. A flush has none.",
        samples: Samples::Counter(|snapshot, add| {
            for (device, series) in series(snapshot).filter(|(_, series)| series.op != "flush") {
                add(&[&device.device.name, &series.op], series.bytes as f64, device.since);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_io_errors_total",
        labels: &["device", "op", "status"],
        help: "Block requests that completed with an error, by the kernel's block status. A status appears with its \
               first error; biolat_failed_ios_total is exposed from the start.",
        samples: Samples::Counter(|snapshot, add| {
            add_errors(series(snapshot), add);
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_failed_ios_total",
        labels: &["device"],
        help: "Block requests that completed with an error, over all ops and statuses.",
        samples: Samples::Counter(|snapshot, add| {
            add_failures(snapshot.drives(), add);
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_slow_ios_total",
        labels: &["device", "over"],
        help: "Block requests with a total latency above the number of seconds given by the over label, for all ops. Cumulative: \
               requests above 1 s also count as above 0.125 s. 1 and 8 s, which alerts use, are exposed from the start; \
               0.125 s appears with its first request.",
        samples: Samples::Counter(|snapshot, add| {
            for device in snapshot.drives() {
                for (over, exponent) in SLOW {
                    let totals = device.series.iter().map(|series| &series.histograms[Phase::Total as usize]);
                    let count: u64 = totals.map(|total| total.count_above(exponent)).sum();
                    if count == 0 && exponent < 0 {
                        continue;
                    }
                    add(&[&device.device.name, over], count as f64, device.since);
                }
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_slow_records_dropped_total",
        labels: &[],
        help: "Slow and failed block requests without a record, because there were too many at once. Counters and \
               histograms include them.",
        samples: Samples::Counter(|snapshot, add| {
            add(&[], snapshot.slow_dropped as f64, snapshot.started);
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_requeues_total",
        labels: &["device", "op"],
        help: "Times that a block request returned to the queue after its dispatch to the driver, for example because \
               the drive was busy. Appears with the first one.",
        samples: Samples::Counter(|snapshot, add| {
            for (device, series) in series(snapshot).filter(|(_, series)| series.requeues > 0) {
                add(&[&device.device.name, &series.op], series.requeues as f64, device.since);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_lost_requeues_total",
        labels: &[],
        help: "Requeues missing from biolat_requeues_total: the kernel skipped the probe because it was already running on \
               that CPU. Requeues are not completions.",
        samples: Samples::Counter(|snapshot, add| {
            add(&[], snapshot.health.lost_requeues as f64, snapshot.started);
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_tag_waits_total",
        labels: &["device", "pool"],
        help: "Times that a task went to sleep because no tag was free for its I/O. One I/O can wait several times. Since \
               Linux 7.3. pool: whose tags: driver (I/O without a scheduler needs one), scheduler, or reserved (for the driver's \
               own commands). A series appears with its first wait.",
        samples: Samples::Counter(|snapshot, add| {
            for (device, waits) in snapshot.devices.iter().filter_map(|view| Some((view, view.tag_waits?))) {
                for (pool, of_pool) in waits.pools().into_iter().filter(|(_, of_pool)| of_pool.waits > 0) {
                    add(&[&device.device.name, pool], of_pool.waits as f64, device.since);
                }
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_lost_tag_waits_total",
        labels: &[],
        help: "Waits missing from biolat_tag_waits_total: the kernel skipped the probe because it was already running on that \
               CPU, or more than 1,024 devices have had waits. Absent where the kernel does not show waits for a tag.",
        samples: Samples::Counter(|snapshot, add| {
            if let Some(lost) = snapshot.health.lost_tag_waits {
                add(&[], lost as f64, snapshot.started);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_inflight_ios",
        labels: &["device", "op"],
        help: "Block requests dispatched to the driver and not yet completed at the time of the collection. write: all ops \
               except read.",
        samples: Samples::Gauge(|snapshot, add| {
            for DeviceView { device, inflight, .. } in snapshot.drives() {
                add(&[&device.name, "read"], inflight.reads as f64);
                add(&[&device.name, "write"], inflight.writes as f64);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_oldest_inflight_seconds",
        labels: &["device"],
        help: "Age in seconds of the oldest block request in the I/O scheduler or the driver at the time of the collection; \
               0 if there is none.",
        samples: Samples::OfDevice(|device| Some(device.inflight.oldest.as_secs_f64())),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_oldest_inflight_exact",
        labels: &["device"],
        help: "0 if biolat_oldest_inflight_seconds is a lower bound: the time that requests have been in flight without \
               a completion. Absent if it is exact.",
        samples: Samples::OfDevice(|device| (!device.inflight.is_exact).then_some(0.0)),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_completion_cpus",
        labels: &["device"],
        help: "Effective number of CPUs that complete the block requests of a device: 1 / the sum of the squared shares, \
               which is the number of CPUs if all have equal shares. Over the last few minutes; absent without completions.",
        samples: Samples::OfDevice(|device| device.spread.effective_cpus),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_completion_cpu_share_max",
        labels: &["device"],
        help: "Share of a device's block requests that the busiest CPU completes, 0 to 1. Over the last few minutes; \
               absent without completions.",
        samples: Samples::OfDevice(|device| device.spread.largest_share),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_completion_off_node_share",
        labels: &["device"],
        help: "Share of a device's block requests that CPUs of another NUMA node complete, 0 to 1. Over the last few \
               minutes; absent without completions, or if the device's node is unknown.",
        samples: Samples::OfDevice(|device| device.spread.off_node_share.filter(|&share| share > 0.0)),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_completions_total",
        labels: &["device", "cpu"],
        help: "Block requests of a device that completed on a CPU. CPUs without completions are omitted.",
        samples: Samples::Counter(|snapshot, add| {
            for DeviceView { device, spread, since, .. } in snapshot.drives() {
                for (cpu, &count) in spread.completions.iter().enumerate().filter(|&(_, &count)| count > 0) {
                    add(&[&device.name, &cpu.to_string()], count as f64, *since);
                }
            }
        }),
        exposed: Exposed::PerCpu,
    },
    Metric {
        name: "biolat_volume_latency_seconds",
        labels: &["device", "op"],
        help: "Latency of the I/Os of a volume (dm, md, zram) in seconds, as its users see it: from submission of the bio to its \
               end. op: read, write, discard; empty flushes are writes. For an NVMe multipath device, the total latency on its \
               paths, by their ops. The drives below count the same I/Os, so do not add them to \
               biolat_total_latency_seconds. Exposed unless --volumes is off.",
        samples: Samples::Histogram(|snapshot, add| {
            for (volume, series) in volume_series(snapshot) {
                let histogram = &series.histograms[Phase::Total as usize];
                add(&[&volume.device.name, &series.op], histogram, volume.since, &[]);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_volume_io_bytes_total",
        labels: &["device", "op"],
        help: "Bytes of the I/Os of a volume that have ended.",
        samples: Samples::Counter(|snapshot, add| {
            for (volume, series) in volume_series(snapshot) {
                add(&[&volume.device.name, &series.op], series.bytes as f64, volume.since);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_volume_failed_ios_total",
        labels: &["device"],
        help: "I/Os of a volume that ended with an error, over all ops and statuses.",
        samples: Samples::Counter(|snapshot, add| {
            add_failures(snapshot.volumes(), add);
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_volume_io_errors_total",
        labels: &["device", "op", "status"],
        help: "I/Os of a volume that ended with an error, by the kernel's block status. A status appears with its first \
               error; biolat_volume_failed_ios_total is exposed from the start.",
        samples: Samples::Counter(|snapshot, add| {
            add_errors(volume_series(snapshot), add);
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_volume_lost_ios_total",
        labels: &["reason"],
        help: "I/Os of volumes that are in no histogram: an upper bound. evicted: too many were in flight at the same time. \
               recursion: the kernel skipped the program because it was already running on that CPU.",
        samples: Samples::Counter(|snapshot, add| {
            // Unlike the probe's counters, it begins with the process.
            let seconds = snapshot.process.map(|process| Duration::from_secs_f64(process.start_time_seconds));
            let start = seconds.map_or(snapshot.started, |seconds| UNIX_EPOCH + seconds);
            for (reason, count) in &snapshot.volume_losses {
                add(&[reason], *count as f64, start);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_online_cpus",
        labels: &[],
        help: "Number of online CPUs; absent if sysfs cannot be read.",
        samples: Samples::Gauge(|snapshot, add| {
            if let Some(cpus) = snapshot.online_cpus {
                add(&[], cpus as f64);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_latency_overflows_total",
        labels: &["device", "op", "phase"],
        help: "Latencies above 1024 seconds, the upper end of the histograms' range. Appears with the first one; \
               biolat_slow_ios_total, which includes them, is exposed from the start.",
        samples: Samples::Counter(|snapshot, add| {
            for (device, series) in series(snapshot) {
                for phase in Phase::ALL {
                    let count = series.histograms[phase as usize].overflow;
                    if count > 0 {
                        add(&[&device.device.name, &series.op, phase.name()], count as f64, device.since);
                    }
                }
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_device_info",
        labels: &[
            "device",
            "dev",
            "diskseq",
            "model",
            "serial",
            "wwid",
            "firmware",
            "transport",
            "scheduler",
            "rotational",
            "numa_node",
            "path_of",
            "kind",
            "label",
        ],
        help: "Attributes of a device; always 1. path_of: the multipath device that a hidden path belongs to. kind: drive \
               or, for a volume, lvm, crypt, md, zram, … label: the name of a volume in /dev/mapper, or its kernel name.",
        samples: Samples::Gauge(|snapshot, add| {
            let text = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
            for DeviceView { device, .. } in &snapshot.devices {
                let (kind, label) = device
                    .volume
                    .as_ref()
                    .map_or(("drive", ""), |volume| (volume.kind.as_str(), volume.label.as_str()));
                let node = device.numa_node.map(|node| node.to_string()).unwrap_or_default();
                let labels = [
                    device.name.as_str(),
                    &device.number,
                    &text(device.sequence),
                    &device.model,
                    &device.serial,
                    &device.wwid,
                    &device.firmware,
                    &device.transport,
                    &device.scheduler,
                    if device.rotational { "1" } else { "0" },
                    &node,
                    device.path_of.as_deref().unwrap_or_default(),
                    kind,
                    label,
                ];
                add(&labels, 1.0);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_device_holder_info",
        labels: &["device", "holder", "kind", "name", "depth"],
        help: "A holder of a device, at any depth: a volume, an array, an encrypted or multipath device, a mounted file \
               system; always 1. depth: 1 for a holder of the device itself or of its partitions. At most 128 per device.",
        samples: Samples::Gauge(|snapshot, add| {
            for DeviceView { device, .. } in &snapshot.devices {
                for holder in &*device.stack {
                    let depth = holder.depth.to_string();
                    add(&[&device.name, &holder.device, &holder.kind, &holder.name, &depth], 1.0);
                }
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_path_info",
        labels: &["device", "path_of", "transport", "address", "state"],
        help: "A device that is a path of an NVMe multipath or dm-multipath device; always 1. state: live if I/O can use \
               this path, otherwise the kernel's name for its state.",
        samples: Samples::Gauge(|snapshot, add| {
            for DeviceView { device, .. } in snapshot.drives() {
                if let Some(path) = &device.path {
                    add(&[&device.name, &path.of, &path.transport, &path.address, &path.state], 1.0);
                }
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_nvme_events_total",
        labels: &["device", "event"],
        help: "Events that the NVMe driver has counted since biolat first saw the device, on kernels that count them. An event \
               appears with the first one. failover: I/Os that left this path for another. requeue_without_path, \
               failure_without_path: I/Os of a multipath device that waited or failed because no path could take them. retry, \
               error: commands of the device. reset, reconnect: of its controller; reconnect counts attempts.",
        samples: Samples::Counter(|snapshot, add| {
            for DeviceView { device, nvme_events, since, .. } in &snapshot.devices {
                for (event, &count) in nvme_events.iter().filter(|&(_, &count)| count > 0) {
                    add(&[&device.name, event], count as f64, *since);
                }
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_device_phase_available",
        labels: &["device", "phase"],
        help: "0 if the kernel does not record the timestamps for this latency, otherwise absent. total needs queue/iostats; \
               queue and device also need writeback throttling, io.cost, or the BFQ or Kyber scheduler; \
               admission also needs a kernel before Linux 6.18 with CONFIG_BLK_CGROUP, or io.latency or io.cost on the device.",
        samples: Samples::Gauge(|snapshot, add| {
            for view in snapshot.drives() {
                for phase in Phase::ALL.into_iter().filter(|&phase| !view.phases[phase as usize]) {
                    add(&[&view.device.name, phase.name()], 0.0);
                }
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_unseen_completions_total",
        labels: &["device", "op"],
        help: "Completions that the probe missed, by op: the kernel's disk statistics account for them, but the kernel did \
               not run the probe. A lower bound, exact when the device is idle. Appears with the first one; \
               biolat_unseen_ios_total is exposed from the start.",
        samples: Samples::Counter(|snapshot, add| {
            for view in snapshot.drives() {
                for (group, &count) in view.unseen.iter().filter(|&(_, &count)| count > 0) {
                    add(&[&view.device.name, group.name()], count as f64, view.since);
                }
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_unseen_ios_total",
        labels: &["device"],
        help: "Completions that the probe missed, over all ops. Only for devices that are audited.",
        samples: Samples::Counter(|snapshot, add| {
            for view in snapshot.drives().filter(|view| !view.unseen.is_empty()) {
                let count: u64 = view.unseen.values().sum();
                add(&[&view.device.name], count as f64, view.since);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_lost_completions_total",
        labels: &["reason"],
        help: "Completions that are in no histogram, by reason.",
        samples: Samples::Counter(|snapshot, add| {
            for (reason, count) in &snapshot.lost {
                add(&[reason], *count as f64, snapshot.started);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_build_info",
        labels: &["version", "revision"],
        help: "Version and git revision of biolat; always 1.",
        samples: Samples::Gauge(|_, add| add(&[biolat_model::version::VERSION, version::REVISION], 1.0)),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_collect_duration_seconds",
        labels: &[],
        help: "Duration of a collection in seconds: reading disk statistics and counters, adding up, and the audit. Excludes \
               the wait for runs of the probe to end.",
        samples: Samples::Histogram(|snapshot, add| {
            add(&[], &snapshot.health.durations, snapshot.started, &[]);
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_collect_failures_total",
        labels: &[],
        help: "Collections that failed; the values of the last successful one are still exposed.",
        samples: Samples::Counter(|snapshot, add| {
            add(&[], snapshot.health.failures as f64, snapshot.started)
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_collect_overruns_total",
        labels: &[],
        help: "Collections that took longer than the interval, excluding the wait for runs of the probe to end.",
        samples: Samples::Counter(|snapshot, add| {
            add(&[], snapshot.health.overruns as f64, snapshot.started)
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_history_bytes",
        labels: &[],
        help: "Memory used by the history in bytes, for intervals and the names in them. --history-memory limits it.",
        samples: Samples::OfServer(|server| server.history_bytes.map(|bytes| bytes as f64)),
        exposed: Exposed::WithHistory,
    },
    Metric {
        name: "biolat_certificate_expiry_timestamp_seconds",
        labels: &[],
        help: "Expiry time of biolat's own TLS certificate, in seconds since the epoch.",
        samples: Samples::OfServer(|server| {
            Some(server.certificate_expires?.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
        }),
        exposed: Exposed::WithTls,
    },
    Metric {
        name: "biolat_probe_runs_total",
        labels: &[],
        help: "Runs of the probe, counted by the kernel with --probe-stats.",
        samples: Samples::Counter(|snapshot, add| {
            if let Some(runs) = snapshot.probe {
                add(&[], runs.count as f64, snapshot.started);
            }
        }),
        exposed: Exposed::WithProbeStats,
    },
    Metric {
        name: "biolat_probe_run_seconds_total",
        labels: &[],
        help: "Seconds spent in the probe, measured by the kernel with --probe-stats.",
        samples: Samples::Counter(|snapshot, add| {
            if let Some(runs) = snapshot.probe {
                add(&[], runs.time.as_secs_f64(), snapshot.started);
            }
        }),
        exposed: Exposed::WithProbeStats,
    },
    Metric {
        name: "biolat_collect_timestamp_seconds",
        labels: &[],
        help: "Time of the last successful collection, in seconds since the epoch.",
        samples: Samples::Gauge(|snapshot, add| {
            add(&[], snapshot.taken.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_series_slots",
        labels: &[],
        help: "Number of series (device and op) that the probe's maps have room for; grows with the number of series.",
        samples: Samples::Gauge(|snapshot, add| add(&[], snapshot.health.slots as f64)),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_workload_places_used",
        labels: &[],
        help: "Number of cgroups that the probe has a record of: existing ones, and removed ones that are still exposed.",
        samples: Samples::Gauge(|snapshot, add| {
            if let Some(room) = snapshot.health.workload_room {
                add(&[], room.used as f64);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_workload_places_free",
        labels: &[],
        help: "Number of further cgroups that the probe has room for; --workloads sets the total. A quarter is kept free if \
               dropping removed cgroups allows it.",
        samples: Samples::Gauge(|snapshot, add| {
            if let Some(room) = snapshot.health.workload_room {
                add(&[], room.places.saturating_sub(room.used) as f64);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_workload_no_room_ios_total",
        labels: &[],
        help: "Completed block requests counted as cgroup \"other\" because there was no room for their cgroup; raise \
               --workloads to make room.",
        samples: Samples::Counter(|snapshot, add| {
            if let Some(room) = snapshot.health.workload_room {
                add(&[], room.refused_ios as f64, snapshot.started);
            }
        }),
        exposed: Exposed::Always,
    },
    Metric {
        name: "biolat_map_bytes",
        labels: &[],
        help: "Kernel memory of all counters in bytes, on all CPUs. Attaching the understudy doubles the counters of series and workloads.",
        samples: Samples::Gauge(|snapshot, add| add(&[], snapshot.health.map_bytes as f64)),
        exposed: Exposed::Always,
    },
    // The standard process metrics of every exporter; names and help texts follow the convention.
    Metric {
        name: "process_cpu_seconds_total",
        labels: &[],
        help: "Total user and system CPU time spent in seconds.",
        samples: Samples::Counter(|snapshot, add| {
            if let Some(process) = snapshot.process {
                let start = Duration::try_from_secs_f64(process.start_time_seconds).unwrap_or_default();
                add(&[], process.cpu_seconds, UNIX_EPOCH + start);
            }
        }),
        exposed: Exposed::Always,
    },
    process_gauge!("process_resident_memory_bytes", "Resident memory size in bytes.", resident_bytes),
    process_gauge!("process_virtual_memory_bytes", "Virtual memory size in bytes.", virtual_bytes),
    process_gauge!("process_open_fds", "Number of open file descriptors.", open_fds),
    process_gauge!("process_max_fds", "Maximum number of open file descriptors.", max_fds),
    process_gauge!(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        start_time_seconds
    ),
];

fn latencies(snapshot: &Snapshot, phase: Phase, add: &mut AddHistogram<'_>) {
    for (device, series) in series(snapshot) {
        add(&[&device.device.name, &series.op], &series.histograms[phase as usize], device.since, &[]);
    }
}

/// Groups the recorded I/Os by device and op.
fn slow_ios(snapshot: &Snapshot) -> HashMap<[&str; 2], Vec<&SlowIo>> {
    let mut by_series: HashMap<_, Vec<_>> = HashMap::new();
    for io in &*snapshot.slow {
        by_series.entry([io.device.as_str(), &io.op]).or_default().push(io);
    }
    by_series
}

/// Iterates over workloads by device and op: label values (device, op, cgroup), start and usage.
fn workloads(snapshot: &Snapshot) -> impl Iterator<Item = ([&str; 3], SystemTime, &WorkloadUsage)> {
    snapshot.workloads.iter().flatten().flat_map(|workload| {
        let usage = workload.usage.iter();
        usage.map(|usage| ([usage.device.as_str(), &usage.op, &workload.cgroup], workload.since, usage))
    })
}

/// Whether a phase of a series is or was available.
fn has_phase(device: &DeviceView, series: &SeriesView, phase: Phase) -> bool {
    device.phases[phase as usize] || series.histograms[phase as usize].count() > 0
}

/// Adds the errors of each series by status.
fn add_errors<'a>(all: impl Iterator<Item = (&'a DeviceView, &'a SeriesView)>, add: &mut AddCounter<'_>) {
    for (device, series) in all {
        for (status, count) in &series.errors {
            add(&[&device.device.name, &series.op, status], *count as f64, device.since);
        }
    }
}

/// Adds the number of failed I/Os of each device.
fn add_failures<'a>(devices: impl Iterator<Item = &'a DeviceView>, add: &mut AddCounter<'_>) {
    for device in devices {
        let count: u64 = device.series.iter().flat_map(|series| series.errors.values()).sum();
        add(&[&device.device.name], count as f64, device.since);
    }
}

/// Iterates over all series of drives.
fn series(snapshot: &Snapshot) -> impl Iterator<Item = (&DeviceView, &SeriesView)> {
    of_devices(snapshot.drives())
}

/// Iterates over all series of volumes.
fn volume_series(snapshot: &Snapshot) -> impl Iterator<Item = (&DeviceView, &SeriesView)> {
    of_devices(snapshot.volumes())
}

fn of_devices<'a>(
    devices: impl Iterator<Item = &'a DeviceView>,
) -> impl Iterator<Item = (&'a DeviceView, &'a SeriesView)> {
    devices.flat_map(|device| device.series.iter().map(move |series| (device, series)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use biolat_testing::generated_docs;
    use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::MetricType;

    use super::{Exposed, METRICS, Metric, unit};

    fn kind(metric: &Metric) -> &'static str {
        match metric.samples.kind() {
            MetricType::Counter => "counter",
            MetricType::Histogram => "histogram",
            _ => "gauge",
        }
    }

    #[test]
    fn names_follow_the_conventions() {
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len(), "unique");
        for metric in METRICS {
            let Metric { name, help, .. } = metric;
            assert!(name.starts_with("biolat_") || name.starts_with("process_"), "{name}");
            assert_eq!(kind(metric) == "counter", name.ends_with("_total"), "{name}");
            assert!(
                help.ends_with('.') && !help.contains(['|', '\n']) && !help.contains("  "),
                "{name}: {help}"
            );
        }
    }

    #[test]
    fn unit_is_the_last_part_of_the_name() {
        assert_eq!(
            (unit("biolat_io_bytes"), unit("biolat_collect_timestamp_seconds")),
            (Some("bytes"), Some("seconds"))
        );
        assert_eq!((unit("biolat_series_slots"), unit("biolat_kilobytes")), (None, None));
    }

    #[test]
    fn metrics_are_documented() {
        let row = |metric: &Metric| {
            let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let only = match metric.exposed {
                Exposed::Always => "",
                Exposed::WithProbeStats => " Exposed only with `--probe-stats`.",
                Exposed::WithTls => " Exposed only with TLS.",
                Exposed::PerCpu => " Exposed only with `--per-cpu`.",
                Exposed::WithHistory => " Exposed unless `--history` is `off`.",
            };
            format!(
                "| `{}` | {} | {} | {}{only} |\n",
                metric.name,
                kind(metric),
                labels.join(", "),
                metric.help
            )
        };
        let rows: String = METRICS.iter().map(row).collect();
        let table = format!("| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}");
        generated_docs::check("docs/metrics.md", "metrics", &table);
    }
}
