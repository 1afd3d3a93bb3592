//! Conversion of a collector's snapshot.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_common::series::Phase;

use super::{
    ApiBand, ApiDevice, ApiProbe, ApiSizes, ApiSnapshot, ApiWorkload, ApiWorkloadUsage, Daemon, Op, VERSION,
};
use crate::{
    band_histogram::BandHistogram,
    cgroup::Identity,
    snapshot::{self, DeviceView, SeriesView, SizesView, WorkloadUsage, WorkloadView},
    version,
};

impl ApiSnapshot {
    /// The model of a snapshot, of a host of this name and a daemon that makes one each interval.
    #[must_use]
    pub fn of(snapshot: &snapshot::Snapshot, host: &str, interval: Duration) -> Self {
        let health = &snapshot.health;
        let process = snapshot.process.unwrap_or_default();
        Self {
            version: VERSION,
            biolat: version::VERSION.to_owned(),
            host: host.to_owned(),
            taken: seconds(snapshot.taken),
            started: seconds(snapshot.started),
            interval: interval.as_secs_f64(),
            devices: snapshot.devices.iter().map(ApiDevice::of).collect(),
            workloads: snapshot
                .workloads
                .as_ref()
                .map(|workloads| workloads.iter().map(ApiWorkload::of).collect()),
            lost: named(&snapshot.lost),
            slow_dropped: snapshot.slow.dropped,
            daemon: Daemon {
                collections: health.durations.count(),
                collection_seconds: health.durations.sum_seconds(),
                failures: health.failures,
                overruns: health.overruns,
                slots: health.slots,
                map_bytes: health.map_bytes,
                cpu_seconds: process.cpu_seconds,
                resident_bytes: process.resident_bytes,
                probe: snapshot
                    .probe
                    .map(|probe| ApiProbe { runs: probe.count, seconds: probe.time.as_secs_f64() }),
            },
        }
    }
}

impl ApiDevice {
    pub(super) fn of(view: &DeviceView) -> Self {
        let device = &view.device;
        let phases = Phase::ALL.into_iter().filter(|&phase| view.phases[phase as usize]);
        let unseen: Vec<_> = view.unseen.iter().map(|(group, count)| (group.name(), *count)).collect();
        Self {
            name: device.name.clone(),
            model: device.model.clone(),
            serial: device.serial.clone(),
            firmware: device.firmware.clone(),
            transport: device.transport.clone(),
            scheduler: device.scheduler.clone(),
            rotational: device.rotational,
            holders: device.holders.clone(),
            path: device.path.clone(),
            since: seconds(view.since),
            phases: phases.map(|phase| phase.name().to_owned()).collect(),
            lacks: view.hint().unwrap_or_default(),
            ops: view.series.iter().map(Op::of).collect(),
            unseen: named(&unseen),
            inflight: Some(view.inflight),
            completions: view.spread.completions.clone(),
        }
    }
}

impl Op {
    fn of(series: &SeriesView) -> Self {
        let [admission, queue, device, total] =
            Phase::ALL.map(|phase| series.histograms[phase as usize].clone());
        Self {
            op: series.op.clone(),
            bytes: series.bytes,
            errors: named(&series.errors),
            requeues: series.requeues,
            admission,
            queue,
            device,
            total,
            sizes: series.sizes.as_ref().map(ApiSizes::of),
        }
    }
}

impl ApiWorkload {
    pub(super) fn of(view: &WorkloadView) -> Self {
        let WorkloadView { cgroup, identity, since, is_gone, usage } = view;
        let Identity { kind, unit, namespace, pod, container, pod_uid, container_id, .. } = identity.clone();
        Self {
            cgroup: cgroup.clone(),
            name: identity.short_name(cgroup),
            kind: kind.name().to_owned(),
            unit,
            namespace,
            pod,
            container,
            pod_uid,
            container_id,
            gone: *is_gone,
            since: seconds(*since),
            usage: usage.iter().map(ApiWorkloadUsage::of).collect(),
        }
    }
}

impl ApiWorkloadUsage {
    fn of(usage: &WorkloadUsage) -> Self {
        let (queue_seconds, device_seconds) = (usage.queue_seconds(), usage.device_seconds());
        let WorkloadUsage { device, op, bytes, errors, queue_ns: _, device_ns: _, latency } = usage.clone();
        Self { device, op, bytes, errors, queue_seconds, device_seconds, total: latency }
    }
}

impl ApiSizes {
    fn of(sizes: &SizesView) -> Self {
        let SizesView { requests, bands } = sizes.clone();
        let band = |(size, device): (&str, BandHistogram)| ApiBand { size: size.to_owned(), device };
        Self { requests, bands: bands.into_iter().map(band).collect() }
    }
}

pub(super) fn named<T: Into<String> + Copy>(counts: &[(T, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|&(name, count)| (name.into(), count)).collect()
}

/// Rounded to microseconds: every parser reads a decimal of so few digits back to the same number.
pub fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as f64 / 1e6
}
