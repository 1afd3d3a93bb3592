//! A synthetic history.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_history::{HistoryLimits, SharedHistory};
use biolat_model::{
    cgroup::Identity,
    size_histogram::SizeHistogram,
    snapshot::{SizesView, WorkloadUsage, WorkloadView},
};

use super::snapshots::snapshot;

/// Returns a history of `collections` collections, 5 s apart and ending now. Each has one more read than the previous one.
pub(crate) fn filled(devices: usize, collections: u64) -> (SharedHistory, SystemTime) {
    let history = SharedHistory::new(
        HistoryLimits { age: Duration::from_secs(93_600), bytes: 64 << 20 },
        Duration::ZERO,
    );
    let now =
        UNIX_EPOCH + Duration::from_secs(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs());
    let began = now - Duration::from_secs(5 * collections);
    let mut snapshot = snapshot(devices);
    snapshot.started = began;
    for view in &mut snapshot.devices {
        view.since = began;
        view.series.iter_mut().for_each(|series| {
            (series.bytes, series.histograms) = Default::default();
        });
    }
    for number in 1..=collections {
        snapshot.taken = began + Duration::from_secs(5 * number);
        let cgroup = "/system.slice/a.service";
        let mut workload = WorkloadView::new(cgroup, &Identity::of_path(cgroup), began);
        for (device, series) in snapshot.devices.iter_mut().flat_map(|view| {
            let device = &view.device.name;
            view.series.iter_mut().map(move |series| (device, series))
        }) {
            series.bytes += 4096 * number;
            series.sizes = Some(SizesView {
                requests: SizeHistogram {
                    buckets: vec![(12, 160 * number * (number + 1) / 2)],
                    ..SizeHistogram::default()
                },
                bands: Vec::new(),
            });
            workload.usage.push(WorkloadUsage {
                device: device.clone(),
                op: series.op.clone(),
                bytes: series.bytes,
                ..WorkloadUsage::default()
            });
            for histogram in &mut series.histograms {
                histogram.buckets = (-100..60).map(|index| (index, number * (number + 1) / 2)).collect();
                histogram.sum_ns += u128::from(number) * 1000;
            }
        }
        snapshot.workloads = Some(vec![workload]);
        history.record(&Arc::new(snapshot.clone()), Duration::from_secs(1000 + 5 * number));
    }
    (history, now)
}
