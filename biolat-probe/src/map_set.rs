//! The probe's maps by name, either from an object that was just loaded or from file descriptors that were passed.

use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use aya::{
    Ebpf,
    maps::{Map, MapData},
};

/// Maps with their names.
pub(super) type NamedMaps = Vec<(String, MapData)>;

/// Maps that can be taken by name.
pub(super) enum MapSet<'a> {
    /// From a loaded object. If a list is given, a duplicate of each map taken is appended to it.
    Loaded(&'a mut Ebpf, Option<&'a mut Vec<OwnedFd>>),
    Passed(NamedMaps),
}

impl MapSet<'_> {
    pub(super) fn take(&mut self, name: &str) -> Result<Map> {
        let map = match self {
            Self::Loaded(object, duplicates) => {
                let map = object.take_map(name);
                if let (Some(data), Some(duplicates)) = (map.as_ref().and_then(data), duplicates) {
                    duplicates.push(data.fd().as_fd().try_clone_to_owned()?);
                }
                map
            }
            Self::Passed(maps) => {
                let place = maps.iter().position(|(found, _)| found == name);
                place.map(|place| Map::from_map_data(maps.swap_remove(place).1)).transpose()?
            }
        };
        map.with_context(|| format!("the probe has no map {name}"))
    }
}

/// Returns the data of a map, for the map types that the probe uses.
fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::ArrayOfMaps(data)
        | Map::HashMap(data)
        | Map::PerCpuArray(data)
        | Map::Queue(data)
        | Map::RingBuf(data) => Some(data),
        _ => None,
    }
}
