//! Keeps the log for the next daemon.

use std::time::Duration;

use biolat_model::{
    epoch::{nanoseconds, time},
    io_names::{IoFile, IoNames, IoProcess},
    name::Name,
    snapshot::SlowIo,
};

use super::{
    super::state::{
        numbers::array,
        record::{
            IoFileRecord, IoNamesRecord, IoProcessRecord, SlowIoRecord, SlowIosRecord, SlowLogRecord, field,
        },
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
    let SlowIo { number, completed, device, op, sector, bytes, status, latencies, cpu, workload, names } = io;
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
        names: (*names != IoNames::default()).then(|| names_to_record(names)),
    }
}

fn names_to_record(names: &IoNames) -> IoNamesRecord {
    let IoNames { class, file, file_unknown, process, process_unknown } = names;
    let text = |name: &Option<Name>| name.as_deref().unwrap_or_default().to_owned();
    IoNamesRecord {
        class: text(class),
        file_unknown: text(file_unknown),
        process_unknown: text(process_unknown),
        file: file.as_ref().map(|IoFile { path, mount, file_system, inode, removed }| IoFileRecord {
            path: path.clone(),
            mount: mount.clone(),
            file_system: file_system.clone(),
            inode: *inode,
            removed: *removed,
        }),
        process: process.as_ref().map(|IoProcess { id, command, known_by }| IoProcessRecord {
            id: *id,
            command: command.clone(),
            known_by: known_by.clone().into_owned(),
        }),
    }
}

fn names_from_record(record: IoNamesRecord) -> IoNames {
    let IoNamesRecord { class, file_unknown, process_unknown, file, process } = record;
    let name = |text: String| Some(Name::from(text)).filter(|text| !text.is_empty());
    IoNames {
        class: name(class),
        file_unknown: name(file_unknown),
        process_unknown: name(process_unknown),
        file: file.map(|IoFileRecord { path, mount, file_system, inode, removed }| IoFile {
            path,
            mount,
            file_system,
            inode,
            removed,
        }),
        process: process.map(|IoProcessRecord { id, command, known_by }| IoProcess {
            id,
            command,
            known_by: known_by.into(),
        }),
    }
}

fn from_record(record: SlowIoRecord) -> Option<SlowIo> {
    let SlowIoRecord { number, completed, device, op, sector, bytes, status, latencies, cpu, cgroup, names } =
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
        names: names.map(names_from_record).unwrap_or_default(),
    })
}
