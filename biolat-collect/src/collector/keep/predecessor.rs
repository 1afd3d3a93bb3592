//! What the last daemon has kept.

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

/// The last daemon: its state, and the file descriptors of its probe.
pub(in crate::collector) struct Predecessor {
    pub(super) copies: Copies,
    /// How many files or maps the state has been in.
    pub(super) states: usize,
    pub(in crate::collector) id: u32,
    pub(in crate::collector) state: State,
    pub(in crate::collector) fds: ProbeFds,
}

impl Kept {
    /// Whether a daemon with these options can continue with one of the probes, or why not with any of them. `None` if there are none.
    pub fn can_be_continued(self, sizes: bool, workloads: u32) -> Option<Result<()>> {
        let check = |(id, parts)| {
            let state = Predecessor::open(id, parts).map_err(Error::msg)?.state;
            ensure_continuable((state.sizes, state.workloads_limit), (sizes, workloads))
        };
        self.probes.into_iter().map(check).reduce(Result::or)
    }
}

/// Whether the totals of a probe with these options can be continued by one with others: sizes, and workloads, add up to the
/// totals of a series, so both probes must count them, or neither.
pub(in crate::collector) fn ensure_continuable(of_old: (bool, u32), of_new: (bool, u32)) -> Result<()> {
    ensure!(of_old.0 == of_new.0, "--sizes has changed");
    ensure!((of_old.1 == 0) == (of_new.1 == 0), "--workloads was switched on or off");
    Ok(())
}

impl Predecessor {
    /// The latest one that was kept completely, the store, and all other probes, which are of no use.
    pub(in crate::collector) fn find(kept: Kept) -> (Option<Self>, ProbeStore, Vec<u32>) {
        let Kept { store, mut probes } = kept;
        let (mut found, mut useless) = (None, Vec::new());
        // The latest first: an older one is left if the daemon ended when it was about to replace it, or had just done so.
        while let Some(latest) = (0..probes.len()).max_by_key(|&place| probes[place].0) {
            let (id, parts) = probes.swap_remove(latest);
            match Self::open(id, parts) {
                Ok(predecessor) if found.is_none() => found = Some(predecessor),
                Ok(_) => useless.push(id),
                Err(reason) => {
                    log::warn!("ignoring a probe that was kept ({id}): {reason}");
                    useless.push(id);
                }
            }
        }
        if found.is_none() && !useless.is_empty() {
            log::warn!("cannot continue where biolat ended, counters start at zero");
        }
        (found, store, useless)
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
        // They are kept last.
        if fds.links.len() < state.links as usize {
            return Err("its probe was not kept completely");
        }
        Ok(Self { copies, states: states_count, id, state, fds })
    }
}
