//! Identifies the parts of a probe that another process attached, given the file descriptors of its maps, programs and links. The
//! kernel says which is which: it knows the name of each map and program, and the program that a link attaches.

#![allow(unsafe_code, reason = "reads of maps write to buffers")]

use std::{
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use anyhow::{Context as _, Result};
use aya::maps::{Map, MapData, PerCpuArray};
use biolat_common::{
    lost::Counts,
    slot::{CHUNK_SLOTS, CHUNKS, array_index},
};

use super::{
    banks::{Banks, Dimensions},
    cpus::{self, PossibleCpus},
    map_set::{MapSet, NamedMaps},
    maps::{CHUNKS_OF_PROGRAMS, CPUS},
    programs::{self, Links, Programs},
    sys,
    workloads::TABLES_OF_PROGRAMS,
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
    pub(super) banks: Banks,
    /// The chunks of the first program and of the understudy, by bank; `None` for those that are in the array of the first slots.
    pub(super) series: [Vec<Vec<Option<MapData>>>; 2],
    /// The workload tables that were added: those of the other banks, and the understudy's.
    pub(super) workloads: [Vec<MapData>; 2],
    pub(super) cpus: PossibleCpus,
}

impl Attached {
    /// Identifies the parts of a probe that was loaded with these dimensions.
    pub(super) fn open(fds: ProbeFds, dimensions: Dimensions, sysfs: &Path) -> Result<Self> {
        let Dimensions { slots, room } = dimensions;
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
        let places =
            maps.iter().position(|(name, _)| name == CPUS).context("the probe has no map of CPUs")?;
        ids.swap_remove(places);
        let places = Map::from_map_data(maps.swap_remove(places).1)?.try_into()?;
        let banks = Banks::of_attached_probe(places, room, sysfs)?;
        let numbers = banks.all().len() as u32;
        let mut inner = |outer, index| inner_map(&mut maps, &mut ids, outer, index);
        let [of_first, of_understudy] = CHUNKS_OF_PROGRAMS;
        let series = [
            chunks(numbers, slots / CHUNK_SLOTS, |index| inner(of_first, index)),
            chunks(numbers, 0, |index| inner(of_understudy, index)),
        ];
        let [of_first, of_understudy] = TABLES_OF_PROGRAMS;
        let workloads = [
            (1..numbers).map_while(|bank| inner(of_first, bank)).collect(),
            (0..numbers).map_while(|bank| inner(of_understudy, bank)).collect(),
        ];
        let scratch: PerCpuArray<_, Counts> = PerCpuArray::create(1, 0).context("cannot create a map")?;
        let cpus = PossibleCpus::of_kernel(&scratch)?;
        cpus.compare(cpus::in_sysfs()?)?;
        let programs = Programs { complete, understudy, requeue, tag_wait, inflight, cgroup_exists };
        Ok(Self { programs, links, maps: MapSet::Passed(maps), banks, series, workloads, cpus })
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

/// The chunks by bank, up to the first that is missing. The first bank's counters of the first `in_array` chunks are elsewhere.
fn chunks(
    banks: u32,
    in_array: u32,
    mut inner: impl FnMut(u32) -> Option<MapData>,
) -> Vec<Vec<Option<MapData>>> {
    let of_banks = |chunk| -> Vec<_> {
        let of_bank = |bank| match inner(array_index(chunk, bank)) {
            None if bank == 0 && chunk < in_array => Some(None),
            None => None,
            found => Some(found),
        };
        (0..banks).map_while(of_bank).collect()
    };
    (0..CHUNKS).map(of_banks).take_while(|banks| !banks.is_empty()).collect()
}

/// Removes and returns an inner map of a map of maps. They cannot be told apart by name.
fn inner_map(maps: &mut NamedMaps, ids: &mut Vec<u32>, outer: &str, index: u32) -> Option<MapData> {
    let (_, outer) = maps.iter().find(|(name, _)| name == outer)?;
    let id = id_of_inner(outer, index)?;
    // If there is no file descriptor for an inner map, it was just added and has never been used.
    let found = ids.iter().position(|&other| other == id)?;
    ids.swap_remove(found);
    Some(maps.swap_remove(found).1)
}

/// The id of an inner map, by its index in the map of maps.
fn id_of_inner(outer: &MapData, place: u32) -> Option<u32> {
    let mut id = 0_u32;
    // SAFETY: user space reads an entry of an array of maps as the id of a map, which is 4 bytes.
    unsafe { sys::read_entry(outer, place, &raw mut id) }.ok()?;
    Some(id)
}
