//! Events that the probe sends to the daemon through a ring buffer.

use core::mem::{align_of, size_of};

use crate::series::Key;

/// Size of the ring buffer in bytes; the loader rounds it up to whole pages. While it is full, events are dropped.
pub const RING_BYTES: usize = 4096;

/// Maximum number of events in the ring buffer at a time. Each has a header of 8 bytes.
pub const MAX_EVENTS: usize = RING_BYTES / (8 + size_of::<Event>());

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// No slot was free for a new series, so its completion was lost.
    NoRoom = 1,
}

/// An event about a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Event {
    kind: u32,
    padding: u32,
    key: Key,
}

const _: () = {
    assert!(size_of::<Event>() == 16);
    // The ring buffer aligns records to 8 bytes.
    assert!(align_of::<Event>() == 8);
};

impl Event {
    /// Creates an event about the series with this key.
    #[inline(always)]
    #[must_use]
    pub const fn new(kind: EventKind, key: Key) -> Self {
        Self { kind: kind as u32, padding: 0, key }
    }

    /// Decodes an event from the ring buffer. `None` if its size is wrong.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let &[k0, k1, k2, k3, p0, p1, p2, p3, ref key @ ..] =
            bytes.first_chunk::<16>().filter(|_| bytes.len() == 16)?;
        Some(Self {
            kind: u32::from_ne_bytes([k0, k1, k2, k3]),
            padding: u32::from_ne_bytes([p0, p1, p2, p3]),
            key: Key::from_bits(u64::from_ne_bytes(*key)),
        })
    }

    /// The kind of the event. `None` if it is unknown.
    #[must_use]
    pub const fn kind(self) -> Option<EventKind> {
        const NO_ROOM: u32 = EventKind::NoRoom as u32;
        match self.kind {
            NO_ROOM => Some(EventKind::NoRoom),
            _ => None,
        }
    }

    /// The series.
    #[must_use]
    pub const fn key(self) -> Key {
        self.key
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, EventKind};
    use crate::series::Key;

    #[test]
    fn rejects_wrong_sizes_and_kinds() {
        assert_eq!(Event::from_bytes(&[1; 15]), None);
        assert_eq!(Event::from_bytes(&[1; 17]), None);
        assert_eq!(Event::from_bytes(&[0; 16]).unwrap().kind(), None);
        let mut bytes = [0; 16];
        bytes[0] = 1;
        bytes[8..].copy_from_slice(&Key::new(45, 1).bits().to_ne_bytes());
        let event = Event::from_bytes(&bytes).unwrap();
        assert_eq!(
            (event, event.kind()),
            (Event::new(EventKind::NoRoom, Key::new(45, 1)), Some(EventKind::NoRoom))
        );
        assert_eq!(event.key(), Key::new(45, 1));
    }
}
