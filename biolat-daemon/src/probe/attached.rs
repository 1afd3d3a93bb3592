//! A probe that another process has attached, from the file descriptors of its maps, programs and links. They say themselves
//! what they are: the kernel knows the name of each map and program, and which program a link attaches.

#![allow(unsafe_code, reason = "reads of maps write to buffers")]

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
};

use anyhow::{Context as _, Result};
use aya::maps::{MapData, PerCpuArray};
use biolat_common::{lost::Counts, slot::CHUNK_SLOTS};

use super::{
    cpus::{self, PossibleCpus},
    map_set::MapSet,
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
        let mut by_name = BTreeMap::new();
        for program in fds.programs {
            let info = sys::program_info(program.as_fd()).context("cannot read what a program is")?;
            by_name.insert(info.name, (info.id, program));
        }
        let mut by_program = BTreeMap::new();
        for link in fds.links {
            let program = sys::program_of_link(link.as_fd()).context("cannot read what a link attaches")?;
            by_program.insert(program, link);
        }
        let mut program = |name: &str| by_name.remove(&name[..name.len().min(NAME_BYTES)]);
        let (complete_id, complete) = program(programs::COMPLETE).context("the program is missing")?;
        let (requeue_id, requeue) = program(programs::REQUEUE).unzip();
        let [inflight, cgroup_exists] =
            [programs::INFLIGHT, programs::CGROUP_EXISTS].map(|name| program(name).map(|(_, fd)| fd));
        let links = Links {
            complete: by_program.remove(&complete_id).context("the link is missing")?,
            requeue: requeue_id.and_then(|id| by_program.remove(&id)),
        };
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
fn maps(fds: Vec<OwnedFd>, slots: u32) -> Result<(BTreeMap<String, MapData>, Vec<MapData>)> {
    const CONTEXT: &str = "cannot read what a map is";
    let mut by_id = BTreeMap::new();
    let mut more = None;
    for fd in fds {
        let map = MapData::from_fd(fd).context(CONTEXT)?;
        let info = map.info().context(CONTEXT)?;
        if info.name_as_str() == Some(MORE) {
            more = Some(info.id());
        }
        by_id.insert(info.id(), map);
    }
    let chunks: Vec<_> = match more.and_then(|more| by_id.get(&more)) {
        // One without a file descriptor was just added, and its slots have never been used.
        Some(more) => (slots / CHUNK_SLOTS..).map_while(|place| id_of_chunk(more, place)).collect(),
        None => Vec::new(),
    };
    let chunks = chunks.into_iter().map_while(|id| by_id.remove(&id)).collect();
    let mut by_name = BTreeMap::new();
    for map in by_id.into_values() {
        let info = map.info().context(CONTEXT)?;
        by_name.insert(info.name_as_str().unwrap_or_default().to_owned(), map);
    }
    Ok((by_name, chunks))
}

/// The id of an array of slots, by its place in the map of arrays.
fn id_of_chunk(more: &MapData, place: u32) -> Option<u32> {
    let mut id = 0_u32;
    // SAFETY: to a reader, an entry of an array of maps is the id of a map, 4 bytes.
    unsafe { sys::read_entry(more, place, &raw mut id) }.ok()?;
    Some(id)
}
