//! What the last daemon has kept.

use std::{collections::BTreeMap, os::fd::OwnedFd};

use prost::Message as _;

use super::{
    super::state::{
        copies::Copies,
        record::{FORMAT, State},
    },
    FdKind, Kept, Store,
};
use crate::probe::ProbeFds;

/// The last daemon: its state, and the file descriptors of its probe.
pub(in crate::collect) struct Predecessor {
    pub(super) copies: Copies,
    pub(in crate::collect) id: u32,
    pub(in crate::collect) state: State,
    pub(in crate::collect) fds: ProbeFds,
}

/// What was kept of one probe.
#[derive(Default)]
struct Parts {
    state: Option<OwnedFd>,
    fds: ProbeFds,
}

impl Predecessor {
    /// The latest one whose state is valid, the store, and all other probes, which are of no use.
    pub(in crate::collect) fn find(kept: Kept) -> (Option<Self>, Store, Vec<u32>) {
        let Kept { store, passed } = kept;
        let (mut probes, mut useless): (BTreeMap<u32, Parts>, Vec<u32>) = Default::default();
        for passed in passed {
            let Some((id, kind)) = FdKind::parse(&passed.name) else { continue };
            let Parts { state, fds } = probes.entry(id).or_default();
            match kind {
                FdKind::State => *state = Some(passed.fd),
                FdKind::Maps => fds.maps.push(passed.fd),
                FdKind::Programs => fds.programs.push(passed.fd),
                FdKind::Links => fds.links.push(passed.fd),
            }
        }
        let mut found = None;
        // The latest first: an older one is left if the daemon ended when it had just replaced it.
        for (id, parts) in probes.into_iter().rev() {
            match Self::open(id, parts) {
                Ok(predecessor) if found.is_none() => found = Some(predecessor),
                Ok(_) => useless.push(id),
                Err(reason) => {
                    log::warn!("cannot continue where biolat ended: {reason}");
                    useless.push(id);
                }
            }
        }
        (found, store, useless)
    }

    fn open(id: u32, parts: Parts) -> Result<Self, &'static str> {
        let Parts { state, fds } = parts;
        let opened = Copies::open(state.ok_or("its state is missing")?);
        let (copies, state) = opened.map_err(|_| "its state cannot be opened")?;
        let state = state.ok_or("its state is incomplete or was not written by biolat")?;
        let state = State::decode(&*state).map_err(|_| "its state was not written by biolat")?;
        if state.format != FORMAT {
            return Err("its state has the format of another version");
        }
        Ok(Self { copies, id, state, fds })
    }
}
