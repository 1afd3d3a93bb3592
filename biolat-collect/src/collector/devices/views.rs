//! Builds the snapshot's view of each device.

use biolat_common::series::Key;
use biolat_model::snapshot::{DeviceView, Inflight, SeriesView, SizesView};
use biolat_probe::{Probe, abilities::Ability};
use biolat_system::cpus::CpuNodes;

use super::{
    super::{series_store::SeriesStore, totals::Totals, workloads::WorkloadStore},
    Devices, KnownDevice,
};

impl Devices {
    /// Returns the shown devices, ordered by name.
    pub(in crate::collector) fn views(
        &self,
        store: &SeriesStore,
        workloads: &WorkloadStore,
        probe: &Probe,
        cpu_nodes: &CpuNodes,
        inflight: impl Fn(u64) -> Inflight,
    ) -> Vec<DeviceView> {
        let view = |(id, known): (u64, &KnownDevice)| {
            let series = series_views(id, store, workloads, probe);
            known.view(series, inflight(id), probe, cpu_nodes)
        };
        let mut views: Vec<_> = self.shown().map(view).collect();
        views.sort_by(|a, b| a.device.name.cmp(&b.device.name));
        views
    }
}

impl KnownDevice {
    fn view(
        &self,
        series: Vec<SeriesView>,
        inflight: Inflight,
        probe: &Probe,
        cpu_nodes: &CpuNodes,
    ) -> DeviceView {
        let has_total = self.device.iostats;
        let has_split = has_total && self.has_dispatch_times;
        let phases = [has_total && self.has_submission_times, has_split, has_split, has_total];
        DeviceView {
            lacks: DeviceView::lacks(&self.device, phases),
            device: self.device.clone(),
            since: self.since,
            phases,
            series,
            unseen: self
                .audit
                .iter()
                .flat_map(|audit| audit.missed(probe.kernel.has(Ability::FlushStatistics)))
                .collect(),
            inflight,
            tag_waits: probe.counts_tag_waits().then(|| self.tag_waits.view()),
            spread: self.spread.view(self.device.numa_node, cpu_nodes),
            nvme_events: self.nvme_events.view(),
        }
    }
}

/// Returns the series of a device. Missing read and write series are shown as zeros, so `increase()` counts their first I/Os.
fn series_views(id: u64, store: &SeriesStore, workloads: &WorkloadStore, probe: &Probe) -> Vec<SeriesView> {
    let (kernel, has_sizes) = (&probe.kernel, probe.options.sizes);
    let view = |(key, totals): (Key, &Totals)| SeriesView {
        ended_workload_ios: workloads.ended(key),
        ..totals.view(kernel.op_name(key.op()), kernel.statuses_since_6_10, has_sizes)
    };
    let mut series: Vec<SeriesView> = store.of_device(id).map(view).collect();
    for op in ["write", "read"] {
        if !series.iter().any(|view| view.op == op) {
            let sizes = has_sizes.then(SizesView::default);
            series.insert(0, SeriesView { op: op.to_owned(), sizes, ..SeriesView::default() });
        }
    }
    series
}
