//! The workloads as they are kept for the next daemon.

use std::time::{Duration, Instant};

use biolat_common::series::Key;

use super::{
    super::{
        state::{
            numbers::{nanoseconds, time},
            record::{EndedRecord, WorkloadRecord, WorkloadsRecord},
        },
        workload_totals::WorkloadTotals,
    },
    Gone, Workload, WorkloadStore,
};
use crate::probe::SeenCgroup;

impl WorkloadStore {
    pub(in crate::collect) fn to_record(&self, now: Instant) -> WorkloadsRecord {
        WorkloadsRecord {
            workloads: self
                .workloads
                .iter()
                .map(|(&number, workload)| workload.to_record(number, now))
                .collect(),
            ended: self.ended.iter().map(|(key, &ios)| EndedRecord { key: key.bits(), ios }).collect(),
            root: self.root,
            taken: nanoseconds(self.taken),
        }
    }

    /// `None` if the record is not one of workloads.
    pub(in crate::collect) fn from_record(record: &WorkloadsRecord, now: Instant) -> Option<Self> {
        let WorkloadsRecord { workloads, ended, root, taken } = record;
        let workload = |record: &WorkloadRecord| Some((record.number, Workload::from_record(record, now)?));
        Some(Self {
            workloads: workloads.iter().map(workload).collect::<Option<_>>()?,
            ended: ended.iter().map(|record| (Key::from_bits(record.key), record.ios)).collect(),
            root: *root,
            has_unnamed: true,
            ..Self::new(time(*taken))
        })
    }
}

impl Workload {
    fn to_record(&self, number: u64, now: Instant) -> WorkloadRecord {
        let gone_for = |gone: &Gone| now.duration_since(gone.since).as_millis() as u64;
        let identity = &self.identity;
        WorkloadRecord {
            number,
            path: self.path().map(str::to_owned),
            css: self.cgroup.as_ref().map_or(0, |cgroup| cgroup.css),
            pod: identity.pod.clone(),
            namespace: identity.namespace.clone(),
            container: identity.container.clone(),
            since: nanoseconds(self.since),
            gone_for: self.gone.as_ref().map(gone_for),
            usage: self.usage.iter().map(|(&key, totals)| totals.to_record(key)).collect(),
        }
    }

    fn from_record(record: &WorkloadRecord, now: Instant) -> Option<Self> {
        let cgroup = record.path.clone().map(|path| SeenCgroup { css: record.css, path });
        let mut workload = Self::new(record.number, cgroup, time(record.since), now);
        if !record.pod.is_empty() {
            workload.identity.pod.clone_from(&record.pod);
            workload.identity.namespace.clone_from(&record.namespace);
            workload.identity.container.clone_from(&record.container);
        }
        // Scrapes are counted from zero again.
        let gone = |milliseconds| {
            let since = now.checked_sub(Duration::from_millis(milliseconds)).unwrap_or(now);
            Gone { since, scrapes: 0 }
        };
        workload.gone = record.gone_for.map(gone);
        for usage in &record.usage {
            workload.usage.insert(Key::from_bits(usage.key), WorkloadTotals::from_record(usage)?);
        }
        Some(workload)
    }
}
