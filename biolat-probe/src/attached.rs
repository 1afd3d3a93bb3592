//! Identifies the parts of a probe that another process attached, given the file descriptors of its maps, programs and links. The
//! kernel says which is which: it knows the name of each map and program, and the program that a link attaches.

#![allow(unsafe_code, reason = "reads of maps write to buffers")]

use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use aya::maps::{MapData, PerCpuArray};
use biolat_common::{lost::Counts, slot::CHUNK_SLOTS};

use super::{
    cpus::{self, PossibleCpus},
    map_set::{MapSet, NamedMaps},
    maps::{MORE, UNDERSTUDY_SERIES},
    programs::{self, Links, Programs},
    sys,
    workloads::UNDERSTUDY_WORKLOADS,
};

/// Number of bytes of a program's name that the kernel keeps.
const NAME_BYTES: usize = 15;

/// File descriptors of a probe, in any order.
#[derive(Debug, Default)]
pub struct ProbeFds {
    pub maps: Vec<OwnedFd>,
    pub programs: Vec<OwnedFd>,
    pub links: Vec<OwnedFd>,
}

/// The identified parts of a probe.
pub(super) struct Attached {
    pub(super) programs: Programs,
    /// `None` if the probe is detached.
    pub(super) links: Option<Links>,
    pub(super) maps: MapSet<'static>,
    /// Chunks of slots that were added after startup.
    pub(super) chunks: Vec<MapData>,
    /// The understudy's chunks and workload tables that have been added so far.
    pub(super) understudy: (Vec<MapData>, Option<MapData>),
    pub(super) cpus: PossibleCpus,
}

impl Attached {
    /// Identifies the parts of a probe that was loaded with this many slots.
    pub(super) fn open(fds: ProbeFds, slots: u32) -> Result<Self> {
        let (mut complete, mut understudy, mut requeue) = (None, None, None);
        let (mut tag_wait, mut inflight, mut cgroup_exists) = (None, None, None);
        for program in fds.programs {
            let info = sys::program_info(program.as_fd()).context("cannot read the info of a program")?;
            let is = |name: &str| info.name == name[..name.len().min(NAME_BYTES)];
            match () {
                () if is(programs::COMPLETE) => complete = Some((info.id, program)),
                () if is(programs::UNDERSTUDY) => understudy = Some((info.id, program)),
                () if is(programs::REQUEUE) => requeue = Some((info.id, program)),
                () if is(programs::TAG_WAIT) => tag_wait = Some((info.id, program)),
                () if is(programs::INFLIGHT) => inflight = Some(program),
                () if is(programs::CGROUP_EXISTS) => cgroup_exists = Some(program),
                () => {}
            }
        }
        let (complete_id, complete) = complete.context("the program block_rq_complete is missing")?;
        let (requeue_id, requeue) = requeue.unzip();
        let (tag_wait_id, tag_wait) = tag_wait.unzip();
        let (understudy_id, understudy) = understudy.unzip();
        let (mut complete_link, mut understudy_link) = (None, None);
        let (mut requeue_link, mut tag_wait_link) = (None, None);
        for link in fds.links {
            let program = sys::program_of_link(link.as_fd()).context("cannot read the info of a link")?;
            if program == complete_id {
                complete_link = Some(link);
            } else if Some(program) == requeue_id {
                requeue_link = Some(link);
            } else if Some(program) == tag_wait_id {
                tag_wait_link = Some(link);
            } else if Some(program) == understudy_id {
                understudy_link = Some(link);
            }
        }
        let links = complete_link.map(|complete| Links {
            complete,
            understudy: understudy_link,
            requeue: requeue_link,
            tag_wait: tag_wait_link,
        });
        let (mut maps, mut ids) = named(fds.maps)?;
        let chunks = inner_maps(&mut maps, &mut ids, MORE, slots / CHUNK_SLOTS);
        let understudy_chunks = inner_maps(&mut maps, &mut ids, UNDERSTUDY_SERIES, 0);
        let understudy_table = inner_maps(&mut maps, &mut ids, UNDERSTUDY_WORKLOADS, 0).pop();
        let scratch: PerCpuArray<_, Counts> = PerCpuArray::create(1, 0).context("cannot create a map")?;
        let cpus = PossibleCpus::of_kernel(&scratch)?;
        cpus.compare(cpus::in_sysfs()?)?;
        let programs = Programs { complete, understudy, requeue, tag_wait, inflight, cgroup_exists };
        let (maps, understudy) = (MapSet::Passed(maps), (understudy_chunks, understudy_table));
        Ok(Self { programs, links, maps, chunks, understudy, cpus })
    }
}

/// Returns the maps with their names, and the id of each.
fn named(fds: Vec<OwnedFd>) -> Result<(NamedMaps, Vec<u32>)> {
    const CONTEXT: &str = "cannot read the info of a map";
    let (mut maps, mut ids) = (Vec::new(), Vec::new());
    for fd in fds {
        let map = MapData::from_fd(fd).context(CONTEXT)?;
        let info = map.info().context(CONTEXT)?;
        ids.push(info.id());
        maps.push((info.name_as_str().unwrap_or_default().to_owned(), map));
    }
    Ok((maps, ids))
}

/// Removes and returns the inner maps of a map of maps, in order, from index `first` on. They cannot be told apart by name.
fn inner_maps(maps: &mut NamedMaps, ids: &mut Vec<u32>, outer: &str, first: u32) -> Vec<MapData> {
    let mut inner = Vec::new();
    for place in first.. {
        let outer = maps.iter().find(|(name, _)| name == outer);
        let id = outer.and_then(|(_, outer)| id_of_inner(outer, place));
        // If there is no file descriptor for an inner map, it was just added and has never been used.
        let Some(found) = id.and_then(|id| ids.iter().position(|&other| other == id)) else { break };
        ids.swap_remove(found);
        inner.push(maps.swap_remove(found).1);
    }
    inner
}

/// The id of an inner map, by its index in the map of maps.
fn id_of_inner(outer: &MapData, place: u32) -> Option<u32> {
    let mut id = 0_u32;
    // SAFETY: user space reads an entry of an array of maps as the id of a map, which is 4 bytes.
    unsafe { sys::read_entry(outer, place, &raw mut id) }.ok()?;
    Some(id)
}
