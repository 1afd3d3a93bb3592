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

/// The maps by name, and the arrays of slots in the order of their slots.
fn maps(fds: Vec<OwnedFd>, slots: u32) -> Result<(BTreeMap<String, MapData>, Vec<MapData>)> {
    let (mut by_name, mut by_id) = (BTreeMap::new(), BTreeMap::new());
    for fd in fds {
        let map = MapData::from_fd(fd).context("cannot read what a map is")?;
        let info = map.info().context("cannot read what a map is")?;
        match info.name_as_str() {
            Some(name) if !name.is_empty() => drop(by_name.insert(name.to_owned(), map)),
            _ => drop(by_id.insert(info.id(), map)),
        }
    }
    let mut chunks = Vec::new();
    if let Some(more) = by_name.get(MORE) {
        for place in slots / CHUNK_SLOTS.. {
            let mut id = 0_u32;
            // SAFETY: to a reader, an entry of an array of maps is the id of a map, 4 bytes.
            let read = unsafe { sys::read_entry(more, place, &raw mut id) };
            match read.ok().and_then(|()| by_id.remove(&id)) {
                Some(chunk) => chunks.push(chunk),
                // An array that was just added, and whose slots have never been used.
                None => break,
            }
        }
    }
    Ok((by_name, chunks))
}
