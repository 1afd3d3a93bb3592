//! Numbers for names. A device, an op or a status is stored once, regardless of how many intervals refer to it, and is forgotten
//! with the last of them.

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

/// Memory of an entry in addition to its text, in a list and a map, including allocator overhead.
const ENTRY_BYTES: usize = 160;

/// A device from the time its counters were zero until it disappears.
#[derive(Debug)]
pub(super) struct DeviceIncarnation {
    pub(super) device: Device,
    pub(super) since: SystemTime,
}

/// The identity of a workload.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WorkloadName {
    pub(super) cgroup: String,
    pub(super) identity: Identity,
    pub(super) since: SystemTime,
}

/// Name of the workload that stands for all workloads without a slot of their own.
const OTHER_WORKLOADS: &str = "other";

/// Names by number, in ascending order. A new name gets the next number.
#[derive(Debug)]
struct NameList<T: ?Sized> {
    entries: Vec<Entry<T>>,
    next: u32,
}

#[derive(Debug)]
struct Entry<T: ?Sized> {
    number: u32,
    /// End of the latest interval that uses it.
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

    /// Names that `written` lacks, or has with other contents.
    fn since<'a>(&'a self, written: &'a Self) -> impl Iterator<Item = (u32, &'a T)> {
        let is_written = |entry: &&Entry<T>| {
            let place = written.place(entry.number);
            place.is_some_and(|place| Arc::ptr_eq(&written.entries[place].name, &entry.name))
        };
        self.entries.iter().filter(move |entry| !is_written(entry)).map(|entry| (entry.number, &*entry.name))
    }

    /// Adds a name under the number that another daemon gave it, or replaces the name under that number.
    fn put(&mut self, number: u32, name: Arc<T>) {
        self.next = self.next.max(number.saturating_add(1));
        match self.entries.binary_search_by_key(&number, |entry| entry.number) {
            Ok(place) => self.entries[place].name = name,
            Err(place) => self.entries.insert(place, Entry { number, used: Duration::ZERO, name }),
        }
    }

    /// Removes names that are not in use.
    fn keep(&mut self, used: &HashMap<u32, Duration>) {
        self.entries.retain_mut(|entry| used.get(&entry.number).map(|last| entry.used = *last).is_some());
    }

    fn set_used(&mut self, number: u32, now: Duration) {
        if let Some(place) = self.place(number) {
            self.entries[place].used = now;
        }
    }

    /// Removes names whose last use was before the oldest interval began.
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

/// The numbers of names in use, with the end of the latest interval that uses each.
#[derive(Default)]
pub(super) struct Used {
    pub(super) texts: HashMap<u32, Duration>,
    pub(super) incarnations: HashMap<u32, Duration>,
    pub(super) workloads: HashMap<u32, Duration>,
}

/// Names as a file stores them.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct NewNames {
    texts: Vec<(u32, String)>,
    /// With the time when the counters were zero, in nanoseconds since the epoch.
    #[serde(rename = "lives")]
    incarnations: Vec<(u32, Device, u64)>,
    workloads: Vec<(u32, String, Identity, u64)>,
}

/// Maximum number of names of each kind in a record of a file.
const MAX_NAMES_PER_RECORD: usize = 1000;

impl NewNames {
    /// Splits the names into records.
    pub(super) fn pieces(mut self) -> impl Iterator<Item = Self> {
        std::iter::from_fn(move || {
            if self.is_empty() {
                return None;
            }
            let (texts, incarnations, workloads) =
                (&mut self.texts, &mut self.incarnations, &mut self.workloads);
            Some(Self {
                texts: texts.drain(..texts.len().min(MAX_NAMES_PER_RECORD)).collect(),
                incarnations: incarnations.drain(..incarnations.len().min(MAX_NAMES_PER_RECORD)).collect(),
                workloads: workloads.drain(..workloads.len().min(MAX_NAMES_PER_RECORD)).collect(),
            })
        })
    }

    const fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.incarnations.is_empty() && self.workloads.is_empty()
    }
}

/// The names of all intervals, and their numbers.
#[derive(Default)]
pub(super) struct NameTable {
    pub(super) names: Names,
    text_numbers: HashMap<Arc<str>, u32>,
    /// The latest incarnation of each device name.
    incarnation_numbers: HashMap<Arc<str>, u32>,
    /// By cgroup.
    workload_numbers: HashMap<Arc<str>, u32>,
    /// When the snapshot's counters were zero.
    started: Option<SystemTime>,
    /// End of the interval that is being recorded.
    now: Duration,
    bytes: usize,
}

/// Names by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    texts: NameList<str>,
    incarnations: NameList<DeviceIncarnation>,
    workloads: NameList<WorkloadName>,
}

impl Names {
    /// Empty if the number is unknown, which only happens in a corrupt file.
    pub(super) fn text(&self, number: u32) -> &str {
        self.texts.get(number).unwrap_or_default()
    }

    pub(super) fn incarnation(&self, number: u32) -> Option<&DeviceIncarnation> {
        self.incarnations.get(number)
    }

    pub(super) fn workload(&self, number: u32) -> Option<&WorkloadName> {
        self.workloads.get(number)
    }

    /// Names that `written` does not have.
    pub(super) fn since(&self, written: &Self) -> NewNames {
        let incarnations = self.incarnations.since(&written.incarnations);
        let workloads = self.workloads.since(&written.workloads);
        NewNames {
            texts: self.texts.since(&written.texts).map(|(number, text)| (number, text.to_owned())).collect(),
            incarnations: incarnations
                .map(|(number, incarnation)| {
                    (number, incarnation.device.clone(), nanoseconds(incarnation.since))
                })
                .collect(),
            workloads: workloads
                .map(|(number, WorkloadName { cgroup, identity, since })| {
                    (number, cgroup.clone(), identity.clone(), nanoseconds(*since))
                })
                .collect(),
        }
    }

    /// Adds names from a file.
    pub(super) fn add(&mut self, new: NewNames) {
        for (number, text) in new.texts {
            self.texts.put(number, text.into());
        }
        for (number, device, since) in new.incarnations {
            self.incarnations.put(number, Arc::new(DeviceIncarnation { device, since: time(since) }));
        }
        for (number, cgroup, identity, since) in new.workloads {
            self.workloads.put(number, Arc::new(WorkloadName { cgroup, identity, since: time(since) }));
        }
    }
}

impl NameTable {
    /// Begins an interval that ends at `now`: all names requested from here on count as used by it.
    pub(super) fn begin(&mut self, now: Duration, started: SystemTime) {
        (self.now, self.started) = (now, Some(started));
    }

    /// The number of an op, a status, a reason, or the name of a device or cgroup.
    pub(super) fn text(&mut self, text: &str) -> u32 {
        let number = self.text_numbers.get(text).copied().unwrap_or_else(|| {
            let text: Arc<str> = text.into();
            self.bytes += ENTRY_BYTES + text.len();
            let number = self.names.texts.add(Arc::clone(&text));
            self.text_numbers.insert(text, number);
            number
        });
        self.names.texts.set_used(number, self.now);
        number
    }

    /// The number of a device's current incarnation, if it has one.
    pub(super) fn known_incarnation(&mut self, view: &DeviceView) -> Option<u32> {
        let number = *self.incarnation_numbers.get(view.device.name.as_str())?;
        self.names.incarnation(number).filter(|incarnation| incarnation.since == view.since)?;
        // Mark it as used even while it has no I/O: after a restart its counters are compared with the totals under this number.
        self.names.incarnations.set_used(number, self.now);
        Some(number)
    }

    /// The number of a device's current incarnation. A new one gets a higher number than all earlier ones.
    pub(super) fn incarnation(&mut self, view: &DeviceView) -> u32 {
        let DeviceView { device, since, .. } = view;
        let incarnation = || Arc::new(DeviceIncarnation { device: device.clone(), since: *since });
        let incarnations = &mut self.names.incarnations;
        let known =
            self.incarnation_numbers.get(device.name.as_str()).and_then(|number| incarnations.place(*number));
        let known =
            known.map(|place| &mut incarnations.entries[place]).filter(|entry| entry.name.since == *since);
        let number = match known {
            Some(entry) => {
                if entry.name.device != *device {
                    self.bytes =
                        self.bytes + incarnation_bytes(device) - incarnation_bytes(&entry.name.device);
                    entry.name = incarnation();
                }
                entry.number
            }
            None => {
                self.bytes += incarnation_bytes(device);
                let number = incarnations.add(incarnation());
                self.incarnation_numbers.insert(device.name.as_str().into(), number);
                number
            }
        };
        incarnations.set_used(number, self.now);
        number
    }

    /// The number of a workload, by its cgroup.
    pub(super) fn workload(&mut self, view: &WorkloadView) -> u32 {
        self.workload_of(&view.cgroup, &view.identity, view.since)
    }

    /// The number of the workload `other`.
    pub(super) fn other_workloads(&mut self) -> u32 {
        let known = self.workload_numbers.get(OTHER_WORKLOADS);
        let since = known.and_then(|number| self.names.workload(*number)).map(|name| name.since);
        let since = since.or(self.started).unwrap_or(SystemTime::UNIX_EPOCH);
        self.workload_of(OTHER_WORKLOADS, &Identity::default(), since)
    }

    fn workload_of(&mut self, cgroup: &str, identity: &Identity, since: SystemTime) -> u32 {
        let workloads = &mut self.names.workloads;
        let name = || Arc::new(WorkloadName { cgroup: cgroup.to_owned(), identity: identity.clone(), since });
        let number = match self.workload_numbers.get(cgroup) {
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
                self.workload_numbers.insert(cgroup.into(), number);
                number
            }
        };
        workloads.set_used(number, self.now);
        number
    }

    /// Takes over the names of another daemon, dropping unused ones.
    pub(super) fn restore(&mut self, names: Names, used: &Used) {
        self.names = names;
        let Names { texts, incarnations, workloads } = &mut self.names;
        texts.keep(&used.texts);
        for entry in &texts.entries {
            self.bytes += ENTRY_BYTES + entry.name.len();
            self.text_numbers.insert(Arc::clone(&entry.name), entry.number);
        }
        incarnations.keep(&used.incarnations);
        for entry in &incarnations.entries {
            self.bytes += incarnation_bytes(&entry.name.device);
            self.incarnation_numbers.insert(entry.name.device.name.as_str().into(), entry.number);
        }
        workloads.keep(&used.workloads);
        for Entry { number, name, .. } in &workloads.entries {
            self.bytes += workload_bytes(&name.cgroup, &name.identity);
            self.workload_numbers.insert(name.cgroup.as_str().into(), *number);
        }
    }

    /// Forgets names that were last used before `oldest`, the start of the oldest interval, or, for workloads, before
    /// `broken_down`, the start of the oldest interval with sizes and workloads.
    pub(super) fn forget_before(&mut self, oldest: Duration, broken_down: Duration) {
        let Self { names, text_numbers, incarnation_numbers, workload_numbers, bytes, .. } = self;
        let Names { texts, incarnations, workloads } = names;
        texts.forget(oldest, |number, text| {
            *bytes -= ENTRY_BYTES + text.len();
            forget_number(text_numbers, text, number);
        });
        incarnations.forget(oldest, |number, incarnation| {
            *bytes -= incarnation_bytes(&incarnation.device);
            forget_number(incarnation_numbers, &incarnation.device.name, number);
        });
        workloads.forget(broken_down, |number, workload| {
            *bytes -= workload_bytes(&workload.cgroup, &workload.identity);
            forget_number(workload_numbers, &workload.cgroup, number);
        });
    }

    /// Memory of all names.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Removes the number of a name, unless the name has another number by now.
fn forget_number(numbers: &mut HashMap<Arc<str>, u32>, name: &str, number: u32) {
    if numbers.get(name) == Some(&number) {
        numbers.remove(name);
    }
}

fn incarnation_bytes(device: &Device) -> usize {
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
