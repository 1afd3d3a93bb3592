//! Runs the program that surveys the requests in flight on a hardware queue.

#![allow(unsafe_code, reason = "aya::Pod is an unsafe trait")]

use std::os::fd::{AsRawFd as _, BorrowedFd};

use anyhow::{Context as _, Result, bail};
use aya::maps::{Array, MapData};
use biolat_common::inflight::Found;

use super::{
    map_set::MapSet,
    programs::{self, Programs},
};

#[derive(Clone, Copy)]
#[repr(transparent)]
struct FoundValue(Found);

// SAFETY: `repr(C)` integers without padding.
unsafe impl aya::Pod for FoundValue {}

/// The map with the program's result.
pub(super) struct InflightResult(Array<MapData, FoundValue>);

impl InflightResult {
    pub(super) fn from_maps(maps: &mut MapSet<'_>) -> Result<Self> {
        Ok(Self(maps.take("INFLIGHT")?.try_into()?))
    }

    /// Surveys the slots of a hardware queue, starting at `first`. The queue is identified by its open sysfs directory.
    pub(super) fn look(
        &self,
        programs: &Programs,
        hardware_queue: BorrowedFd<'_>,
        first: u32,
    ) -> Result<Found> {
        let descriptor = hardware_queue.as_raw_fd().cast_unsigned();
        programs::run(programs.inflight.as_ref(), &[u64::from(descriptor), u64::from(first)])
            .context("cannot survey the requests in flight")?;
        let FoundValue(found) = self.0.get(&0, 0).context("cannot read the requests in flight")?;
        if found.slots == 0 {
            bail!("the kernel does not show the requests of this hardware queue");
        }
        Ok(found)
    }
}
