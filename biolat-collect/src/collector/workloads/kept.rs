//! Keeps the workloads for the next daemon.

use std::time::Instant;

use biolat_common::series::Key;
use biolat_model::epoch::{nanoseconds, time};
use biolat_probe::SeenCgroup;

use super::{
    super::{
        state::record::{AliasRecord, AllWorkloadsRecord, EndedRecord, WorkloadRecord, field},
        workload_totals::WorkloadTotals,
    },
    Alias, Gone, Workload, WorkloadStore,
    stalls::Stalls,
};

impl WorkloadStore {
    /// Appends all workloads to the state.
    pub(in crate::collector) fn append_workloads(&mut self, state: &mut Vec<u8>) {
        for (&number, workload) in &mut self.workloads {
            let mut encoded = std::mem::take(&mut workload.encoded);
            encoded.append(field::WORKLOADS, || workload.to_record(number), state);
            workload.encoded = encoded;
        }
    }

    /// Returns the data that belongs to no single workload.
    pub(in crate::collector) fn to_record(&self) -> AllWorkloadsRecord {
        AllWorkloadsRecord {
            ended: self.ended.iter().map(|(key, &ios)| EndedRecord { key: key.bits(), ios }).collect(),
            root: self.root,
            taken: nanoseconds(self.taken),
            aliases: self.aliases.iter().map(|(&number, alias)| alias.to_record(number)).collect(),
            without_room: self.without_room,
        }
    }

    /// Restores the workloads; `None` if the records are invalid.
    pub(in crate::collector) fn from_records(
        record: &AllWorkloadsRecord,
        workloads: &[WorkloadRecord],
        now: Instant,
    ) -> Option<Self> {
        let AllWorkloadsRecord { ended, root, taken, aliases, without_room } = record;
        let (root, without_room) = (*root, *without_room);
        let mut store = Self { root, without_room, has_unnamed: true, ..Self::new(time(*taken)) };
        for record in workloads {
            store.workloads.insert(record.number, Workload::from_record(record, now)?);
        }
        for &AliasRecord { number, workload, css } in aliases {
            let path = store.workloads.get(&workload)?.path()?.to_owned();
            store
                .aliases
                .insert(number, Alias { workload, cgroup: SeenCgroup { css, path }, path_read: now });
        }
        for record in ended {
            store.ended.insert(Key::from_bits(record.key), record.ios);
        }
        Some(store)
    }
}

impl Alias {
    fn to_record(&self, number: u64) -> AliasRecord {
        AliasRecord { number, workload: self.workload, css: self.cgroup.css }
    }
}

impl Workload {
    pub(super) fn to_record(&self, number: u64) -> WorkloadRecord {
        let identity = &self.identity;
        WorkloadRecord {
            number,
            path: self.path().map(str::to_owned),
            css: self.cgroup.as_ref().map_or(0, |cgroup| cgroup.css),
            pod: identity.pod.clone(),
            namespace: identity.namespace.clone(),
            container: identity.container.clone(),
            since: nanoseconds(self.since),
            is_gone: self.gone.is_some(),
            usage: self.usage.iter().map(|(&key, totals)| totals.to_record(key)).collect(),
            stalls: self.stalls.map(Stalls::to_record),
        }
    }

    pub(super) fn from_record(record: &WorkloadRecord, now: Instant) -> Option<Self> {
        let cgroup = record.path.clone().map(|path| SeenCgroup { css: record.css, path });
        let mut workload = Self::new(record.number, cgroup, time(record.since), now);
        if !record.pod.is_empty() {
            workload.identity.pod.clone_from(&record.pod);
            workload.identity.namespace.clone_from(&record.namespace);
            workload.identity.container.clone_from(&record.container);
        }
        // Time and scrapes start from zero again.
        workload.gone = record.is_gone.then_some(Gone { since: now, scrapes: 0 });
        for usage in &record.usage {
            workload.usage.insert(Key::from_bits(usage.key), WorkloadTotals::from_record(usage)?);
        }
        workload.stalls = record.stalls.as_ref().map(Stalls::from_record);
        Some(workload)
    }
}
