//! The map of the waits for a tag.

#![allow(unsafe_code, reason = "the values of a map must be plain data")]

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use aya::maps::{HashMap, MapData};
use biolat_common::tags::TagWaits;

use super::{map_set::MapSet, plain::Plain};

// SAFETY: plain integers without padding.
unsafe impl aya::Pod for Plain<TagWaits> {}

pub(super) struct TagWaitMap(HashMap<MapData, u64, Plain<TagWaits>>);

impl TagWaitMap {
    /// `None` if the probe has no such map.
    pub(super) fn from_maps(set: &mut MapSet<'_>) -> Result<Option<Self>> {
        set.take("TAG_WAITS").ok().map(|map| Ok(Self(map.try_into()?))).transpose()
    }

    pub(super) fn read(&self) -> Result<BTreeMap<u64, TagWaits>> {
        let waits = self.0.iter().map(|entry| entry.map(|(device, Plain(waits))| (device, waits)));
        waits.collect::<Result<_, _>>().context("cannot read the waits for a tag")
    }

    /// After an error the entry only takes up room.
    pub(super) fn forget(&mut self, device: u64) {
        let _ = self.0.remove(&device);
    }
}
