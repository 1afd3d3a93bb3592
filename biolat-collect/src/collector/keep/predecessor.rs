//! Reads the probe and the state kept by the previous daemon.

use anyhow::{Error, Result, ensure};
use biolat_probe::ProbeFds;
use prost::Message as _;

use super::{
    super::state::{
        copies::Copies,
        record::{FORMAT, State},
    },
    store::{Kept, Parts, ProbeStore},
};

/// The previous daemon: its state, and the file descriptors of its probe.
pub(in crate::collector) struct Predecessor {
    pub(super) copies: Copies,
    /// Number of files or maps that have held the state.
    pub(super) states: usize,
    pub(in crate::collector) id: u32,
    pub(in crate::collector) state: State,
    pub(in crate::collector) fds: ProbeFds,
}

impl Kept {
    /// Whether a daemon with these options can continue one of the probes: `Err` says why it cannot, `None` means that there are
    /// no probes.
    pub fn can_be_continued(self, sizes: bool, workloads: u32) -> Option<Result<()>> {
        let check = |(id, parts)| {
            let state = Predecessor::open(id, parts).map_err(Error::msg)?.state;
            ensure_continuable((state.sizes, state.workloads_limit), (sizes, workloads))
        };
        self.probes.into_iter().map(check).reduce(Result::or)
    }
}

/// Fails unless a probe with the new options can continue the totals of one with the old options. Counts by size and by workload
/// must add up to the totals of a series, so either both probes keep them or neither does.
pub(in crate::collector) fn ensure_continuable(old: (bool, u32), new: (bool, u32)) -> Result<()> {
    ensure!(old.0 == new.0, "--sizes has changed");
    ensure!((old.1 == 0) == (new.1 == 0), "--workloads was switched on or off");
    Ok(())
}

impl Predecessor {
    /// Returns the latest completely kept probe, the store, and all other probes, which are obsolete.
    pub(in crate::collector) fn find(kept: Kept) -> (Option<Self>, ProbeStore, Vec<u32>) {
        let Kept { store, mut probes } = kept;
        let (mut found, mut obsolete) = (None, Vec::new());
        // Newest first: an older probe is left over if the daemon ended shortly before or after replacing it.
        while let Some(latest) = (0..probes.len()).max_by_key(|&place| probes[place].0) {
            let (id, parts) = probes.swap_remove(latest);
            match Self::open(id, parts) {
                Ok(predecessor) if found.is_none() => found = Some(predecessor),
                Ok(_) => obsolete.push(id),
                Err(reason) => {
                    log::warn!("ignoring kept probe {id}: {reason}");
                    obsolete.push(id);
                }
            }
        }
        if found.is_none() && !obsolete.is_empty() {
            log::warn!("cannot resume from the previous daemon, counters start at zero");
        }
        (found, store, obsolete)
    }

    fn open(id: u32, parts: Parts) -> Result<Self, &'static str> {
        let Parts { states, fds } = parts;
        if states.is_empty() {
            return Err("its state is missing");
        }
        let states_count = states.len();
        let (copies, state) = Copies::open(states).map_err(|_| "its state cannot be opened")?;
        let state = state.ok_or("its state is incomplete or was not written by biolat")?;
        let state = State::decode(&*state).map_err(|_| "its state was not written by biolat")?;
        if state.format != FORMAT {
            return Err("its state has the format of another version");
        }
        // The links are kept last.
        if fds.links.len() < state.links as usize {
            return Err("its probe was not kept completely");
        }
        Ok(Self { copies, states: states_count, id, state, fds })
    }
}
