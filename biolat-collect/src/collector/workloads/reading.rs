//! Reads the probe's workload tables into the store.

use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use biolat_model::cgroup::PodNames;
use biolat_probe::{Probe, SeenCgroup, WorkloadMaps};
use biolat_system::host::Host;

use super::{
    super::{reference::Reference, state::record::State, sysfs_thread::SysfsThread},
    Cgroups, WorkloadStore,
};
use crate::scrapes::Scrapes;

/// Time after which pod names are read again.
const POD_NAMES_INTERVAL: Duration = Duration::from_secs(30);

impl Cgroups for Probe {
    fn room(&self) -> usize {
        self.workloads.as_ref().map_or(0, WorkloadMaps::room)
    }

    fn cgroup(&self, workload: u64) -> Result<Option<SeenCgroup>> {
        self.workloads.as_ref().map_or(Ok(None), |maps| maps.cgroup(workload))
    }

    fn mark_stale(&mut self, workload: u64) -> Result<()> {
        self.workloads.as_mut().map_or(Ok(()), |maps| maps.mark_cgroup_stale(workload))
    }

    fn forget(&mut self, workload: u64) -> Result<()> {
        self.workloads.as_mut().map_or(Ok(()), |maps| maps.forget_cgroup(workload))
    }

    fn exists(&self, workload: u64, cgroup: &SeenCgroup) -> Result<bool> {
        self.cgroup_exists(workload, cgroup)
    }
}

/// The workloads, and everything that is needed to read the probe's tables.
pub(in crate::collector) struct Workloads {
    pub(in crate::collector) store: WorkloadStore,
    /// I/O that the series do not include yet.
    pub(in crate::collector) reference: Reference,
    /// Counter that the server increments.
    pub(in crate::collector) scrapes: Scrapes,
    /// Time when pod names were last read.
    pod_names_read: Option<Instant>,
}

impl Workloads {
    pub(in crate::collector) fn new(started: SystemTime, probe: &Probe) -> Self {
        let (store, scrapes) = (WorkloadStore::new(started), Scrapes::default());
        Self { store, reference: Reference::of(probe), scrapes, pod_names_read: None }
    }

    /// Continues from the state; `None` if it is invalid.
    pub(in crate::collector) fn continue_from(&mut self, state: &State) -> Option<()> {
        self.store = WorkloadStore::from_records(&state.all_workloads, &state.workloads, Instant::now())?;
        self.reference.continue_from(&state.pending)
    }

    /// Switches the tables. The old one can be taken once no run of the probe still uses it. The table before it must have been
    /// taken already, and the kept state must say so.
    pub(in crate::collector) fn switch(&self, probe: &mut Probe) -> Result<()> {
        probe.workloads.as_mut().map_or(Ok(()), WorkloadMaps::begin_epoch)
    }

    /// Reads the I/O of the workloads before the switch.
    pub(in crate::collector) fn read(
        &mut self,
        probe: &mut Probe,
        sysfs: &mut SysfsThread,
        host: &Host,
    ) -> Result<()> {
        self.take(probe)?;
        if probe.workloads.is_some() {
            self.store.read_stalls(&host.cgroups());
            self.read_pod_names(sysfs, host);
        }
        Ok(())
    }

    /// Adds the counts of the last epoch, if they have not been taken yet.
    pub(in crate::collector) fn take(&mut self, probe: &mut Probe) -> Result<()> {
        let Some(maps) = &mut probe.workloads else { return Ok(()) };
        let counts = maps.take()?;
        self.reference.add(&counts);
        self.store.add(&counts, Instant::now(), self.scrapes.count(), probe);
        Ok(())
    }

    /// Reads pod names on a pod's first I/O and at intervals, because the kubelet may create a pod's links later.
    fn read_pod_names(&mut self, sysfs: &mut SysfsThread, host: &Host) {
        let is_due = self.pod_names_read.is_none_or(|read| read.elapsed() >= POD_NAMES_INTERVAL);
        if !self.store.has_unnamed && !is_due {
            return;
        }
        self.pod_names_read = Some(Instant::now());
        let directory = host.container_logs.clone();
        // Without the directory, this is not a Kubernetes node.
        if let Some(Ok(names)) = sysfs.read(move || PodNames::read(&directory)) {
            self.store.add_pod_names(&names);
        }
        self.store.has_unnamed = false;
    }
}
