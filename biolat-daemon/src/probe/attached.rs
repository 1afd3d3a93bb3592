//! A probe that another process has attached, from the file descriptors of its maps, programs and links. They say themselves
//! what they are: the kernel knows the name of each map and program, and which program a link attaches.

#![allow(unsafe_code, reason = "reads of maps write to buffers")]

use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use aya::maps::{MapData, PerCpuArray};
use biolat_common::{lost::Counts, slot::CHUNK_SLOTS};

use super::{
    cpus::{self, PossibleCpus},
    map_set::{MapSet, NamedMaps},
    maps::MORE,
    programs::{self, Links, Programs},
    sys,
};

/// The kernel keeps so many bytes of a program's name.
const NAME_BYTES: usize = 15;

/// File descriptors of a probe.
#[derive(Debug, Default)]
pub struct ProbeFds {
    pub maps: Vec<OwnedFd>,
    pub programs: Vec<OwnedFd>,
    pub links: Vec<OwnedFd>,
}

/// What they are.
pub(super) struct Attached {
    pub(super) programs: Programs,
    pub(super) links: Links,
    pub(super) maps: MapSet<'static>,
    /// The arrays of slots that were added after the start.
    pub(super) chunks: Vec<MapData>,
    pub(super) cpus: PossibleCpus,
}

impl Attached {
    /// Of a probe that was loaded with so many slots.
    pub(super) fn open(fds: ProbeFds, slots: u32) -> Result<Self> {
        let (mut complete, mut requeue, mut inflight, mut cgroup_exists) = (None, None, None, None);
        for program in fds.programs {
            let info = sys::program_info(program.as_fd()).context("cannot read what a program is")?;
            let is = |name: &str| info.name == name[..name.len().min(NAME_BYTES)];
            match () {
                () if is(programs::COMPLETE) => complete = Some((info.id, program)),
                () if is(programs::REQUEUE) => requeue = Some((info.id, program)),
                () if is(programs::INFLIGHT) => inflight = Some(program),
                () if is(programs::CGROUP_EXISTS) => cgroup_exists = Some(program),
                () => {}
            }
        }
        let (complete_id, complete) = complete.context("the program is missing")?;
        let (requeue_id, requeue) = requeue.unzip();
        let (mut of_complete, mut of_requeue) = (None, None);
        for link in fds.links {
            let program = sys::program_of_link(link.as_fd()).context("cannot read what a link attaches")?;
            if program == complete_id {
                of_complete = Some(link);
            } else if Some(program) == requeue_id {
                of_requeue = Some(link);
            }
        }
        let links = Links { complete: of_complete.context("the link is missing")?, requeue: of_requeue };
        let (maps, chunks) = maps(fds.maps, slots)?;
        let scratch: PerCpuArray<_, Counts> = PerCpuArray::create(1, 0).context("cannot create a map")?;
        let cpus = PossibleCpus::of_kernel(&scratch)?;
        cpus.compare(cpus::in_sysfs()?)?;
        let programs = Programs { complete, requeue, inflight, cgroup_exists };
        Ok(Self { programs, links, maps: MapSet::Passed(maps), chunks, cpus })
    }
}

/// The maps by name, and the arrays of slots in the order of their slots. The latter are those that the map of arrays has: they
/// share a name.
fn maps(fds: Vec<OwnedFd>, slots: u32) -> Result<(NamedMaps, Vec<MapData>)> {
    const CONTEXT: &str = "cannot read what a map is";
    let (mut maps, mut ids, mut chunks) = (Vec::new(), Vec::new(), Vec::new());
    for fd in fds {
        let map = MapData::from_fd(fd).context(CONTEXT)?;
        let info = map.info().context(CONTEXT)?;
        ids.push(info.id());
        maps.push((info.name_as_str().unwrap_or_default().to_owned(), map));
    }
    for place in slots / CHUNK_SLOTS.. {
        let more = maps.iter().find(|(name, _)| name == MORE);
        let id = more.and_then(|(_, more)| id_of_chunk(more, place));
        // One without a file descriptor was just added, and its slots have never been used.
        let Some(found) = id.and_then(|id| ids.iter().position(|&other| other == id)) else { break };
        ids.swap_remove(found);
        chunks.push(maps.swap_remove(found).1);
    }
    Ok((maps, chunks))
}

/// The id of an array of slots, by its place in the map of arrays.
fn id_of_chunk(more: &MapData, place: u32) -> Option<u32> {
    let mut id = 0_u32;
    // SAFETY: to a reader, an entry of an array of maps is the id of a map, 4 bytes.
    unsafe { sys::read_entry(more, place, &raw mut id) }.ok()?;
    Some(id)
}
