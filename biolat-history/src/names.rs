//! The numbers of names: a device, an op or a status is named once, however many intervals have it. A name is forgotten
//! with the last interval that has it.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use biolat_model::{
    cgroup::Identity,
    device::Device,
    epoch::{nanoseconds, time},
    snapshot::{DeviceView, WorkloadView},
};
use serde::{Deserialize, Serialize};

/// What an entry takes besides its text: in a list and a map, with the heap's own bytes.
const ENTRY_BYTES: usize = 160;

/// A device from when its counters were zero until it disappears.
#[derive(Debug)]
pub(super) struct DeviceLife {
    pub(super) device: Device,
    pub(super) since: SystemTime,
}

/// Who a workload is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WorkloadName {
    pub(super) cgroup: String,
    pub(super) identity: Identity,
    pub(super) since: SystemTime,
}

/// How workloads are named that have no room of their own.
const OTHER_WORKLOADS: &str = "other";

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

    /// Those that `written` does not have as they are.
    fn since<'a>(&'a self, written: &'a Self) -> impl Iterator<Item = (u32, &'a T)> {
        let is_written = |entry: &&Entry<T>| {
            let place = written.place(entry.number);
            place.is_some_and(|place| Arc::ptr_eq(&written.entries[place].name, &entry.name))
        };
        self.entries.iter().filter(move |entry| !is_written(entry)).map(|entry| (entry.number, &*entry.name))
    }

    /// Adds a name with the number that another daemon gave it, or another one in its place.
    fn put(&mut self, number: u32, name: Arc<T>) {
        self.next = self.next.max(number.saturating_add(1));
        match self.entries.binary_search_by_key(&number, |entry| entry.number) {
            Ok(place) => self.entries[place].name = name,
            Err(place) => self.entries.insert(place, Entry { number, used: Duration::ZERO, name }),
        }
    }

    /// Removes those that are not in use.
    fn keep(&mut self, used: &HashMap<u32, Duration>) {
        self.entries.retain_mut(|entry| used.get(&entry.number).map(|last| entry.used = *last).is_some());
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

/// The numbers of names in use, with the end of the latest interval that has each.
#[derive(Default)]
pub(super) struct Used {
    pub(super) texts: HashMap<u32, Duration>,
    pub(super) lives: HashMap<u32, Duration>,
    pub(super) workloads: HashMap<u32, Duration>,
}

/// Names as a file has them.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct NewNames {
    texts: Vec<(u32, String)>,
    /// With the nanoseconds from the epoch to when their counters were zero.
    lives: Vec<(u32, Device, u64)>,
    workloads: Vec<(u32, String, Identity, u64)>,
}

/// How many names there are in a record of a file at most.
const AT_ONCE: usize = 1000;

impl NewNames {
    /// The same in pieces.
    pub(super) fn pieces(mut self) -> impl Iterator<Item = Self> {
        std::iter::from_fn(move || {
            if self.is_empty() {
                return None;
            }
            let (texts, lives, workloads) = (&mut self.texts, &mut self.lives, &mut self.workloads);
            Some(Self {
                texts: texts.drain(..texts.len().min(AT_ONCE)).collect(),
                lives: lives.drain(..lives.len().min(AT_ONCE)).collect(),
                workloads: workloads.drain(..workloads.len().min(AT_ONCE)).collect(),
            })
        })
    }

    const fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.lives.is_empty() && self.workloads.is_empty()
    }
}

/// The names of all intervals.
#[derive(Default)]
pub(super) struct NameTable {
    pub(super) names: Names,
    numbers_of_texts: HashMap<Arc<str>, u32>,
    /// The latest life of each device name.
    numbers_of_lives: HashMap<Arc<str>, u32>,
    /// By cgroup.
    numbers_of_workloads: HashMap<Arc<str>, u32>,
    /// When the snapshot's counters were zero.
    started: Option<SystemTime>,
    /// The time of the interval that is being recorded.
    now: Duration,
    bytes: usize,
}

/// Names by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    texts: NameList<str>,
    lives: NameList<DeviceLife>,
    workloads: NameList<WorkloadName>,
}

impl Names {
    /// Empty if it is unknown, which none is.
    pub(super) fn text(&self, number: u32) -> &str {
        self.texts.get(number).unwrap_or_default()
    }

    pub(super) fn life(&self, number: u32) -> Option<&DeviceLife> {
        self.lives.get(number)
    }

    pub(super) fn workload(&self, number: u32) -> Option<&WorkloadName> {
        self.workloads.get(number)
    }

    /// Those that `written` does not have.
    pub(super) fn since(&self, written: &Self) -> NewNames {
        let lives = self.lives.since(&written.lives);
        let workloads = self.workloads.since(&written.workloads);
        NewNames {
            texts: self.texts.since(&written.texts).map(|(number, text)| (number, text.to_owned())).collect(),
            lives: lives
                .map(|(number, life)| (number, life.device.clone(), nanoseconds(life.since)))
                .collect(),
            workloads: workloads
                .map(|(number, WorkloadName { cgroup, identity, since })| {
                    (number, cgroup.clone(), identity.clone(), nanoseconds(*since))
                })
                .collect(),
        }
    }

    /// Adds those of a file.
    pub(super) fn add(&mut self, new: NewNames) {
        for (number, text) in new.texts {
            self.texts.put(number, text.into());
        }
        for (number, device, since) in new.lives {
            self.lives.put(number, Arc::new(DeviceLife { device, since: time(since) }));
        }
        for (number, cgroup, identity, since) in new.workloads {
            self.workloads.put(number, Arc::new(WorkloadName { cgroup, identity, since: time(since) }));
        }
    }
}

impl NameTable {
    /// The names that are asked for from now on are those of an interval that ends at this time.
    pub(super) fn begin(&mut self, now: Duration, started: SystemTime) {
        (self.now, self.started) = (now, Some(started));
    }

    /// The number of an op, a status, a reason, or the name of a device or cgroup.
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
    pub(super) fn known_life(&mut self, view: &DeviceView) -> Option<u32> {
        let number = *self.numbers_of_lives.get(view.device.name.as_str())?;
        self.names.life(number).filter(|life| life.since == view.since)?;
        // Also while it has no I/O: its counters are compared with the totals under this number.
        self.names.lives.set_used(number, self.now);
        Some(number)
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

    /// The number of a workload, by its cgroup.
    pub(super) fn workload(&mut self, view: &WorkloadView) -> u32 {
        self.workload_of(&view.cgroup, &view.identity, view.since)
    }

    /// The number of all workloads that are not known.
    pub(super) fn other_workloads(&mut self) -> u32 {
        let known = self.numbers_of_workloads.get(OTHER_WORKLOADS);
        let since = known.and_then(|number| self.names.workload(*number)).map(|name| name.since);
        let since = since.or(self.started).unwrap_or(SystemTime::UNIX_EPOCH);
        self.workload_of(OTHER_WORKLOADS, &Identity::default(), since)
    }

    fn workload_of(&mut self, cgroup: &str, identity: &Identity, since: SystemTime) -> u32 {
        let workloads = &mut self.names.workloads;
        let name = || Arc::new(WorkloadName { cgroup: cgroup.to_owned(), identity: identity.clone(), since });
        let number = match self.numbers_of_workloads.get(cgroup) {
            Some(&number) => {
                let entry = workloads.place(number).map(|place| &mut workloads.entries[place]);
                if let Some(entry) =
                    entry.filter(|entry| entry.name.identity != *identity || entry.name.since != since)
                {
                    self.bytes = self.bytes + workload_bytes(cgroup, identity)
                        - workload_bytes(cgroup, &entry.name.identity);
                    entry.name = name();
                }
                number
            }
            None => {
                self.bytes += workload_bytes(cgroup, identity);
                let number = workloads.add(name());
                self.numbers_of_workloads.insert(cgroup.into(), number);
                number
            }
        };
        workloads.set_used(number, self.now);
        number
    }

    /// Takes over those names of another daemon that are in use.
    pub(super) fn restore(&mut self, names: Names, used: &Used) {
        self.names = names;
        let Names { texts, lives, workloads } = &mut self.names;
        texts.keep(&used.texts);
        for entry in &texts.entries {
            self.bytes += ENTRY_BYTES + entry.name.len();
            self.numbers_of_texts.insert(Arc::clone(&entry.name), entry.number);
        }
        lives.keep(&used.lives);
        for entry in &lives.entries {
            self.bytes += life_bytes(&entry.name.device);
            self.numbers_of_lives.insert(entry.name.device.name.as_str().into(), entry.number);
        }
        workloads.keep(&used.workloads);
        for Entry { number, name, .. } in &workloads.entries {
            self.bytes += workload_bytes(&name.cgroup, &name.identity);
            self.numbers_of_workloads.insert(name.cgroup.as_str().into(), *number);
        }
    }

    /// Forgets the names that were used last before the oldest interval, which begins at this time, or for workloads before the
    /// oldest one with sizes and workloads.
    pub(super) fn forget_before(&mut self, oldest: Duration, broken_down: Duration) {
        let Self { names, numbers_of_texts, numbers_of_lives, numbers_of_workloads, bytes, .. } = self;
        let Names { texts, lives, workloads } = names;
        texts.forget(oldest, |number, text| {
            *bytes -= ENTRY_BYTES + text.len();
            forget_number(numbers_of_texts, text, number);
        });
        lives.forget(oldest, |number, life| {
            *bytes -= life_bytes(&life.device);
            forget_number(numbers_of_lives, &life.device.name, number);
        });
        workloads.forget(broken_down, |number, workload| {
            *bytes -= workload_bytes(&workload.cgroup, &workload.identity);
            forget_number(numbers_of_workloads, &workload.cgroup, number);
        });
    }

    /// Memory of all names.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Unless the name has another number by now.
fn forget_number(numbers: &mut HashMap<Arc<str>, u32>, name: &str, number: u32) {
    if numbers.get(name) == Some(&number) {
        numbers.remove(name);
    }
}

fn life_bytes(device: &Device) -> usize {
    let Device { name, number, model, serial, wwid, firmware, transport, scheduler, holders, stack, .. } =
        device;
    let texts = [name, number, model, serial, wwid, firmware, transport, scheduler];
    let texts = texts.into_iter().chain(holders).map(|text| text.len() + 40).sum::<usize>();
    size_of::<Device>() + 2 * ENTRY_BYTES + texts + size_of_val(&**stack)
}

fn workload_bytes(cgroup: &str, identity: &Identity) -> usize {
    let Identity { kind: _, unit, pod_uid, qos, container_id, container, namespace, pod } = identity;
    let texts = [unit, pod_uid, qos, container_id, container, namespace, pod];
    let texts = texts.into_iter().map(|text| text.len() + 40).sum::<usize>();
    size_of::<WorkloadName>() + ENTRY_BYTES + 2 * cgroup.len() + texts
}
