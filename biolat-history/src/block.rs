//! One interval as bytes: host-wide counts, devices in the order of their numbers, and the slowest I/Os.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_common::series::PHASES;
use biolat_model::snapshot::SlowIo;

use super::{
    bits::{BitReader, BitWriter},
    breakdown::{Breakdown, BreakdownReader},
    delta::DeviceDelta,
    interval::Interval,
    io_names::NumberedNames,
    names::{NameTable, Names},
};

/// Number of slowest I/Os in an interval.
pub(super) const SLOWEST: usize = 10;

/// Expected lengths of a name's number, a time in microseconds since the epoch, a latency in nanoseconds, and a sector.
const NAME_LENGTH: u32 = 4;
const TIME_LENGTH: u32 = 51;
const LATENCY_LENGTH: u32 = 31;
const SECTOR_LENGTH: u32 = 30;

/// An upper bound on the number of loss reasons, so that reading a corrupt block terminates.
const MAX_REASONS: u64 = 256;

/// Host-wide counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Collections, including failed ones.
    pub(super) collections: u64,
    pub(super) failures: u64,
    /// Slow I/Os that were not recorded.
    pub(super) slow_dropped: u64,
    /// Lost completions by reason, without zeros.
    pub(super) lost: Vec<(u32, u64)>,
}

impl Counts {
    pub(super) fn clear(&mut self) {
        (self.collections, self.failures, self.slow_dropped) = (0, 0, 0);
        self.lost.clear();
    }

    fn write(&self, writer: &mut BitWriter) {
        writer.number(self.collections, 1);
        writer.number(self.failures, 0);
        writer.number(self.slow_dropped, 0);
        writer.number(self.lost.len() as u64, 0);
        for &(reason, count) in &self.lost {
            writer.number(reason.into(), NAME_LENGTH);
            writer.number(count, 1);
        }
    }

    fn add_read(&mut self, reader: &mut BitReader<'_>) {
        self.collections = self.collections.saturating_add(reader.value(1));
        self.failures = self.failures.saturating_add(reader.value(0));
        self.slow_dropped = self.slow_dropped.saturating_add(reader.value(0));
        for _ in 0..reader.value(0).min(MAX_REASONS) {
            let reason = reader.value(NAME_LENGTH) as u32;
            let count = reader.value(1);
            match self.lost.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, sum)) => *sum = sum.saturating_add(count),
                None => self.lost.push((reason, count)),
            }
        }
    }
}

/// A slow I/O with numbers instead of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NumberedIo {
    pub(super) number: u64,
    completed_us: u64,
    device: u32,
    op: u32,
    sector: u64,
    bytes: u64,
    status: u32,
    latencies_ns: [Option<u64>; PHASES],
    cpu: u64,
    cgroup: u32,
    names: NumberedNames,
}

impl NumberedIo {
    pub(super) fn of(io: &SlowIo, names: &mut NameTable) -> Self {
        Self {
            number: io.number,
            completed_us: microseconds(io.completed),
            device: names.text(&io.device),
            op: names.text(&io.op),
            sector: io.sector,
            bytes: io.bytes.into(),
            status: names.text(&io.status),
            latencies_ns: io.latencies.map(|latency| latency.map(|latency| latency.as_nanos() as u64)),
            cpu: io.cpu.into(),
            cgroup: names.text(io.workload.as_deref().unwrap_or_default()),
            names: NumberedNames::of(&io.names, names),
        }
    }

    pub(super) fn named(&self, names: &Names) -> SlowIo {
        SlowIo {
            number: self.number,
            completed: at(self.completed_us),
            device: names.text(self.device).to_owned(),
            op: names.text(self.op).to_owned(),
            sector: self.sector,
            bytes: u32::try_from(self.bytes).unwrap_or(u32::MAX),
            status: names.text(self.status).to_owned().into(),
            latencies: self.latencies_ns.map(|latency| latency.map(Duration::from_nanos)),
            cpu: u32::try_from(self.cpu).unwrap_or(u32::MAX),
            workload: Some(names.text(self.cgroup).to_owned()).filter(|cgroup| !cgroup.is_empty()),
            names: self.names.named(names),
        }
    }

    fn write(&self, writer: &mut BitWriter) {
        writer.number(self.number, NAME_LENGTH);
        writer.number(self.completed_us, TIME_LENGTH);
        writer.number(self.device.into(), NAME_LENGTH);
        writer.number(self.op.into(), NAME_LENGTH);
        writer.number(self.sector, SECTOR_LENGTH);
        writer.number(self.bytes, 13);
        writer.number(self.status.into(), NAME_LENGTH);
        for latency in self.latencies_ns {
            writer.flag(latency.is_some());
            if let Some(ns) = latency {
                writer.number(ns, LATENCY_LENGTH);
            }
        }
        writer.number(self.cpu, NAME_LENGTH);
        writer.number(self.cgroup.into(), NAME_LENGTH);
        self.names.write(writer);
    }

    fn read(reader: &mut BitReader<'_>) -> Self {
        Self {
            number: reader.value(NAME_LENGTH),
            completed_us: reader.value(TIME_LENGTH),
            device: reader.value(NAME_LENGTH) as u32,
            op: reader.value(NAME_LENGTH) as u32,
            sector: reader.value(SECTOR_LENGTH),
            bytes: reader.value(13),
            status: reader.value(NAME_LENGTH) as u32,
            latencies_ns: std::array::from_fn(|_| reader.flag().then(|| reader.value(LATENCY_LENGTH))),
            cpu: reader.value(NAME_LENGTH),
            cgroup: reader.value(NAME_LENGTH) as u32,
            names: NumberedNames::read(reader),
        }
    }

    /// The numbers of its names.
    pub(super) fn texts(&self) -> impl Iterator<Item = u32> {
        [self.device, self.op, self.status, self.cgroup].into_iter().chain(self.names.texts())
    }

    /// Its longest known latency, which is the total if that is known.
    fn latency_ns(&self) -> u64 {
        self.latencies_ns.iter().flatten().copied().max().unwrap_or_default()
    }
}

/// Adds an I/O to the slowest so far. Once there are [`SLOWEST`], it replaces the fastest of them if it is slower. They stay in
/// insertion order.
pub fn add_to_slowest<T>(ios: &mut Vec<T>, io: T, latency: impl Fn(&T) -> u64) {
    if ios.len() < SLOWEST {
        ios.push(io);
    } else if let Some((place, fastest)) = ios.iter().map(&latency).enumerate().min_by_key(|(_, ns)| *ns)
        && latency(&io) > fastest
    {
        ios.remove(place);
        ios.push(io);
    }
}

/// Writes a block: counts, devices, slow I/Os. Sizes and workloads go into a separate block, which can be dropped.
#[derive(Default)]
pub(super) struct BlockWriter {
    writer: BitWriter,
    next_device: u32,
    breakdown_writer: BitWriter,
    breakdown: Option<Breakdown>,
}

/// The block of an interval, and the block of its sizes and workloads.
pub(super) type Blocks = (Arc<[u8]>, Option<Arc<[u8]>>);

impl BlockWriter {
    pub(super) fn begin(&mut self, counts: &Counts, breakdown: Option<Breakdown>) {
        self.next_device = 0;
        counts.write(&mut self.writer);
        self.breakdown = breakdown;
        if let Some(Breakdown { has_workloads }) = breakdown {
            self.breakdown_writer.flag(has_workloads);
        }
    }

    /// Devices must be written in ascending order of their numbers.
    pub(super) fn device(&mut self, number: u32, delta: &DeviceDelta) {
        self.writer.flag(true);
        self.writer.number(number.wrapping_sub(self.next_device).into(), 0);
        self.next_device = number + 1;
        delta.write(&mut self.writer);
        if let Some(Breakdown { has_workloads }) = self.breakdown {
            delta.write_breakdown(&mut self.breakdown_writer, has_workloads);
        }
    }

    pub(super) fn end(&mut self, slow: &[NumberedIo]) -> Blocks {
        self.writer.flag(false);
        self.writer.number(slow.len() as u64, 0);
        slow.iter().for_each(|io| io.write(&mut self.writer));
        (self.writer.take(), self.breakdown.map(|_| self.breakdown_writer.take()))
    }
}

/// Merges several intervals by reading them in parallel, one device at a time across all of them.
pub(super) struct BlockSum<'a> {
    blocks: Vec<Block<'a>>,
    /// `None` unless all of them have sizes and workloads.
    pub(super) breakdown: Option<Breakdown>,
}

struct Block<'a> {
    reader: BitReader<'a>,
    breakdown: Option<BreakdownReader<'a>>,
    /// Number of the next device.
    device: Option<u32>,
}

impl Block<'_> {
    fn advance(&mut self) {
        let next = self.device.map_or(0, |number| number.wrapping_add(1));
        self.device = self.reader.flag().then(|| next.wrapping_add(self.reader.value(0) as u32));
    }
}

impl<'a> BlockSum<'a> {
    /// Reads the counts and adds them to `counts`.
    pub(super) fn begin(intervals: &'a [Interval], counts: &mut Counts) -> Self {
        let has_breakdown = intervals.iter().all(|interval| interval.breakdown.is_some());
        let begun = intervals.iter().map(|interval| {
            let breakdown = interval.breakdown.as_deref().filter(|_| has_breakdown);
            let breakdown = breakdown.map(BreakdownReader::new);
            let reader = BitReader::new(&interval.block);
            let mut block = Block { reader, breakdown, device: None };
            counts.add_read(&mut block.reader);
            block.advance();
            block
        });
        let blocks: Vec<_> = begun.collect();
        let has_workloads =
            || blocks.iter().flat_map(|block| &block.breakdown).all(|read| read.has_workloads);
        let breakdown = has_breakdown.then(|| Breakdown { has_workloads: has_workloads() });
        Self { blocks, breakdown }
    }

    /// Sums the next device into `delta` and returns its number. `None` after the last.
    pub(super) fn next_device(&mut self, delta: &mut DeviceDelta) -> Option<u32> {
        let number = self.blocks.iter().filter_map(|block| block.device).min()?;
        delta.clear();
        for block in self.blocks.iter_mut().filter(|block| block.device == Some(number)) {
            delta.add_read(&mut block.reader, block.breakdown.as_mut());
            block.advance();
        }
        Some(number)
    }

    /// Returns the slowest I/Os of all blocks. Must be called after the devices were read.
    pub(super) fn slowest(&mut self) -> Vec<NumberedIo> {
        let mut ios = Vec::new();
        for block in &mut self.blocks {
            for _ in 0..block.reader.value(0).min(SLOWEST as u64) {
                let io = NumberedIo::read(&mut block.reader);
                add_to_slowest(&mut ios, io, NumberedIo::latency_ns);
            }
        }
        ios
    }
}

/// Microseconds since the epoch; 0 for earlier times.
pub(super) fn microseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// The time that is this many microseconds after the epoch.
pub(super) fn at(microseconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_micros(microseconds)).unwrap_or(UNIX_EPOCH)
}
