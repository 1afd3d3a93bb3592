//! Keeps everything that the next daemon needs to continue the counters: the probe, as file descriptors of its maps, programs and
//! links, and a state that records how far this daemon has read the counters.
//!
//! The true value of a series is its totals plus what the kernel has counted since they were read. So a state can be several
//! collections old and still be exact, as long as no counter wraps. A new state must be written in only four cases: before the
//! workload tables are switched again, because that reuses the table read last; before a slot is pushed to the free queue,
//! because its next series starts from its counts; after records of slow I/Os have been read, because they no longer exist
//! anywhere else; and before a snapshot is published, so the next daemon never falls behind a scrape.

mod predecessor;
mod store;

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result};
use biolat_model::epoch::nanoseconds;
use biolat_probe::{Dimensions, Probe, WorkloadMaps};
use biolat_system::rights::Keeping;
use prost::Message as _;

use super::{
    devices::Devices,
    refusals::Refusals,
    replace::EarlierProbes,
    series_store::SeriesStore,
    slow_log::SlowIoLog,
    state::{
        copies::Copies,
        record::{FORMAT, State},
    },
    thread::{CollectionStats, LogLimit},
    workloads::Workloads,
};
use store::FdKind;

pub(super) use predecessor::{Predecessor, ensure_continuable};
pub use store::Kept;
pub(super) use store::ProbeStore;

/// Number of the first array of counters. The probe has fewer other maps than this.
const FIRST_ARRAY: usize = 100;

/// Initial room for each copy of the state in a map.
const STATE_BYTES: u64 = 8 << 10;

/// The probe and the state that this daemon keeps.
pub(super) struct Keep {
    store: Arc<ProbeStore>,
    copies: Copies,
    /// Number of files or maps that have held the copies.
    states: usize,
    /// The probe's id.
    id: u32,
    identity: Vec<u8>,
    /// Number of workloads that the probe counts separately.
    workloads: u32,
    boot: String,
    /// Numbers of the arrays of counters that are stored.
    arrays: BTreeSet<u32>,
    /// Time taken to write the last state.
    write_time: Duration,
    error_log: LogLimit,
}

impl Keep {
    /// Keeps a probe that this daemon has loaded and will attach. Stores everything but the links, which mark the probe as
    /// complete. `None` if systemd cannot store it.
    pub(super) fn of_loaded(
        store: Arc<ProbeStore>,
        probe: &Probe,
        maps: &[OwnedFd],
        identity: Vec<u8>,
        workloads: u32,
        boot: String,
    ) -> Result<Option<Self>> {
        let copies = match &*store {
            ProbeStore::Systemd(_) => Copies::create().context("cannot create a file in memory")?,
            ProbeStore::Pins(_) => Copies::create_map(STATE_BYTES)?,
        };
        let keep = Self::of(store, copies, probe.id()?, identity, workloads, boot);
        let maps: Vec<_> = maps.iter().map(|fd| fd.as_fd()).collect();
        let add = |kind, fds: &[_]| keep.store.add(keep.id, kind, 0, fds);
        let stored = add(FdKind::State, &[keep.copies.as_fd()])
            .and_then(|()| add(FdKind::Maps, &maps))
            .and_then(|()| add(FdKind::Programs, &probe.program_fds()));
        keep.unless_failed(stored)
    }

    /// Decides whether a failure is fatal: measuring goes on without systemd's store, but not if the probe cannot be pinned as
    /// requested.
    fn unless_failed(self, stored: Result<()>) -> Result<Option<Self>> {
        let Err(error) = stored else { return Ok(Some(self)) };
        self.store.forget(self.id);
        match *self.store {
            ProbeStore::Systemd(_) => {
                log::warn!("{error:#}: if biolat restarts, its counters start at zero");
                Ok(None)
            }
            ProbeStore::Pins(_) => Err(error),
        }
    }

    /// Keeps a probe that was taken over. Removes the arrays that the previous daemon had stored but not yet used when it ended:
    /// this is no longer allowed once privileges are dropped, and new arrays get the same file names.
    pub(super) fn of_predecessor(
        store: Arc<ProbeStore>,
        predecessor: Predecessor,
        probe: &Probe,
    ) -> Result<Self> {
        let Predecessor { copies, states, id, state, fds: _ } = predecessor;
        let keep = Self::of(store, copies, id, state.probe, state.workloads_limit, state.boot);
        let arrays: BTreeSet<_> = probe.added_arrays().into_iter().map(|(number, _)| number).collect();
        let is_unused =
            |number: usize| number >= FIRST_ARRAY && !arrays.contains(&((number - FIRST_ARRAY) as u32));
        keep.store.remove_pinned_maps(id, is_unused)?;
        Ok(Self { arrays, states, ..keep })
    }

    fn of(
        store: Arc<ProbeStore>,
        copies: Copies,
        id: u32,
        identity: Vec<u8>,
        workloads: u32,
        boot: String,
    ) -> Self {
        let (write_time, error_log) = (Duration::ZERO, LogLimit::default());
        Self {
            store,
            copies,
            states: 1,
            id,
            identity,
            workloads,
            boot,
            arrays: BTreeSet::new(),
            write_time,
            error_log,
        }
    }

    /// Returns the privileges that the collector's thread needs to keep the probe and the state.
    pub(super) fn rights(&self) -> Keeping {
        match &*self.store {
            ProbeStore::Systemd(store) => {
                Keeping::WithSystemd { socket: store.as_raw_fd(), state: self.copies.as_fd().as_raw_fd() }
            }
            ProbeStore::Pins(_) => Keeping::InPins,
        }
    }

    /// Returns the time taken to write the last state.
    pub(super) fn write_time(&self) -> Duration {
        self.write_time
    }

    /// Removes the links, which detaches the probe.
    pub(super) fn remove_links(&self) -> Result<()> {
        self.store.remove(self.id, FdKind::Links)
    }

    /// Keeps the link of the understudy, which has just been attached and is the last one.
    pub(super) fn store_understudy(&self, probe: &Probe) -> Result<()> {
        let links = probe.link_fds();
        let Some((link, before)) = links.split_last() else { return Ok(()) };
        self.store.add(self.id, FdKind::Links, before.len(), &[*link])
    }

    /// Keeps the arrays of counters that were added since the last call.
    pub(super) fn store_arrays(&mut self, probe: &Probe) -> Result<()> {
        for (number, array) in probe.added_arrays() {
            if !self.arrays.contains(&number) {
                self.store.add(self.id, FdKind::Maps, FIRST_ARRAY + number as usize, &[array])?;
                self.arrays.insert(number);
            }
        }
        Ok(())
    }

    /// Keeps a probe that has just been attached: with its links it is complete.
    pub(super) fn begin(mut self, parts: KeptParts<'_>) -> Result<Option<Self>> {
        let links = parts.probe.link_fds();
        let committed = self.write(parts);
        let stored = committed.and_then(|()| self.store.add(self.id, FdKind::Links, 0, &links));
        self.unless_failed(stored)
    }

    fn write(&mut self, mut parts: KeptParts<'_>) -> Result<()> {
        let began = Instant::now();
        self.store_arrays(parts.probe)?;
        let state = parts.state(self);
        let written = self.copies.write(|buffer| {
            // Encoding into a vector cannot fail.
            let _ = state.encode(buffer);
            parts.append_records(buffer);
        });
        let written = match written {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => self.write_to_larger_map(),
            written => written.context("cannot write the state"),
        };
        self.write_time = began.elapsed();
        written
    }

    /// Writes the state that was just encoded to a larger map, and keeps that map too. The smaller one stays, without a state,
    /// until the probe is removed.
    fn write_to_larger_map(&mut self) -> Result<()> {
        let larger = self.copies.in_larger_map()?;
        self.store.add(self.id, FdKind::State, self.states, &[larger.as_fd()])?;
        self.states += 1;
        let mut smaller = std::mem::replace(&mut self.copies, larger);
        smaller.invalidate().context("cannot invalidate the last state")
    }
}

/// Writes the state, if it is kept. After an error no state is kept until the next successful write, because an old one would be
/// wrong.
pub(super) fn commit(kept: &mut Option<Keep>, parts: KeptParts<'_>) {
    let Some(keep) = kept else { return };
    let Err(error) = keep.write(parts) else { return };
    if keep.error_log.allows() {
        log::error!("{error:#}: if biolat restarts now, its counters start at zero");
    }
    if let Err(error) = keep.copies.invalidate() {
        log::error!("cannot invalidate the state, no longer keeping it: {error}");
        keep.store.forget(keep.id);
        *kept = None;
    }
}

/// The parts of the collector that the next daemon continues.
pub(super) struct KeptParts<'a> {
    pub(super) started: SystemTime,
    pub(super) probe: &'a Probe,
    pub(super) devices: &'a Devices,
    pub(super) store: &'a mut SeriesStore,
    pub(super) workloads: &'a mut Workloads,
    pub(super) slow: &'a mut SlowIoLog,
    pub(super) refusals: &'a Refusals,
    pub(super) earlier: EarlierProbes,
    pub(super) stats: &'a CollectionStats,
}

impl KeptParts<'_> {
    /// Returns the state without the records that are [appended](super::state::encoded).
    fn state(&self, keep: &Keep) -> State {
        let Dimensions { slots, room } = self.probe.dimensions();
        State {
            format: FORMAT,
            boot: keep.boot.clone(),
            probe: keep.identity.clone(),
            slots,
            banks: room.banks,
            rows: room.rows,
            by_node: room.by_node,
            first_rows: room.first_rows,
            taken_epoch: self.probe.workloads.as_ref().map_or(0, WorkloadMaps::taken_epoch),
            started: nanoseconds(self.started),
            unresolved_completions: self.devices.unresolved_completions(),
            quarantined: self.store.quarantined_slots(),
            devices: self.devices.to_records(),
            all_workloads: self.workloads.store.to_record(),
            pending: self.workloads.reference.records(),
            slow: self.slow.to_record(),
            collections: self.stats.to_record(),
            sizes: self.probe.options.sizes,
            workloads_limit: keep.workloads,
            links: self.probe.link_fds().len() as u32,
            earlier: self.earlier.to_record(),
            recursion: self.refusals.lost(),
            ..State::default()
        }
    }

    fn append_records(&mut self, state: &mut Vec<u8>) {
        self.store.append_records(state);
        self.workloads.store.append_workloads(state);
        self.slow.append_ios(state);
    }
}
