//! The devices found by scans, and everything known about them.

mod audits;
mod lifetimes;
mod scans;
mod views;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::{Instant, SystemTime},
};

use anyhow::Result;
use biolat_common::series::Key;
use biolat_model::{
    device::{Device, Selection},
    epoch::{nanoseconds, time},
};
use biolat_system::host::Host;

use super::{
    audit::Audit,
    spread::Spread,
    state::record::{DeviceRecord, NvmeEventRecord},
    tag_waits::TagWaitCounts,
    volumes::MeasureVolumes,
};
use crate::{
    device::{IdKind, nvme_events::NvmeEvents},
    resettable::ResettableCounter,
};

/// Start time and result of a scan: drives and, if they are measured, volumes.
type ScanResult = (Instant, Result<Vec<Device>>, Option<Result<Vec<Device>>>);

/// Number of devices to remember after they are gone.
const GONE_DEVICES: usize = 100;

pub(super) struct Devices {
    host: Host,
    selection: Selection,
    ids: IdKind,
    known: BTreeMap<u64, KnownDevice>,
    /// The devices that disappeared most recently: an I/O can fail after its device has disappeared.
    gone: VecDeque<KnownDevice>,
    /// Devices known to the previous daemon, until a scan finds them.
    kept: Vec<DeviceRecord>,
    /// Devices that the probe has seen but no scan has found, and when the probe first saw them.
    unresolved: BTreeMap<u64, Instant>,
    /// Completions of devices that were gone before a scan found them.
    unresolved_completions: u64,
    /// Time of the last scan; `None` if a scan is due.
    scanned: Option<Instant>,
    scan_result: Arc<Mutex<Option<ScanResult>>>,
    /// Whether scans look for volumes.
    measure_volumes: MeasureVolumes,
    /// The shown volumes that the last scan found, until they are taken.
    found_volumes: Option<Vec<Device>>,
    /// Start of the latest scan that has been evaluated.
    known_scan_began: Instant,
}

/// A device found by the last scan.
pub(super) struct KnownDevice {
    pub(super) device: Device,
    pub(super) shown: bool,
    pub(super) since: SystemTime,
    pub(super) audit: Option<Audit>,
    /// Whether the device was quiet during a collection, which makes the audit's baseline exact.
    was_quiet: bool,
    /// Whether the kernel records when requests are dispatched, judging by the latest ones.
    pub(super) has_dispatch_times: bool,
    /// Whether the kernel records when I/O is submitted, judging by the latest I/Os.
    pub(super) has_submission_times: bool,
    pub(super) spread: Spread,
    nvme_events: NvmeEvents,
    pub(super) tag_waits: TagWaitCounts,
}

impl Devices {
    pub(super) fn new(host: Host, selection: Selection, ids: IdKind) -> Self {
        Self {
            host,
            selection,
            ids,
            known: BTreeMap::new(),
            gone: VecDeque::new(),
            kept: Vec::new(),
            unresolved: BTreeMap::new(),
            unresolved_completions: 0,
            scanned: Some(Instant::now()),
            scan_result: Arc::default(),
            measure_volumes: MeasureVolumes::Off,
            found_volumes: None,
            known_scan_began: Instant::now(),
        }
    }

    /// Continues with the state of the previous daemon.
    pub(super) fn continue_from(&mut self, devices: &[DeviceRecord], unresolved_completions: u64) {
        self.kept = devices.to_vec();
        self.unresolved_completions = unresolved_completions;
    }

    pub(super) fn get(&self, id: u64) -> Option<&KnownDevice> {
        self.known.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut KnownDevice> {
        self.known.get_mut(&id)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut KnownDevice)> {
        self.known.iter_mut().map(|(&id, known)| (id, known))
    }

    /// Continues the waits for a tag with another probe.
    pub(super) fn restart_tag_waits(&mut self) {
        self.known.values_mut().for_each(|known| known.tag_waits.restart());
    }

    /// Returns the shown devices.
    pub(super) fn shown(&self) -> impl Iterator<Item = (u64, &KnownDevice)> {
        self.known.iter().filter(|(_, known)| known.shown).map(|(&id, known)| (id, known))
    }

    /// Returns a device that is known or was known recently.
    pub(super) fn find(&self, id: u64) -> Option<&KnownDevice> {
        self.get(id).or_else(|| self.gone.iter().rev().find(|known| known.device.id == id))
    }

    /// Returns the shown volumes if there has been a scan since the last call.
    pub(super) fn take_volumes(&mut self) -> Option<Vec<Device>> {
        self.found_volumes.take()
    }

    /// Whether no scan has found the device of this series.
    pub(super) fn is_unresolved(&self, key: Key) -> bool {
        !self.known.contains_key(&key.device())
    }

    /// Returns the number of completions of devices that were gone before a scan found them.
    pub(super) fn unresolved_completions(&self) -> u64 {
        self.unresolved_completions
    }

    /// Returns the devices' records for the next daemon.
    pub(super) fn to_records(&self) -> Vec<DeviceRecord> {
        self.known.iter().map(|(&id, known)| known.to_record(id)).collect()
    }
}

impl KnownDevice {
    fn to_record(&self, id: u64) -> DeviceRecord {
        DeviceRecord {
            id,
            inode: self.device.inode,
            name: self.device.name.clone(),
            since: nanoseconds(self.since),
            was_quiet: self.was_quiet,
            has_dispatch_times: self.has_dispatch_times,
            has_submission_times: self.has_submission_times,
            audit: self.audit.as_ref().map(Audit::to_record),
            nvme_events: self
                .nvme_events
                .counters()
                .map(|(name, ResettableCounter { last, growth })| NvmeEventRecord {
                    name: name.to_owned(),
                    last,
                    growth,
                })
                .collect(),
            earlier_tag_waits: self.tag_waits.to_record(),
        }
    }

    /// Continues with the previous daemon's state of the same device.
    fn continue_from(&mut self, kept: &DeviceRecord) {
        self.since = time(kept.since);
        self.has_dispatch_times = kept.has_dispatch_times;
        self.has_submission_times = kept.has_submission_times;
        self.audit = kept.audit.as_ref().and_then(Audit::from_record);
        self.was_quiet = kept.was_quiet && self.audit.is_some();
        self.nvme_events = NvmeEvents::from_counters(kept.nvme_events.iter().map(
            |&NvmeEventRecord { ref name, last, growth }| (name.as_str(), ResettableCounter { last, growth }),
        ));
        self.tag_waits = TagWaitCounts::from_record(&kept.earlier_tag_waits);
    }
}
