//! Chooses the times, drives and effects of events.

use std::time::{Duration, SystemTime};

use biolat_common::size::{BAND_NAMES, place};
use rand::{RngExt as _, seq::IteratorRandom as _};

use super::{
    DriveName, Event, Kind, Node, Random, Scenario,
    drive_model::Op,
    effect::{Change, Effect, Extra, Rate, Slower},
    node::{IDLE_LOAD, seconds_since_epoch},
    noise::between,
    scenario::Recipe,
};

/// A drive: the index of its node, and its index within that node.
type Place = (usize, usize);

/// Maximum number of attempts to place an event before dropping it.
const TRIES: usize = 50;
/// Minimum time between events on the same drive, in seconds.
const PAUSE: f64 = 2.0 * 3600.0;
const MINUTE: f64 = 60.0;

pub(crate) struct Schedule<'a> {
    nodes: &'a mut [Node],
    random: &'a mut Random,
    start: SystemTime,
    length: Duration,
    /// Drives that have an event, with its start and end.
    taken: Vec<(Place, f64, f64)>,
}

/// An event whose drives have not been chosen yet.
struct Draft {
    from: f64,
    to: f64,
    factor: f64,
    share: f64,
}

impl<'a> Schedule<'a> {
    pub(crate) const fn new(
        nodes: &'a mut [Node],
        random: &'a mut Random,
        start: SystemTime,
        length: Duration,
    ) -> Self {
        Self { nodes, random, start, length, taken: Vec::new() }
    }

    /// Places all events, starting with the largest scope, which needs the most room.
    pub(crate) fn place(mut self, scenario: &Scenario) -> Vec<Event> {
        let drives: usize = self.nodes.iter().map(|node| node.drives().len()).sum();
        let mut recipes: Vec<_> = scenario.events.iter().collect();
        recipes.sort_by_key(|recipe| scope(recipe.kind));
        let mut events = Vec::new();
        for recipe in recipes {
            let count = (recipe.per_thousand_drives * drives as f64 / 1000.0).round().max(1.0) as usize;
            for _ in 0..count {
                events.extend((0..TRIES).find_map(|_| self.try_place(recipe)));
            }
        }
        events.sort_by_key(|event| (event.from, event.drives.first().cloned()));
        events
    }

    /// Places an event, or returns `None` if one of the drives has another event.
    fn try_place(&mut self, recipe: &Recipe) -> Option<Event> {
        let draft = self.draft(recipe);
        let places = self.choose(recipe, &draft)?;
        let is_taken = |place: &Place| {
            self.taken
                .iter()
                .any(|(taken, from, to)| taken == place && draft.from < to + PAUSE && from - PAUSE < draft.to)
        };
        if places.is_empty() || places.iter().any(is_taken) {
            return None;
        }
        self.taken.extend(places.iter().map(|&place| (place, draft.from, draft.to)));
        for &place in &places {
            self.inject(recipe, &draft, place);
        }
        if recipe.kind == Kind::Restart {
            let at = self.start + Duration::from_secs_f64(draft.from - seconds_since_epoch(self.start));
            self.nodes[places[0].0].add_restart(at);
        }
        Some(self.event(recipe, &draft, &places))
    }

    fn draft(&mut self, recipe: &Recipe) -> Draft {
        let random = &mut *self.random;
        let start = seconds_since_epoch(self.start);
        let length = self.length.as_secs_f64();
        let [earliest, latest] = recipe.begin;
        // Round to whole minutes, like the steps.
        let begin = earliest + (latest - earliest) * random.random::<f64>();
        let from = start + (length * begin / MINUTE).round() * MINUTE;
        let seconds = (between(recipe.hours, random) * 60.0).round() * MINUTE;
        Draft {
            from,
            to: (from + seconds).min(start + length),
            factor: between(recipe.factor, random),
            share: between(recipe.share, random),
        }
    }

    /// Chooses the drives of an event.
    fn choose(&mut self, recipe: &Recipe, draft: &Draft) -> Option<Vec<Place>> {
        let random = &mut *self.random;
        let node = random.random_range(0..self.nodes.len());
        let of_node = |node: usize| (0..self.nodes[node].drives().len()).map(move |drive| (node, drive));
        let drive = of_node(node).choose(random)?;
        let same_cluster: Vec<_> = (0..self.nodes.len())
            .filter(|&other| self.nodes[other].cluster() == self.nodes[node].cluster())
            .collect();
        Some(match recipe.kind {
            Kind::Constant | Kind::Size | Kind::Rising | Kind::Stalls | Kind::Path | Kind::Wakes => {
                vec![drive]
            }
            Kind::Backplane | Kind::Scrub | Kind::SizeMix | Kind::Restart => of_node(node).collect(),
            Kind::Rebuild => {
                let count = (self.nodes[node].drives().len() / 3).max(1);
                let mut drives: Vec<_> = of_node(node).sample(random, count);
                drives.sort_unstable();
                drives
            }
            Kind::Firmware => {
                let model = self.nodes[drive.0].drives()[drive.1].model().name;
                let has_model =
                    |&(node, drive): &Place| self.nodes[node].drives()[drive].model().name == model;
                let all: Vec<_> = same_cluster.into_iter().flat_map(of_node).filter(has_model).collect();
                let count = (all.len() as f64 * draft.share).ceil() as usize;
                let mut drives: Vec<_> = all.into_iter().sample(random, count);
                drives.sort_unstable();
                drives
            }
            Kind::LoadSpike => match random.random_range(0..3) {
                0 => vec![drive],
                1 => of_node(node).collect(),
                _ => {
                    let service = self.nodes[node].service();
                    let has_service = |&node: &usize| self.nodes[node].service() == service;
                    same_cluster.into_iter().filter(has_service).flat_map(of_node).collect()
                }
            },
        })
    }

    fn inject(&mut self, recipe: &Recipe, draft: &Draft, (node, drive): Place) {
        let &Draft { from, to, factor, share } = draft;
        let slower = |op, above, is_rising| Change::Slower(Slower { factor, op, above, is_rising });
        let extra = |op, bytes, is_sequential, rate| Change::Extra(Extra { op, bytes, is_sequential, rate });
        let drive = self.nodes[node].drive_mut(drive);
        let change = match recipe.kind {
            Kind::Constant | Kind::Backplane => slower(None, 0, false),
            Kind::Size => slower(recipe.op, recipe.above_kib << 10, false),
            Kind::Rising => slower(None, 0, true),
            Kind::Path => Change::Path { share, factor },
            Kind::LoadSpike => Change::Load(factor),
            // Sizes shift up or down.
            Kind::SizeMix => {
                let power = factor.log2() / 2.0;
                Change::Sizes(if self.random.random() { power } else { -power })
            }
            Kind::Rebuild => {
                let op = if self.random.random() { Op::Write } else { Op::Read };
                extra(op, 512 << 10, true, Rate::Utilisation(share))
            }
            Kind::Scrub => extra(Op::Read, 1 << 20, true, Rate::Utilisation(share)),
            // The drive is idle for some time before the event and, apart from these I/Os, during it.
            Kind::Wakes => {
                drive.add_effect(Effect { from: from - PAUSE, to, change: Change::Load(IDLE_LOAD) });
                drive.add_effect(Effect { from, to, change: Change::Stalled(factor) });
                extra(Op::Read, 64 << 10, false, Rate::Ios(share))
            }
            Kind::Firmware => {
                drive.add_firmware(from, to);
                slower(None, 0, false)
            }
            Kind::Stalls => {
                let mut at = from;
                while at < to {
                    let end = at + between(recipe.stall_minutes, self.random) * MINUTE;
                    let factor = between(recipe.factor, self.random);
                    drive.add_effect(Effect { from: at, to: end.min(to), change: Change::Stalled(factor) });
                    at = end + between(recipe.every_minutes, self.random) * MINUTE;
                }
                return;
            }
            Kind::Restart => return,
        };
        drive.add_effect(Effect { from, to, change });
    }

    fn event(&self, recipe: &Recipe, draft: &Draft, places: &[Place]) -> Event {
        let above = recipe.above_kib << 10;
        let time = |seconds: f64| {
            self.start + Duration::from_secs_f64((seconds - seconds_since_epoch(self.start)).max(0.0))
        };
        let drive = |&(node, drive): &Place| &self.nodes[node].drives()[drive];
        let name = |place: &Place| DriveName {
            cluster: self.nodes[place.0].cluster().to_owned(),
            node: self.nodes[place.0].name().to_owned(),
            device: drive(place).name().to_owned(),
        };
        let rates = places.iter().map(|place| drive(place).usual_rate(recipe.op, above));
        Event {
            kind: recipe.kind,
            is_fault: recipe.kind.is_fault(),
            drives: places.iter().map(name).collect(),
            op: recipe.op.map(Op::name),
            sizes: BAND_NAMES[if above > 0 { place(above + 1).band() } else { 0 }..].to_vec(),
            from: time(draft.from),
            to: time(draft.to),
            factor: draft.factor,
            usual_ios_per_second: rates.fold(f64::INFINITY, f64::min),
        }
    }
}

/// Returns the rank of an event's scope: 0 affects the most drives.
const fn scope(kind: Kind) -> u8 {
    match kind {
        Kind::Firmware | Kind::LoadSpike => 0,
        Kind::Backplane | Kind::Scrub | Kind::SizeMix | Kind::Restart | Kind::Rebuild => 1,
        Kind::Constant | Kind::Size | Kind::Rising | Kind::Stalls | Kind::Path | Kind::Wakes => 2,
    }
}
