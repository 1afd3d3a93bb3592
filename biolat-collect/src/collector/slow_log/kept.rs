//! Keeps the log for the next daemon.

use std::time::Duration;

use biolat_model::{
    epoch::{nanoseconds, time},
    snapshot::SlowIo,
};

use super::{
    super::state::{
        numbers::array,
        record::{SlowIoRecord, SlowIosRecord, SlowLogRecord, field},
    },
    SlowIoLog,
};

impl SlowIoLog {
    pub(in crate::collector) fn to_record(&self) -> SlowLogRecord {
        SlowLogRecord { number: self.number, dropped: self.dropped }
    }

    /// Appends the I/Os to the state.
    pub(in crate::collector) fn append_ios(&mut self, state: &mut Vec<u8>) {
        let ios = || SlowIosRecord { ios: self.ios.iter().map(to_record).collect() };
        self.encoded.append(field::SLOW_IOS, ios, state);
    }

    /// Restores the log; `None` if the records are invalid.
    pub(in crate::collector) fn from_records(record: &SlowLogRecord, ios: SlowIosRecord) -> Option<Self> {
        let mut log = Self { number: record.number, dropped: record.dropped, ..Self::default() };
        log.ios = ios.ios.into_iter().map(from_record).collect::<Option<_>>()?;
        log.shared = log.ios.iter().cloned().collect();
        Some(log)
    }
}

/// The pattern names every field without `..`, so adding a field breaks the build until the field is kept.
fn to_record(io: &SlowIo) -> SlowIoRecord {
    let SlowIo { number, completed, device, op, sector, bytes, status, latencies, cpu, workload } = io;
    let latency = |latency: &Option<Duration>| latency.map_or(0, |latency| latency.as_nanos() as u64 + 1);
    SlowIoRecord {
        number: *number,
        completed: nanoseconds(*completed),
        device: device.clone(),
        op: op.clone(),
        sector: *sector,
        bytes: *bytes,
        status: status.clone().into_owned(),
        latencies: latencies.iter().map(latency).collect(),
        cpu: *cpu,
        cgroup: workload.clone().unwrap_or_default(),
    }
}

fn from_record(record: SlowIoRecord) -> Option<SlowIo> {
    let SlowIoRecord { number, completed, device, op, sector, bytes, status, latencies, cpu, cgroup } =
        record;
    let latencies: [u64; 4] = array(&latencies)?;
    Some(SlowIo {
        number,
        completed: time(completed),
        device,
        op,
        sector,
        bytes,
        status: status.into(),
        latencies: latencies.map(|ns| ns.checked_sub(1).map(Duration::from_nanos)),
        cpu,
        workload: Some(cgroup).filter(|cgroup| !cgroup.is_empty()),
    })
}
