//! The probe's events, read from their ring buffer.

use std::collections::BTreeSet;

use anyhow::Result;
use aya::maps::{MapData, RingBuf};
use biolat_common::{
    event::{Event, EventKind, MAX_EVENTS},
    series::Key,
};

use super::map_set::MapSet;

/// The ring buffer.
pub(super) struct Events(RingBuf<MapData>);

impl Events {
    pub(super) fn from_maps(maps: &mut MapSet<'_>) -> Result<Self> {
        Ok(Self(maps.take("EVENTS")?.try_into()?))
    }

    /// The series without a slot, from the events since the last call. Reads a limited number of events, so it returns even if
    /// the probe keeps sending.
    pub(super) fn series_without_room(&mut self) -> BTreeSet<Key> {
        let mut events = Vec::new();
        while events.len() < MAX_EVENTS {
            let Some(bytes) = self.0.next() else { break };
            events.push(Event::from_bytes(&bytes));
        }
        without_room(events.into_iter().flatten())
    }
}

fn without_room(events: impl Iterator<Item = Event>) -> BTreeSet<Key> {
    events
        .filter(|event| match event.kind() {
            Some(EventKind::NoRoom) => true,
            None => false,
        })
        .map(Event::key)
        .collect()
}

#[cfg(test)]
mod tests {
    use biolat_common::{
        event::{Event, EventKind},
        series::Key,
    };

    use super::without_room;

    #[test]
    fn reports_each_series_once() {
        let events = [(45, 1), (44, 0), (45, 1)]
            .map(|(device, op)| Event::new(EventKind::NoRoom, Key::new(device, op)));
        let unknown = Event::from_bytes(&[0; 16]);
        let keys: Vec<_> = without_room(events.into_iter().chain(unknown)).into_iter().collect();
        assert_eq!(keys, [Key::new(44, 0), Key::new(45, 1)]);
    }
}
