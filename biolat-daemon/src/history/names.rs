//! The numbers of names: a device, an op or a status is named once, however many intervals have it. A name is forgotten
//! with the last interval that has it.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{device::Device, snapshot::DeviceView};

/// What an entry takes besides its text: in a list and a map, with the heap's own bytes.
const ENTRY_BYTES: usize = 160;

/// A device from when its counters were zero until it disappears.
#[derive(Debug)]
pub(super) struct DeviceLife {
    pub(super) device: Device,
    pub(super) since: SystemTime,
}

/// Names by number, in ascending order. A new one gets the next number.
#[derive(Debug)]
struct NameList<T: ?Sized> {
    entries: Vec<Entry<T>>,
    next: u32,
}

#[derive(Debug)]
struct Entry<T: ?Sized> {
    number: u32,
    /// The end of the latest interval that has it.
    used: Duration,
    name: Arc<T>,
}

impl<T: ?Sized> Default for NameList<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), next: 0 }
    }
}

impl<T: ?Sized> Clone for NameList<T> {
    fn clone(&self) -> Self {
        let copy = |entry: &Entry<T>| Entry { name: Arc::clone(&entry.name), ..*entry };
        Self { entries: self.entries.iter().map(copy).collect(), next: self.next }
    }
}

impl<T: ?Sized> NameList<T> {
    fn place(&self, number: u32) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |entry| entry.number).ok()
    }

    fn get(&self, number: u32) -> Option<&T> {
        self.place(number).map(|place| &*self.entries[place].name)
    }

    fn add(&mut self, name: Arc<T>) -> u32 {
        let number = self.next;
        self.next += 1;
        self.entries.push(Entry { number, used: Duration::ZERO, name });
        number
    }

    fn set_used(&mut self, number: u32, now: Duration) {
        if let Some(place) = self.place(number) {
            self.entries[place].used = now;
        }
    }

    /// Removes those that were used last before the oldest interval began.
    fn forget(&mut self, oldest: Duration, mut forgotten: impl FnMut(u32, &T)) {
        self.entries.retain(|entry| {
            let is_used = entry.used > oldest;
            if !is_used {
                forgotten(entry.number, &entry.name);
            }
            is_used
        });
    }
}

/// The names of all intervals.
#[derive(Default)]
pub(super) struct NameTable {
    pub(super) names: Names,
    numbers_of_texts: HashMap<Arc<str>, u32>,
    /// The latest life of each device name.
    numbers_of_lives: HashMap<Arc<str>, u32>,
    /// The time of the interval that is being recorded.
    now: Duration,
    bytes: usize,
}

/// Names by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    fixed: Vec<&'static str>,
    texts: NameList<str>,
    lives: NameList<DeviceLife>,
}

impl Names {
    /// Empty if it is unknown, which none is.
    pub(super) fn text(&self, number: u32) -> &str {
        self.texts.get(number).unwrap_or_default()
    }

    pub(super) fn fixed(&self, number: u32) -> &'static str {
        self.fixed.get(number as usize).copied().unwrap_or_default()
    }

    pub(super) fn life(&self, number: u32) -> Option<&DeviceLife> {
        self.lives.get(number)
    }
}

impl NameTable {
    /// The names that are asked for from now on are those of an interval that ends at this time.
    pub(super) fn begin(&mut self, now: Duration) {
        self.now = now;
    }

    /// The number of a name that the program knows, of which there are few.
    pub(super) fn fixed(&mut self, name: &'static str) -> u32 {
        let known = self.names.fixed.iter().position(|&known| known == name);
        known.unwrap_or_else(|| {
            self.names.fixed.push(name);
            self.names.fixed.len() - 1
        }) as u32
    }

    /// The number of a name that the host gives.
    pub(super) fn text(&mut self, text: &str) -> u32 {
        let number = self.numbers_of_texts.get(text).copied().unwrap_or_else(|| {
            let text: Arc<str> = text.into();
            self.bytes += ENTRY_BYTES + text.len();
            let number = self.names.texts.add(Arc::clone(&text));
            self.numbers_of_texts.insert(text, number);
            number
        });
        self.names.texts.set_used(number, self.now);
        number
    }

    /// The number of a device's present life, if it has one.
    pub(super) fn known_life(&self, view: &DeviceView) -> Option<u32> {
        let number = *self.numbers_of_lives.get(view.device.name.as_str())?;
        self.names.life(number).filter(|life| life.since == view.since).map(|_| number)
    }

    /// The number of a device's present life. A new one is higher than all before.
    pub(super) fn life(&mut self, view: &DeviceView) -> u32 {
        let DeviceView { device, since, .. } = view;
        let life = || Arc::new(DeviceLife { device: device.clone(), since: *since });
        let lives = &mut self.names.lives;
        let known = self.numbers_of_lives.get(device.name.as_str()).and_then(|number| lives.place(*number));
        let known = known.map(|place| &mut lives.entries[place]).filter(|entry| entry.name.since == *since);
        let number = match known {
            Some(entry) => {
                if entry.name.device != *device {
                    self.bytes = self.bytes + life_bytes(device) - life_bytes(&entry.name.device);
                    entry.name = life();
                }
                entry.number
            }
            None => {
                self.bytes += life_bytes(device);
                let number = lives.add(life());
                self.numbers_of_lives.insert(device.name.as_str().into(), number);
                number
            }
        };
        lives.set_used(number, self.now);
        number
    }

    /// Forgets the names that were used last before the oldest interval, which begins at this time.
    pub(super) fn forget_before(&mut self, oldest: Duration) {
        let Self { names: Names { texts, lives, .. }, numbers_of_texts, numbers_of_lives, bytes, .. } = self;
        texts.forget(oldest, |_, text| {
            *bytes -= ENTRY_BYTES + text.len();
            numbers_of_texts.remove(text);
        });
        lives.forget(oldest, |number, life| {
            *bytes -= life_bytes(&life.device);
            let name = life.device.name.as_str();
            if numbers_of_lives.get(name) == Some(&number) {
                numbers_of_lives.remove(name);
            }
        });
    }

    /// Memory of all names.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

fn life_bytes(device: &Device) -> usize {
    let Device { name, number, model, serial, wwid, firmware, transport, scheduler, holders, stack, .. } =
        device;
    let texts = [name, number, model, serial, wwid, firmware, transport, scheduler];
    let texts = texts.into_iter().chain(holders).map(|text| text.len() + 40).sum::<usize>();
    size_of::<Device>() + 2 * ENTRY_BYTES + texts + size_of_val(&**stack)
}
