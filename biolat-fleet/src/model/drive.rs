//! Models a drive: its speed and load, the effects of events, and the daemon's counters.

use std::time::{Duration, SystemTime};

use biolat_model::{
    device::{Device, Group, Throttling},
    snapshot::{DeviceView, Inflight},
};
use rand::{RngExt as _, SeedableRng as _};

use super::{
    Random,
    counters::{Counters, Queue},
    drive_model::{DriveModel, MAX_UTILISATION, Op},
    effect::{Acting, Effect, Rate},
    latency::{Latency, poisson},
    noise::{BurstKind, Bursts, Noise, log_normal},
    service::Service,
    work::Work,
};

/// Maximum share of I/Os in the tail.
const MAX_TAIL: f64 = 0.3;
/// Size whose share does not change when sizes shift.
const USUAL_SIZE: f64 = 65536.0;

/// Short periods in which a drive is slow for internal reasons.
const SPELLS: BurstKind = BurstKind {
    gap: 14_500.0,
    shortest: 20.0,
    longest: 1800.0,
    length_index: 1.3,
    lowest: 1.3,
    highest: 10.0,
    height_index: 2.0,
};

/// Periods of higher load on one drive.
const LOAD_BURSTS: BurstKind = BurstKind {
    gap: 12.0 * 3600.0,
    shortest: 120.0,
    longest: 2.0 * 3600.0,
    length_index: 1.3,
    lowest: 1.3,
    highest: 6.0,
    height_index: 1.8,
};

pub(crate) struct Drive {
    device: Device,
    model: &'static DriveModel,
    service: &'static Service,
    firmware: Vec<(f64, f64)>,
    effects: Vec<Effect>,
    /// Its latency relative to its model's.
    own: f64,
    /// Mean of each op's latency tail, as a multiple of the median.
    tails: [f64; Op::ALL.len()],
    /// I/Os per second under the usual load.
    usual_rate: f64,
    load: [Noise; 2],
    load_bursts: Bursts,
    speed: Noise,
    /// Amount of garbage collection for a given write load.
    collection: Noise,
    spells: Bursts,
    streams: Vec<Stream>,
    /// Used only for counts, so load and speed evolve the same way whatever the counts.
    counting: Random,
    record: Record,
    /// I/Os in flight: reads and others.
    inflight: [u64; 2],
    /// Mean latency in the last step.
    latency: f64,
    /// Share of the last step during which it was busy.
    pub(crate) utilisation: f64,
}

/// Record of a drive's I/O.
enum Record {
    /// The daemon's counters, by op.
    Counters(Box<[Counters; 3]>),
    Work(Box<Work>),
}

/// I/Os of one op and size.
#[derive(Clone, Copy)]
struct Stream {
    op: Op,
    bytes: u32,
    is_sequential: bool,
    /// I/Os per second.
    rate: f64,
    latency: Latency,
    /// Mean latency in seconds.
    mean: f64,
}

impl Drive {
    /// Creates a drive. `load` is a multiple of the usual load of its model and service.
    pub(crate) fn new(
        device: Device,
        model: &'static DriveModel,
        service: &'static Service,
        load: f64,
        random: &mut Random,
    ) -> Self {
        let utilisation = (model.usual_utilisation * service.intensity * load).min(0.4);
        let spells = BurstKind { gap: SPELLS.gap * if model.rotational { 3.0 } else { 1.0 }, ..SPELLS };
        let mut drive = Self {
            device: Device {
                model: model.name.to_owned(),
                firmware: "1.0".to_owned(),
                transport: model.transport.to_owned(),
                scheduler: model.scheduler.to_owned(),
                rotational: model.rotational,
                iostats: true,
                throttling: Throttling::SetUp,
                ..device
            },
            model,
            service,
            firmware: Vec::new(),
            effects: Vec::new(),
            own: log_normal(0.07, random),
            tails: Op::ALL.map(|op| model.op(op).tail.mean()),
            usual_rate: 1.0,
            load: [Noise::new(0.2, 3600.0, random), Noise::new(0.15, 180.0, random)],
            load_bursts: Bursts::new(LOAD_BURSTS, random),
            speed: Noise::new(0.04, 1200.0, random),
            collection: Noise::new(0.5, 300.0, random),
            spells: Bursts::new(spells, random),
            streams: Vec::new(),
            counting: Random::seed_from_u64(random.random()),
            record: Record::Counters(Box::default()),
            inflight: [0; 2],
            latency: 0.0,
            utilisation: 0.0,
        };
        drive.demand(&Acting::new(&[], 0.0), 1.0, 0.0);
        let of_unit_rate: f64 = drive.streams.iter().map(|stream| stream.rate * stream.cost(model)).sum();
        drive.usual_rate = utilisation / of_unit_rate;
        drive
    }

    pub(crate) fn name(&self) -> &str {
        &self.device.name
    }

    pub(crate) const fn model(&self) -> &'static DriveModel {
        self.model
    }

    /// Returns the I/Os per second under the usual load, of `op` only if given, and only above a size unless `above` is 0.
    pub(crate) fn usual_rate(&self, op: Option<Op>, above: u32) -> f64 {
        let ops = Op::ALL.into_iter().filter(|&each| op.is_none_or(|only| only == each));
        let share = |op: Op| -> f64 {
            let sizes = self.service.sizes(op).iter().filter(|(bytes, _)| above == 0 || *bytes > above);
            self.service.ops[op as usize] * sizes.map(|(_, share)| share).sum::<f64>()
        };
        self.usual_rate * ops.map(share).sum::<f64>()
    }

    pub(crate) fn add_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Gives the drive another firmware between two times.
    pub(crate) fn add_firmware(&mut self, from: f64, to: f64) {
        self.firmware.push((from, to));
    }

    /// Resets the counters.
    pub(crate) fn reset(&mut self) {
        if let Record::Counters(counters) = &mut self.record {
            **counters = Default::default();
        }
    }

    /// From now on, records only its work, which restarts do not reset.
    pub(crate) fn record_work_only(&mut self) {
        self.record = Record::Work(Box::default());
    }

    /// Returns its total work, if recorded.
    pub(crate) fn work(&self) -> Option<&Work> {
        if let Record::Work(work) = &self.record { Some(work) } else { None }
    }

    /// Adds the I/O of a step of `seconds` centered on `at`. `load` and `sizes` are the node's load factor and size shift.
    pub(crate) fn advance(&mut self, at: f64, seconds: f64, load: f64, sizes: f64, random: &mut Random) {
        let effects = std::mem::take(&mut self.effects);
        let acting = Acting::new(&effects, at);
        let own_load = self.load.iter_mut().map(|noise| noise.advance(seconds, random)).sum::<f64>().exp();
        let load = load * own_load * self.load_bursts.advance(seconds, random) * acting.load();
        self.demand(&acting, load, sizes + acting.sizes());
        self.respond(&acting, seconds, random);
        self.complete(&acting, seconds);
        self.effects = effects;
        let has_other_firmware = self.firmware.iter().any(|(from, to)| (*from..*to).contains(&at));
        self.device.firmware = if has_other_firmware { "2.0" } else { "1.0" }.to_owned();
    }

    /// Fills the streams with the demanded I/O.
    fn demand(&mut self, acting: &Acting<'_>, load: f64, sizes: f64) {
        self.streams.clear();
        for op in Op::ALL {
            if op == Op::Flush && !self.model.is_flushed {
                continue;
            }
            let sequential = if self.model.rotational { self.service.sequential } else { 0.0 };
            let (first, mut sum) = (self.streams.len(), 0.0);
            for &(bytes, share) in self.service.sizes(op) {
                let weight = share * (f64::from(bytes).max(1.0) / USUAL_SIZE).powf(sizes);
                sum += weight;
                for (is_sequential, share) in [(false, 1.0 - sequential), (true, sequential)] {
                    if share > 0.0 {
                        self.streams.push(Stream::new(op, bytes, is_sequential, weight * share));
                    }
                }
            }
            let rate = self.usual_rate * load * self.service.ops[op as usize];
            self.streams[first..].iter_mut().for_each(|stream| stream.rate *= rate / sum);
        }
        for extra in acting.extra() {
            let mut stream = Stream::new(extra.op, extra.bytes, extra.is_sequential, 1.0);
            stream.rate = match extra.rate {
                Rate::Ios(rate) => rate,
                Rate::Utilisation(share) => share / stream.cost(self.model),
            };
            self.streams.push(stream);
        }
    }

    /// Determines how much of the demand the drive meets, and its latencies.
    fn respond(&mut self, acting: &Acting<'_>, seconds: f64, random: &mut Random) {
        let model = self.model;
        let (mut busy, mut writing) = (0.0, 0.0);
        let stalled = acting.stalled();
        for stream in &mut self.streams {
            let slower = acting.slower(stream.op, stream.bytes);
            if slower * stalled > 1.0 {
                stream.rate /= (slower * stalled).powf(self.service.elasticity);
            }
            let cost = stream.rate * stream.cost(model) * slower;
            busy += cost;
            writing += if stream.op == Op::Read { 0.0 } else { cost };
        }
        let done = (MAX_UTILISATION / busy).min(1.0);
        self.utilisation = busy * done;
        let pressure = model.interference * writing * done * self.collection.advance(seconds, random).exp();
        let speed =
            self.own * self.speed.advance(seconds, random).exp() * self.spells.advance(seconds, random);
        let queueing = model.queueing(self.utilisation);
        for stream in &mut self.streams {
            let of_op = model.op(stream.op);
            let (body, tail) = if stream.op == Op::Read { (0.5, 0.5) } else { (0.2, 0.2) };
            stream.rate *= done;
            stream.latency = Latency {
                median: of_op.latency(stream.bytes, stream.is_sequential)
                    * speed
                    * queueing
                    * (1.0 + body * pressure)
                    * stalled
                    * acting.slower(stream.op, stream.bytes),
                spread: of_op.spread,
                tail: of_op.tail,
            };
            stream.latency.tail.share = (of_op.tail.share + tail * pressure).min(MAX_TAIL);
            stream.mean = stream.latency.mean(self.tails[stream.op as usize]);
        }
        // Little's law: limit the rate so that the mean number of requests in the drive does not exceed its depth.
        let depth: f64 = self.streams.iter().map(|stream| stream.rate * stream.mean).sum();
        let limit = (model.depth / depth).min(1.0);
        self.streams.iter_mut().for_each(|stream| stream.rate *= limit);
    }

    /// Counts the completed I/O.
    fn complete(&mut self, acting: &Acting<'_>, seconds: f64) {
        let random = &mut self.counting;
        let path = acting.path().unwrap_or((0.0, 1.0));
        let (mut depth, mut rate) = ([0.0; 2], 0.0);
        for stream in &self.streams {
            let slow = Latency { median: stream.latency.median * path.1, ..stream.latency };
            for (share, latency, mean) in
                [(1.0 - path.0, stream.latency, stream.mean), (path.0, slow, stream.mean * path.1)]
            {
                let count = poisson(stream.rate * share * seconds, random);
                match &mut self.record {
                    Record::Counters(counters) => {
                        let counters = &mut counters[stream.op as usize];
                        latency.draw(count, random, |cell, count| counters.add(stream.bytes, cell, count));
                    }
                    Record::Work(work) => work.add(stream.op, stream.bytes, count, latency, random),
                }
                depth[usize::from(stream.op != Op::Read)] += stream.rate * share * mean;
            }
            rate += stream.rate;
        }
        self.inflight = depth.map(|depth| poisson(depth, random));
        self.latency = if rate > 0.0 { depth.iter().sum::<f64>() / rate } else { 0.0 };
        let queue = Queue {
            passage: if self.model.scheduler == "none" { 1.5e-6 } else { 3e-6 },
            waiting: 0.5 * self.utilisation.powi(self.model.queueing.1),
            wait: self.latency * self.utilisation,
        };
        if let Record::Counters(counters) = &mut self.record {
            counters.iter_mut().for_each(|counters| counters.queue(queue, random));
        }
    }

    /// Returns the drive as the daemon shows it.
    pub(crate) fn view(&self, since: SystemTime) -> DeviceView {
        let [reads, writes] = self.inflight;
        let age = if reads + writes > 0 { self.latency } else { 0.0 };
        let series = match &self.record {
            Record::Counters(counters) => {
                Op::ALL.into_iter().filter_map(|op| counters[op as usize].view(op)).collect()
            }
            Record::Work(_) => Vec::new(),
        };
        DeviceView {
            device: self.device.clone(),
            since,
            phases: [false, true, true, true],
            series,
            unseen: Group::ALL.map(|group| (group, 0)).into(),
            inflight: Inflight { reads, writes, oldest: Duration::from_secs_f64(age), is_exact: true },
            ..DeviceView::default()
        }
    }
}

impl Stream {
    const fn new(op: Op, bytes: u32, is_sequential: bool, rate: f64) -> Self {
        let tail = super::latency::Tail { share: 0.0, from: 1.0, to: 2.0, index: 2.0 };
        let latency = Latency { median: 0.0, spread: 0.0, tail };
        Self { op, bytes, is_sequential, rate, latency, mean: 0.0 }
    }

    /// Returns how long one I/O keeps the drive busy, in seconds.
    fn cost(&self, model: &DriveModel) -> f64 {
        model.op(self.op).cost(self.bytes, self.is_sequential)
    }
}
