//! Snapshots of the collector's state.

use std::time::{Duration, SystemTime};

use biolat_model::snapshot::{DeviceView, Health, ProbeRuns, SeriesView, SizesView, Snapshot, WorkloadView};
use biolat_probe::{ProgramCounts, WorkloadMaps};
use biolat_system::process;

use super::{Collector, KnownDevice, Losses, audit::Audit};
use crate::cpus::online_cpus;

impl Collector {
    pub(super) fn snapshot(&self, lost: Losses, program: ProgramCounts) -> Snapshot {
        let runs = ProbeRuns { count: program.runs, time: Duration::from_nanos(program.run_time_ns) };
        let mut devices: Vec<_> = self
            .devices
            .iter()
            .filter(|(_, known)| known.shown)
            .map(|(&id, known)| self.device_view(id, known))
            .collect();
        devices.sort_by(|a, b| a.device.name.cmp(&b.device.name));
        Snapshot {
            taken: SystemTime::now(),
            started: self.started,
            devices,
            host: self.host.name(),
            interval: self.interval,
            workloads: self.probe.workloads.as_ref().map(|_| self.workload_views()),
            lost: lost.by_reason,
            slow: self.slow.ios(),
            slow_dropped: self.slow.dropped(),
            health: self.health(),
            probe: self.probe.has_statistics().then_some(runs),
            process: process::read(&self.host.procfs),
            online_cpus: online_cpus(&self.host.sysfs),
            ..Snapshot::default()
        }
    }

    fn workload_views(&self) -> Vec<WorkloadView> {
        let shown = |id| self.devices.get(&id).filter(|known| known.shown);
        let slots = self.probe.workloads.as_ref().map_or(0, WorkloadMaps::slots);
        let beyond = self.store.in_slots_from(slots).map(|(key, totals)| (key, totals.of_all_workloads()));
        self.workloads.views(
            &beyond.collect::<Vec<_>>(),
            self.started,
            |id| shown(id).map(|known| known.device.name.as_str()),
            |op| self.probe.kernel.op_name(op),
        )
    }

    /// A device without reads or writes shows them with zeros, so that `increase()` sees their first ones.
    fn device_view(&self, id: u64, known: &KnownDevice) -> DeviceView {
        let (kernel, sizes) = (&self.probe.kernel, self.probe.options.sizes);
        let mut series: Vec<SeriesView> = self
            .store
            .of_device(id)
            .map(|(key, totals)| SeriesView {
                ended_workload_ios: self.workloads.ended(key),
                ..totals.view(kernel.op_name(key.op()), kernel.statuses_since_6_10, sizes)
            })
            .collect();
        for op in ["write", "read"] {
            if !series.iter().any(|view| view.op == op) {
                series.insert(
                    0,
                    SeriesView {
                        op: op.to_owned(),
                        sizes: sizes.then(SizesView::default),
                        ..SeriesView::default()
                    },
                );
            }
        }
        let has_total = known.device.iostats;
        let has_split = has_total && known.has_dispatch_times;
        let phases = [has_total && known.has_submission_times, has_split, has_split, has_total];
        DeviceView {
            lacks: DeviceView::lacks(&known.device, phases),
            device: known.device.clone(),
            since: known.since,
            phases,
            series,
            unseen: known.audit.iter().flat_map(Audit::missed).collect(),
            inflight: known.inflight.latest,
            spread: known.spread.view(known.device.numa_node, &self.cpu_nodes),
        }
    }

    /// Statistics of the collector.
    #[must_use]
    pub fn health(&self) -> Health {
        let slots = self.probe.maps.slots();
        Health {
            durations: self.stats.histogram(),
            last_success: self.stats.last_success,
            wait: self.stats.wait,
            failures: self.stats.failures,
            overruns: self.stats.overruns,
            lost_requeues: self.requeue_misses,
            slots: u64::from(slots),
            map_bytes: self.probe.maps.bytes() + self.probe.workloads.as_ref().map_or(0, WorkloadMaps::bytes),
            workload_room: self.probe.workloads.as_ref().map(|maps| self.workloads.room(maps.room())),
        }
    }
}
