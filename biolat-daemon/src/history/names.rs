//! The numbers of names: a device, an op or a status is named once, however many intervals have it. A name is forgotten
//! with the last interval that has it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{device::Device, snapshot::DeviceView};

/// What an entry takes besides its text: in two maps, with the heap's own bytes.
const ENTRY_BYTES: usize = 160;

/// A device from when its counters were zero until it disappears.
#[derive(Debug)]
pub(super) struct DeviceLife {
    pub(super) device: Device,
    pub(super) since: SystemTime,
}

/// The names of all intervals.
#[derive(Default)]
pub(super) struct NameTable {
    pub(super) names: Names,
    /// When each name was used last.
    texts_used: BTreeMap<u32, Duration>,
    lives_used: BTreeMap<u32, Duration>,
    numbers_of_texts: HashMap<Arc<str>, u32>,
    /// The latest life of each device name.
    numbers_of_lives: HashMap<String, u32>,
    next_text: u32,
    next_life: u32,
    /// The time of the interval that is being recorded.
    now: Duration,
    bytes: usize,
}

/// Names by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    fixed: Vec<&'static str>,
    texts: BTreeMap<u32, Arc<str>>,
    lives: BTreeMap<u32, Arc<DeviceLife>>,
}

impl Names {
    /// Empty if it is unknown, which none is.
    pub(super) fn text(&self, number: u32) -> &str {
        self.texts.get(&number).map_or("", |text| text)
    }

    pub(super) fn fixed(&self, number: u32) -> &'static str {
        self.fixed.get(number as usize).copied().unwrap_or_default()
    }

    pub(super) fn life(&self, number: u32) -> Option<&DeviceLife> {
        self.lives.get(&number).map(|life| &**life)
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
            let (number, text): (_, Arc<str>) = (self.next_text, text.into());
            self.next_text += 1;
            self.bytes += ENTRY_BYTES + text.len();
            self.numbers_of_texts.insert(Arc::clone(&text), number);
            self.names.texts.insert(number, text);
            number
        });
        self.texts_used.insert(number, self.now);
        number
    }

    /// The number of a device's present life, if it has one.
    pub(super) fn known_life(&self, view: &DeviceView) -> Option<u32> {
        let number = *self.numbers_of_lives.get(view.device.name.as_str())?;
        self.names.life(number).filter(|life| life.since == view.since).map(|_| number)
    }

    /// The number of a device's present life. A new one is higher than all before.
    pub(super) fn life(&mut self, view: &DeviceView) -> u32 {
        let device = &view.device;
        let number = match self.known_life(view) {
            Some(number) => {
                let former = self.names.life(number).filter(|life| life.device != *device);
                if let Some(bytes) = former.map(|former| life_bytes(&former.device)) {
                    self.bytes -= bytes;
                    self.describe(number, view);
                }
                number
            }
            None => {
                let number = self.next_life;
                self.next_life += 1;
                self.numbers_of_lives.insert(device.name.clone(), number);
                self.describe(number, view);
                number
            }
        };
        self.lives_used.insert(number, self.now);
        number
    }

    fn describe(&mut self, number: u32, view: &DeviceView) {
        let life = DeviceLife { device: view.device.clone(), since: view.since };
        self.bytes += life_bytes(&life.device);
        self.names.lives.insert(number, Arc::new(life));
    }

    /// Forgets the names that were used last before the oldest interval, which begins at this time.
    pub(super) fn forget_before(&mut self, oldest: Duration) {
        let (names, bytes) = (&mut self.names, &mut self.bytes);
        self.texts_used.retain(|number, used| {
            let is_used = *used > oldest;
            if !is_used && let Some(text) = names.texts.remove(number) {
                *bytes -= ENTRY_BYTES + text.len();
                self.numbers_of_texts.remove(&text);
            }
            is_used
        });
        self.lives_used.retain(|number, used| {
            let is_used = *used > oldest;
            if !is_used && let Some(life) = names.lives.remove(number) {
                *bytes -= life_bytes(&life.device);
                if self.numbers_of_lives.get(&life.device.name) == Some(number) {
                    self.numbers_of_lives.remove(&life.device.name);
                }
            }
            is_used
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
