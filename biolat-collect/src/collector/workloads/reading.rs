//! Reads the probe's tables of workloads into the store.

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

/// After this, the names of pods are read again.
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

/// The workloads as the probe's tables are read.
pub(in crate::collector) struct Workloads {
    pub(in crate::collector) store: WorkloadStore,
    /// What the series do not have yet.
    pub(in crate::collector) reference: Reference,
    /// Counted by the server.
    pub(in crate::collector) scrapes: Scrapes,
    /// When the names of pods were read.
    pod_names_read: Option<Instant>,
}

impl Workloads {
    pub(in crate::collector) fn new(started: SystemTime, probe: &Probe) -> Self {
        let (store, scrapes) = (WorkloadStore::new(started), Scrapes::default());
        Self { store, reference: Reference::of(probe), scrapes, pod_names_read: None }
    }

    /// `None` if the state is not one of workloads.
    pub(in crate::collector) fn continue_from(&mut self, state: &State) -> Option<()> {
        self.store = WorkloadStore::from_records(&state.all_workloads, &state.workloads, Instant::now())?;
        self.reference.continue_from(&state.pending)
    }

    /// Switches the tables: what the workloads have done until now can be taken once no run of the probe uses the one that was left.
    /// What was left before must have been taken, and the next daemon has to know that.
    pub(in crate::collector) fn switch(&self, probe: &mut Probe) -> Result<()> {
        probe.workloads.as_mut().map_or(Ok(()), WorkloadMaps::begin_epoch)
    }

    /// Reads what the workloads have done until the switch.
    pub(in crate::collector) fn read(
        &mut self,
        probe: &mut Probe,
        sysfs: &mut SysfsThread,
        host: &Host,
    ) -> Result<()> {
        self.take(probe)?;
        if probe.workloads.is_some() {
            self.read_pod_names(sysfs, host);
        }
        Ok(())
    }

    /// Adds what was counted in the last epoch, if it has not been taken yet.
    pub(in crate::collector) fn take(&mut self, probe: &mut Probe) -> Result<()> {
        let Some(maps) = &mut probe.workloads else { return Ok(()) };
        let counts = maps.take()?;
        self.reference.add(&counts);
        self.store.add(&counts, Instant::now(), self.scrapes.count(), probe);
        Ok(())
    }

    /// Reads the names of pods for the first I/O of one, and now and then, as the kubelet may make its links later.
    fn read_pod_names(&mut self, sysfs: &mut SysfsThread, host: &Host) {
        let is_due = self.pod_names_read.is_none_or(|read| read.elapsed() >= POD_NAMES_INTERVAL);
        if !self.store.has_unnamed && !is_due {
            return;
        }
        self.pod_names_read = Some(Instant::now());
        let directory = host.container_logs.clone();
        // Without the directory, this is no node of Kubernetes.
        if let Some(Ok(names)) = sysfs.read(move || PodNames::read(&directory)) {
            self.store.name_pods(&names);
        }
        self.store.has_unnamed = false;
    }
}
