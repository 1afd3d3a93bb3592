//! Snapshots of other hosts: impossible figures are rejected, and text is made harmless.

use std::{collections::BTreeMap, mem, ops::RangeInclusive};

use anyhow::{Context as _, Result, bail};
use biolat_common::bucket::{BUCKETS, FIRST_NATIVE_INDEX};

use crate::{
    api::{ApiDevice, ApiPath, ApiSizes, ApiSnapshot, ApiWorkload, ApiWorkloadUsage},
    histogram::Histogram,
    sanitize,
    size_histogram::SizeHistogram,
};

/// Intervals between collections that a daemon may have, in seconds: its own limits, and some more.
pub(super) const INTERVALS: RangeInclusive<f64> = 0.01..=3600.0;

/// No I/O is older than a century, in seconds.
const LONGEST_AGE: f64 = 100.0 * 365.25 * 86400.0;

/// No I/Os together took more seconds: as many as a century has, with a million at a time.
const MOST_SECONDS: f64 = LONGEST_AGE * 1e6;

const TOO_MANY: &str = "the sum of its counts exceeds 64 bits";

/// More than any version has.
const MOST_BANDS: usize = 64;

/// More CPUs than any kernel can have.
const TOO_MANY_CPUS: usize = 1 << 16;

/// A snapshot of another host with harmless text, or why it cannot be a biolat's.
pub(super) fn sanitized(mut snapshot: ApiSnapshot) -> Result<ApiSnapshot> {
    if !INTERVALS.contains(&snapshot.interval) {
        bail!("malformed answer: it collects every {} s", snapshot.interval);
    }
    // No later sum can overflow, as these totals do not.
    totals(&snapshot.devices, snapshot.workloads.as_deref(), &snapshot.lost)?;
    for device in &snapshot.devices {
        for op in &device.ops {
            let bands = op.sizes.iter().flat_map(|sizes| &sizes.bands);
            if bands.clone().count() > MOST_BANDS {
                bail!("malformed answer: an op with more than {MOST_BANDS} bands of sizes");
            }
            let bands = bands.map(|band| band.device.at_most_schema_1());
            let histograms = [&op.admission, &op.queue, &op.device, &op.total].into_iter().chain(bands);
            histograms.into_iter().try_for_each(has_known_buckets)?;
        }
        if let Some(inflight) = &device.inflight
            && !(0.0..=LONGEST_AGE).contains(&inflight.oldest_seconds)
        {
            bail!("malformed answer: an I/O is {} s old", inflight.oldest_seconds);
        }
        if device.completions.len() >= TOO_MANY_CPUS {
            bail!("malformed answer: a host with {} CPUs", device.completions.len());
        }
    }
    for usage in snapshot.workloads.iter().flatten().flat_map(|workload| &workload.usage) {
        has_known_buckets(usage.total.at_most_schema_1())?;
        for seconds in [usage.queue_seconds, usage.device_seconds] {
            if !(0.0..=MOST_SECONDS).contains(&seconds) {
                bail!("malformed answer: a workload took {seconds:e} s");
            }
        }
    }
    clean_text(&mut snapshot);
    Ok(snapshot)
}

/// The sum of all bytes and that of all counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::report) struct Totals {
    bytes: u64,
    counts: u64,
}

impl Totals {
    /// With others, or an error if a sum exceeds 64 bits.
    pub(in crate::report) fn and(mut self, other: Self) -> Result<Self> {
        self.bytes(other.bytes)?;
        self.count(other.counts)?;
        Ok(self)
    }

    fn bytes(&mut self, bytes: u64) -> Result<()> {
        self.bytes = self.bytes.checked_add(bytes).context(TOO_MANY)?;
        Ok(())
    }

    fn count(&mut self, count: u64) -> Result<()> {
        self.counts = self.counts.checked_add(count).context(TOO_MANY)?;
        Ok(())
    }

    fn histogram(&mut self, histogram: &Histogram) -> Result<()> {
        let Histogram { zero, buckets, overflow, sum_ns: _ } = histogram;
        let buckets = buckets.iter().map(|(_, count)| count);
        buckets.chain([zero, overflow]).try_for_each(|&count| self.count(count))
    }
}

/// Of these devices and workloads, and of what was lost.
pub(in crate::report) fn totals(
    devices: &[ApiDevice],
    workloads: Option<&[ApiWorkload]>,
    lost: &BTreeMap<String, u64>,
) -> Result<Totals> {
    let mut totals = Totals::default();
    for device in devices {
        for op in &device.ops {
            totals.bytes(op.bytes)?;
            let bands = op.sizes.iter().flat_map(|sizes| &sizes.bands);
            let bands = bands.map(|band| band.device.at_most_schema_1());
            for histogram in [&op.admission, &op.queue, &op.device, &op.total].into_iter().chain(bands) {
                totals.histogram(histogram)?;
            }
            totals.count(op.requeues)?;
            if let Some(ApiSizes { requests: SizeHistogram { zero, buckets, overflow }, .. }) = &op.sizes {
                let buckets = buckets.iter().map(|(_, count)| count);
                buckets.chain([zero, overflow]).try_for_each(|&count| totals.count(count))?;
            }
            op.errors.values().try_for_each(|&count| totals.count(count))?;
        }
        if let Some(inflight) = &device.inflight {
            totals.count(inflight.read)?;
            totals.count(inflight.write)?;
        }
        let counts = device.completions.iter().chain(device.unseen.values());
        counts.into_iter().try_for_each(|&count| totals.count(count))?;
    }
    for usage in workloads.into_iter().flatten().flat_map(|workload| &workload.usage) {
        totals.bytes(usage.bytes)?;
        totals.count(usage.errors)?;
        totals.histogram(usage.total.at_most_schema_1())?;
    }
    lost.values().try_for_each(|&count| totals.count(count))?;
    Ok(totals)
}

/// Makes the text of a snapshot harmless: names of devices, and what drives and hosts say of themselves.
pub(super) fn clean_text(snapshot: &mut ApiSnapshot) {
    let ApiSnapshot { biolat, host, devices, workloads, lost, .. } = snapshot;
    clean(biolat);
    clean(host);
    clean_keys(lost);
    workloads.iter_mut().flatten().for_each(clean_workload);
    for device in devices {
        let ApiDevice { name, model, serial, firmware, transport, scheduler, lacks, .. } = device;
        [name, model, serial, firmware, transport, scheduler, lacks].into_iter().for_each(clean);
        device.holders.iter_mut().for_each(clean);
        if let Some(ApiPath { of, transport, address, state }) = &mut device.path {
            [of, transport, address, state].into_iter().for_each(clean);
        }
        clean_keys(&mut device.unseen);
        for op in &mut device.ops {
            clean(&mut op.op);
            op.sizes.iter_mut().flat_map(|sizes| &mut sizes.bands).for_each(|band| clean(&mut band.size));
            clean_keys(&mut op.errors);
        }
    }
}

fn clean_workload(workload: &mut ApiWorkload) {
    let ApiWorkload {
        cgroup,
        name,
        kind,
        unit,
        namespace,
        pod,
        container,
        pod_uid,
        container_id,
        gone: _,
        since: _,
        usage,
    } = workload;
    [cgroup, name, kind, unit, namespace, pod, container, pod_uid, container_id].into_iter().for_each(clean);
    for ApiWorkloadUsage { device, op, .. } in usage {
        clean(device);
        clean(op);
    }
}

fn has_known_buckets(histogram: &Histogram) -> Result<()> {
    let known = FIRST_NATIVE_INDEX..FIRST_NATIVE_INDEX + BUCKETS as i32;
    match histogram.buckets.iter().find(|(index, _)| !known.contains(index)) {
        Some((index, _)) => bail!("malformed answer: there is no bucket {index}"),
        None => Ok(()),
    }
}

pub(super) fn clean(value: &mut String) {
    if value.contains(sanitize::is_replaced) {
        *value = sanitize::text(value);
    }
}

fn clean_keys(counts: &mut BTreeMap<String, u64>) {
    if counts.keys().any(|name| name.contains(sanitize::is_replaced)) {
        *counts = mem::take(counts).into_iter().map(|(name, count)| (sanitize::text(&name), count)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::sanitized;
    use crate::{
        api::{ApiInflight, ApiPath, ApiSnapshot},
        report::samples,
    };

    fn received(buckets: &[(i32, u64)], bytes: u64) -> ApiSnapshot {
        let histogram = samples::histogram(0, buckets, 0, 1.0);
        let op = samples::op("read", bytes, histogram.clone(), histogram.clone(), histogram);
        samples::snapshot(1.0, vec![samples::device("sda", 9.0, vec![op.clone(), op])])
    }

    #[test]
    fn impossible_figures_are_rejected() {
        assert!(sanitized(received(&[(-159, 5), (80, 5)], 1 << 50)).is_ok());
        for index in [i32::MIN, -160, 81, i32::MAX] {
            let error = sanitized(received(&[(index, 1)], 0)).unwrap_err().to_string();
            assert!(error.contains(&format!("no bucket {index}")), "{error}");
        }
        assert!(sanitized(received(&[(0, u64::MAX / 2)], 0)).is_err());
        assert!(sanitized(received(&[], u64::MAX)).is_err());
        for (read, oldest_seconds) in [(u64::MAX, 0.0), (1, -1.0), (1, 1e300), (1, f64::NAN)] {
            let mut snapshot = received(&[(0, 1)], 1);
            snapshot.devices[0].inflight = Some(ApiInflight { read, write: 1, oldest_seconds, exact: true });
            assert!(sanitized(snapshot).is_err(), "{read} {oldest_seconds}");
        }
        let mut snapshot = received(&[(0, 1)], 1);
        snapshot.devices[0].completions = vec![1; 1 << 16];
        assert!(sanitized(snapshot).unwrap_err().to_string().contains("a host with 65536 CPUs"));
    }

    #[test]
    fn text_does_not_steer_a_terminal() {
        let mut evil_snapshot = received(&[(0, 1)], 1);
        let evil = "a\u{1b}[2J\r\u{9b}b";
        let device = &mut evil_snapshot.devices[0];
        (device.name, device.model, device.lacks) = (evil.into(), evil.into(), evil.into());
        device.ops[0].op = evil.into();
        device.ops[0].errors.insert(evil.into(), 1);
        device.unseen.insert(evil.into(), 1);
        let [of, transport, address, state] = [evil; 4].map(str::to_owned);
        device.path = Some(ApiPath { of, transport, address, state });
        evil_snapshot.lost.insert(evil.into(), 1);
        (evil_snapshot.host, evil_snapshot.biolat) = (evil.into(), evil.into());
        let shown = format!("{:?}", sanitized(evil_snapshot).unwrap());
        assert!(
            !shown.contains(r"\u{1b}") && !shown.contains(r"\u{9b}") && !shown.contains(r"\r"),
            "{shown}"
        );
        assert_eq!(shown.matches("[2J").count(), 13, "{shown}");
    }
}
