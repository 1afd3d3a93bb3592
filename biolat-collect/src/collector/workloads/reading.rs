//! Reads the probe's tables of workloads into the store.

use std::time::{Duration, Instant};

use anyhow::Result;
use biolat_model::cgroup::PodNames;
use biolat_probe::{Probe, SeenCgroup, WorkloadMaps};

use super::{super::Collector, Cgroups};

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

impl Collector {
    /// Switches the tables: what the workloads have done until now can be taken once no run of the probe uses the one that was left.
    pub(in crate::collector) fn switch_workloads(&mut self) -> Result<()> {
        let Some(maps) = &self.probe.workloads else { return Ok(()) };
        if !maps.is_taken() {
            // What a collection that failed, or the last daemon, has left. The next daemon has to know that it was taken before its
            // table is used again.
            self.take_workloads()?;
            self.commit();
        }
        if let Some(maps) = &mut self.probe.workloads {
            maps.begin_epoch()?;
        }
        Ok(())
    }

    /// Whether what was counted until the switch can be taken. Waits for that, if it does not take longer than the timeout.
    pub(in crate::collector) fn workloads_are_at_rest(&self, timeout: Duration) -> bool {
        self.probe.workloads.as_ref().is_none_or(|maps| maps.wait_for_rest(timeout))
    }

    /// Reads what the workloads have done until the switch.
    pub(in crate::collector) fn read_workloads(&mut self) -> Result<()> {
        if self.probe.workloads.is_some() {
            self.take_workloads()?;
            self.read_pod_names();
        }
        Ok(())
    }

    /// Adds what was counted in the last epoch, if it has not been taken yet.
    pub(in crate::collector) fn take_workloads(&mut self) -> Result<()> {
        let Some(maps) = &mut self.probe.workloads else { return Ok(()) };
        let counts = maps.take()?;
        self.reference.add(&counts);
        self.workloads.add(&counts, Instant::now(), self.scrapes.count(), &mut self.probe);
        Ok(())
    }

    /// Reads the names of pods for the first I/O of one, and now and then, as the kubelet may make its links later.
    fn read_pod_names(&mut self) {
        let is_due = self.pod_names_read.is_none_or(|read| read.elapsed() >= POD_NAMES_INTERVAL);
        if !self.workloads.has_unnamed && !is_due {
            return;
        }
        self.pod_names_read = Some(Instant::now());
        let directory = self.host.container_logs.clone();
        // Without the directory, this is no node of Kubernetes.
        if let Some(Ok(names)) = self.sysfs.read(move || PodNames::read(&directory)) {
            self.workloads.name_pods(&names);
        }
        self.workloads.has_unnamed = false;
    }
}
