//! Drives the store at random with a fake kernel whose system calls fail at random. No slot is lost, and every completion is
//! counted exactly once and for the right series, even if the daemon is killed during such a call and the next one continues.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Result, bail};
use biolat_common::{
    series::Key,
    size::Counters,
    slot::{CHUNK_SLOTS, Cell, table_cell},
};
use biolat_probe::{SeriesMaps, SlotReading};
use proptest::{collection::vec, prelude::*, sample::select};
use prost::Message as _;

use super::{
    super::{reference::Reference, state::record::State},
    SeriesStore,
};

/// Devices whose series share cells of the table: 1 and 257 with the same op; the last op of 1 with the first of 2, and vice
/// versa.
const DEVICES: [u64; 3] = [1, 257, 2];
const OPS: [u32; 3] = [0, 1, 24];
const MAX_SLOTS: usize = 16;

/// The maps and the probe.
#[derive(Default)]
struct FakeKernel {
    free: VecDeque<u32>,
    index: BTreeMap<Key, u32>,
    table: BTreeMap<u32, Cell>,
    counters: Vec<Counters>,
    /// Runs of the probe in progress, and the number of runs begun so far.
    runs: Vec<Run>,
    began: u64,
    /// Slots that runs have popped from the queue and will insert into the index.
    creating: BTreeSet<u32>,
    /// Series created by the probe, which the store may not know about yet.
    made_by_probe: BTreeSet<Key>,
    /// Completions of each series since it was inserted into the index.
    expected: BTreeMap<Key, u64>,
    /// Whether each upcoming system call fails. Once it is empty, all succeed.
    fails: VecDeque<bool>,
}

/// A run of the probe, which writes to its slot at the end.
struct Run {
    key: Key,
    slot: u32,
    /// Steps left until the end.
    left: u32,
    number: u64,
}

impl FakeKernel {
    fn call(&mut self) -> Result<()> {
        if self.fails.pop_front().unwrap_or(false) {
            bail!("out of memory");
        }
        Ok(())
    }

    /// Does what the probe does on a completion, up to getting a slot. Creates the series if there is room.
    fn begin_run(&mut self, key: Key, steps: u32) {
        let cell = self.table.get(&table_cell(key)).copied().unwrap_or(Cell::EMPTY);
        if cell.is_of(key) {
            assert_eq!(self.index.get(&key), Some(&cell.slot()), "the table holds a series that has ended");
        }
        let slot = self.index.get(&key).copied().or_else(|| {
            let slot = self.free.pop_front()?;
            if steps.is_multiple_of(2) {
                self.create(key, slot);
            } else {
                self.creating.insert(slot);
            }
            Some(slot)
        });
        self.began += 1;
        self.runs.extend(slot.map(|slot| Run { key, slot, left: steps, number: self.began }));
    }

    fn create(&mut self, key: Key, slot: u32) {
        self.index.insert(key, slot);
        self.made_by_probe.insert(key);
        self.expected.insert(key, 0);
    }

    fn step(&mut self) {
        self.runs.iter_mut().for_each(|run| run.left -= 1);
        for Run { key, mut slot, .. } in self.runs.extract_if(.., |run| run.left == 0).collect::<Vec<_>>() {
            if self.creating.remove(&slot) {
                match self.index.get(&key) {
                    None => self.create(key, slot),
                    Some(&used) => {
                        self.free.push_back(slot);
                        slot = used;
                    }
                }
            }
            // If the series has ended in the meantime, the completion does not count toward any series.
            self.counters[slot as usize].series.cells[7] =
                self.counters[slot as usize].series.cells[7].map(|count| count + 1);
            if self.index.get(&key) == Some(&slot) {
                *self.expected.get_mut(&key).unwrap() += 1;
            }
        }
    }

    fn is_in_progress(&self, until: u64) -> bool {
        self.runs.iter().any(|run| run.number <= until)
    }
}

impl SeriesMaps for FakeKernel {
    fn add_chunk(&mut self) -> Result<Option<u32>> {
        let first = self.counters.len();
        if first == MAX_SLOTS {
            return Ok(None);
        }
        self.call()?;
        self.counters.resize(first + CHUNK_SLOTS as usize, Counters::ZERO);
        Ok(Some(first as u32))
    }

    fn index(&mut self) -> Result<Vec<(Key, u32)>> {
        self.call()?;
        Ok(self.index.iter().map(|(&key, &slot)| (key, slot)).collect())
    }

    fn pop_free(&mut self) -> Result<Option<u32>> {
        self.call()?;
        Ok(self.free.pop_front())
    }

    fn push_free(&mut self, slot: u32) -> Result<()> {
        self.call()?;
        assert!(!self.free.contains(&slot), "slot {slot} is in the queue twice");
        assert!(!self.index.values().any(|used| *used == slot), "slot {slot} is in use");
        assert!(!self.runs.iter().any(|run| run.slot == slot), "a run of the probe writes to slot {slot}");
        self.free.push_back(slot);
        Ok(())
    }

    fn insert(&mut self, key: Key, slot: u32) -> Result<bool> {
        self.call()?;
        let is_new = !self.index.contains_key(&key);
        if is_new {
            self.index.insert(key, slot);
            self.expected.insert(key, 0);
        }
        Ok(is_new)
    }

    fn remove(&mut self, key: Key) -> Result<()> {
        self.call()?;
        self.index.remove(&key);
        self.made_by_probe.remove(&key);
        self.expected.remove(&key);
        Ok(())
    }

    fn cell(&mut self, index: u32) -> Result<Cell> {
        self.call()?;
        Ok(self.table.get(&index).copied().unwrap_or(Cell::EMPTY))
    }

    fn set_cell(&mut self, index: u32, cell: Cell) -> Result<()> {
        self.call()?;
        self.table.insert(index, cell);
        Ok(())
    }

    fn read(&mut self, slot: u32) -> Result<SlotReading> {
        self.call()?;
        Ok(SlotReading { sum: self.counters[slot as usize], completions: Vec::new(), has_sizes: false })
    }

    /// Identifies a grace period by the last run that it waits for.
    fn request_grace_period(&mut self) -> u64 {
        self.began
    }

    fn has_ended(&mut self, grace_period: u64) -> bool {
        !self.is_in_progress(grace_period)
    }

    fn wait_for_runs(&mut self) {
        while self.is_in_progress(self.began) {
            self.step();
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    /// An I/O completes, and the run of the probe ends this many steps later. A preempted run can take seconds.
    Complete(Key, u32),
    Step,
    Collect,
    Create(Key),
    End(u64),
    Grow,
}

fn key() -> impl Strategy<Value = Key> {
    (select(&DEVICES[..]), select(&OPS[..])).prop_map(|(device, op)| Key::new(device, op))
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => key().prop_map(|key| Action::Complete(key, 2)),
        1 => (key(), 1..30_u32).prop_map(|(key, steps)| Action::Complete(key, steps)),
        3 => Just(Action::Step),
        2 => Just(Action::Collect),
        1 => key().prop_map(Action::Create),
        1 => select(&DEVICES[..]).prop_map(Action::End),
        1 => Just(Action::Grow),
    ]
}

struct Model {
    kernel: FakeKernel,
    store: SeriesStore,
    state: State,
    /// Completions of ended series, as reported by the store.
    ended: u64,
}

impl Model {
    /// Performs an action. On an error, the real collector would log it and continue with the next collection.
    fn act(&mut self, action: &Action) -> Result<()> {
        let Self { kernel, store, state, ended } = self;
        let mut commit = |store: &mut SeriesStore| {
            let mut bytes =
                State { quarantined: store.quarantined_slots(), ..State::default() }.encode_to_vec();
            store.append_records(&mut bytes);
            *state = State::decode(&*bytes).unwrap();
        };
        match action {
            Action::Complete(key, steps) => kernel.begin_run(*key, *steps),
            Action::Step => {
                kernel.step();
                store.end_quarantine(kernel)?;
                if store.has_uncommitted() {
                    commit(store);
                }
                store.release_committed(kernel)?;
            }
            Action::Collect => {
                let index: Vec<_> = kernel.index.iter().map(|(&key, &slot)| (key, slot)).collect();
                store.read(kernel, &index, &mut Reference::default())?;
                commit(store);
            }
            Action::Create(key) => drop(store.create(kernel, *key)?),
            Action::End(device) => {
                store.end(kernel, *device, |completions| *ended += completions)?;
                let mut left = kernel.index.keys().filter(|key| key.device() == *device);
                assert!(left.all(|key| kernel.made_by_probe.contains(key)), "a series of {device} is left");
            }
            Action::Grow => {
                store.grow(kernel)?;
                commit(store);
                store.release_committed(kernel)?;
            }
        }
        Ok(())
    }

    /// Kills the daemon and its successors until one starts without a failed system call.
    fn restart(&mut self) {
        let Self { kernel, store, state, .. } = self;
        let all = kernel.counters.len() as u32;
        let mut next = || SeriesStore::continue_from(kernel, all, state);
        *store = (0..1000).find_map(|_| next().ok()).unwrap().0;
    }

    fn check(&self) {
        let Self { kernel, store, .. } = self;
        for (key, tracked) in &store.series {
            assert_eq!(kernel.index.get(key), Some(&tracked.slot), "a series that is not in the index");
            assert!(tracked.totals.count() <= kernel.expected[key], "{key:?} has too many completions");
        }
        let mut slots = BTreeSet::new();
        let quarantined = store.quarantined.iter().map(|quarantined| &quarantined.slot);
        let is_quarantined = |slot| store.quarantined.iter().any(|quarantined| quarantined.slot == slot);
        for &slot in kernel
            .free
            .iter()
            .chain(kernel.index.values())
            .chain(&store.released)
            .chain(&store.uncommitted)
            .chain(kernel.creating.iter().filter(|slot| !is_quarantined(**slot)))
            .chain(quarantined)
        {
            assert!(slots.insert(slot), "slot {slot} has two uses");
        }
        assert_eq!(slots.len(), kernel.counters.len(), "a slot is lost");
    }

    /// Checks that everything is in order once the kernel has stopped failing for a while.
    fn settle(&mut self) {
        self.kernel.fails.clear();
        for action in [Action::Step; 64].iter().chain(&[Action::Collect, Action::Collect]) {
            self.act(action).unwrap();
        }
        let Self { kernel, store, .. } = self;
        let counts: BTreeMap<_, _> = store.iter().map(|(key, totals)| (key, totals.count())).collect();
        assert_eq!(counts, kernel.expected);
        assert_eq!((store.released.len(), store.uncommitted.len(), store.quarantined.len()), (0, 0, 0));
        for (key, slot) in &kernel.index {
            let cell = kernel.table[&table_cell(*key)];
            assert!(
                cell.is_of(*key) && cell.slot() == *slot || !cell.yields_to(*key),
                "{key:?} is in no cell"
            );
        }
    }
}

impl Model {
    fn new(fails: Vec<bool>) -> Self {
        Self {
            kernel: FakeKernel { fails: fails.into(), ..FakeKernel::default() },
            store: SeriesStore::default(),
            state: State::default(),
            ended: 0,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn killed_daemon_loses_nothing(
        actions in vec(action(), 1..150),
        kills in vec(proptest::bool::weighted(0.05), 0..600),
    ) {
        let mut model = Model::new(kills);
        for action in &actions {
            if model.act(action).is_err() {
                model.restart();
            }
            model.check();
        }
        model.restart();
        model.check();
        model.settle();
    }

    /// The old probe's completions are counted until it is at rest. The new probe's are counted from its first one, which comes
    /// earlier.
    #[test]
    fn replaced_probe_loses_nothing(
        before in vec(action(), 1..100),
        meanwhile in vec(key(), 0..10),
        after in vec(action(), 1..100),
    ) {
        let mut model = Model::new(Vec::new());
        for action in &before {
            model.act(action).unwrap();
        }
        model.settle();
        let (mut next, mut slots) = (FakeKernel::default(), SeriesStore::default());
        slots.grow(&mut next).unwrap();
        slots.release_committed(&mut next).unwrap();
        meanwhile.iter().for_each(|key| next.begin_run(*key, 2));
        next.wait_for_runs();
        model.store.move_to(&mut next).unwrap();
        for (key, count) in std::mem::take(&mut model.kernel.expected) {
            *next.expected.entry(key).or_default() += count;
        }
        model.kernel = next;
        model.check();
        for action in &after {
            model.act(action).unwrap();
            model.check();
        }
        model.settle();
    }

    #[test]
    fn failed_system_calls_lose_nothing(
        actions in vec(action(), 1..150),
        fails in vec(proptest::bool::weighted(0.2), 0..400),
    ) {
        let mut model = Model::new(fails);
        for action in &actions {
            let _ = model.act(action);
            model.check();
        }
        model.settle();
        // A series whose counts were read reports all of them when it ends.
        let counted: u64 = model.store.iter().map(|(_, totals)| totals.count()).sum();
        let before = model.ended;
        for device in DEVICES {
            model.act(&Action::End(device)).unwrap();
        }
        prop_assert_eq!(model.ended - before, counted);
        model.settle();
        prop_assert_eq!(model.kernel.free.len(), model.kernel.counters.len());
    }
}

/// A device disappears while a run of the probe for it is preempted for more than a second, and other series take every free
/// slot.
#[test]
fn preempted_run_never_counts_for_another_series() {
    const STEPS: u32 = 25;
    let mut model = Model::new(Vec::new());
    let gone = Key::new(DEVICES[0], 0);
    for action in
        [Action::Grow, Action::Create(gone), Action::Complete(gone, STEPS), Action::End(gone.device())]
    {
        model.act(&action).unwrap();
    }
    for _ in 0..STEPS {
        for key in DEVICES[1..].iter().flat_map(|&device| OPS.map(|op| Key::new(device, op))) {
            model.act(&Action::Complete(key, 2)).unwrap();
        }
        model.act(&Action::Step).unwrap();
        model.check();
    }
    assert_eq!((model.kernel.free.len(), model.kernel.index.len()), (1, CHUNK_SLOTS as usize - 1));
    model.settle();
}

/// The daemon is killed while a run of the probe has taken a slot that is not in use yet.
#[test]
fn next_daemon_keeps_slot_of_preempted_run() {
    let mut model = Model::new(Vec::new());
    for action in [Action::Grow, Action::Collect, Action::Complete(Key::new(DEVICES[0], 0), 25)] {
        model.act(&action).unwrap();
    }
    model.restart();
    model.check();
    assert_eq!(model.store.quarantined(), 0);
    model.settle();
}

/// A daemon that lacks one of the maps would read the wrong slots.
#[test]
fn rejects_series_in_unknown_slot() {
    let mut model = Model::new(Vec::new());
    for action in [Action::Grow, Action::Create(Key::new(1, 0)), Action::Collect] {
        model.act(&action).unwrap();
    }
    let mut next = |all| SeriesStore::continue_from(&mut model.kernel, all, &model.state);
    assert!(next(CHUNK_SLOTS).is_ok() && next(0).is_err());
}
