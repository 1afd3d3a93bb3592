//! The I/O of one device and its ops in an interval: computed from two snapshots, added up, written and read. Names are stored as
//! numbers; see `names`.

use std::time::Duration;

use biolat_common::series::PHASES;
use biolat_model::{
    device::Group,
    histogram::Histogram,
    snapshot::{DeviceView, Inflight, SeriesView},
};

use super::{
    bits::{BitReader, BitWriter},
    breakdown::BreakdownReader,
    cells::{BandCells, LatencyCells, bytes_length},
    names::NameTable,
    sizes::SizesDelta,
    usage::{GrownUsages, UsageDelta, UsageRest, UsagesDelta},
};

const GROUPS: usize = Group::ALL.len();

/// Expected lengths of a name's number, and of an age in nanoseconds.
const NAME_LENGTH: u32 = 3;
const AGE_LENGTH: u32 = 22;

/// An upper bound on the number of ops and of block statuses, so that reading a corrupt block terminates.
const MAX_NAMES: u64 = 256;

/// One device.
#[derive(Default)]
pub(super) struct DeviceDelta {
    pub(super) phases: [bool; PHASES],
    /// The maximum of each figure.
    pub(super) inflight: Inflight,
    /// Missed completions, in the order of [`Group::ALL`].
    pub(super) missed: [u64; GROUPS],
    /// The first `used` are ops with I/O. The rest are kept to reuse their memory.
    series: Vec<SeriesDelta>,
    used: usize,
    read: SeriesRead,
}

/// Buffers for reading one block before it is added.
#[derive(Default)]
struct SeriesRead {
    phases: [LatencyCells; PHASES],
    usage: UsageDelta,
}

/// One op of a device.
#[derive(Default)]
pub(super) struct SeriesDelta {
    pub(super) op: u32,
    pub(super) bytes: u64,
    pub(super) requeues: u64,
    /// By status, each status once.
    pub(super) errors: Vec<(u32, u64)>,
    /// In the order of [`biolat_common::series::Phase`].
    pub(super) phases: [LatencyCells; PHASES],
    pub(super) sizes: SizesDelta,
    pub(super) usages: UsagesDelta,
}

impl DeviceDelta {
    pub(super) fn clear(&mut self) {
        self.used = 0;
        (self.phases, self.inflight, self.missed) = Default::default();
    }

    /// The ops that had I/O.
    pub(super) fn series(&self) -> &[SeriesDelta] {
        &self.series[..self.used]
    }

    /// Index of an op's series, which is created if necessary.
    fn place_of(&mut self, op: u32) -> usize {
        self.series().iter().position(|series| series.op == op).unwrap_or_else(|| {
            if self.used == self.series.len() {
                self.series.push(SeriesDelta::default());
            }
            self.series[self.used].clear(op);
            self.used += 1;
            self.used - 1
        })
    }

    /// Computes the growth since `before`, an earlier view of the same device. Returns false if there is nothing to store.
    pub(super) fn take(
        &mut self,
        before: Option<&DeviceView>,
        after: &DeviceView,
        workloads: Option<&GrownUsages<'_>>,
        names: &mut NameTable,
    ) -> bool {
        self.clear();
        self.phases = after.phases;
        self.inflight = after.inflight;
        for (number, group) in Group::ALL.iter().enumerate() {
            let missed = |view: &DeviceView| view.unseen.get(group).copied().unwrap_or_default();
            self.missed[number] = missed(after).saturating_sub(before.map_or(0, missed));
        }
        for series in &after.series {
            let before = before.and_then(|before| before.series.iter().find(|had| had.op == series.op));
            let place = self.place_of(names.text(&series.op));
            let delta = &mut self.series[place];
            if !delta.take(before, series, names) {
                self.used -= 1;
            } else if let Some(workloads) = workloads {
                let all = delta.in_all();
                delta.usages.take(workloads, (&after.device.name, &series.op), all, names);
            }
        }
        let Inflight { reads, writes, oldest, .. } = self.inflight;
        self.used > 0
            || reads + writes > 0
            || oldest > Duration::ZERO
            || self.missed.iter().any(|&missed| missed > 0)
    }

    pub(super) fn write(&self, writer: &mut BitWriter) {
        self.phases.iter().for_each(|&available| writer.flag(available));
        let Inflight { reads, writes, oldest, is_exact } = self.inflight;
        let dispatched = writer.number(reads, 1);
        writer.number(writes, dispatched);
        writer.flag(oldest > Duration::ZERO);
        if oldest > Duration::ZERO {
            writer.number(oldest.as_nanos() as u64, AGE_LENGTH);
            writer.flag(is_exact);
        }
        let has_missed = self.missed.iter().any(|&missed| missed > 0);
        writer.flag(has_missed);
        if has_missed {
            self.missed.iter().for_each(|&missed| _ = writer.number(missed, 0));
        }
        writer.number(self.used as u64, 2);
        self.series().iter().for_each(|series| series.write(writer));
    }

    pub(super) fn write_breakdown(&self, writer: &mut BitWriter, has_workloads: bool) {
        for series in self.series() {
            series.sizes.write(writer, &series.in_bands());
            if has_workloads {
                series.usages.write(writer, series.in_all());
            }
        }
    }

    /// Adds a device that [`Self::write`] wrote; in-flight figures become the maximum of both.
    pub(super) fn add_read(
        &mut self,
        reader: &mut BitReader<'_>,
        mut breakdown: Option<&mut BreakdownReader<'_>>,
    ) {
        for available in &mut self.phases {
            *available |= reader.flag();
        }
        let (reads, dispatched) = reader.number(1);
        let writes = reader.value(dispatched);
        self.inflight.reads = self.inflight.reads.max(reads);
        self.inflight.writes = self.inflight.writes.max(writes);
        if reader.flag() {
            let oldest = Duration::from_nanos(reader.value(AGE_LENGTH));
            let is_exact = reader.flag();
            if oldest > self.inflight.oldest {
                (self.inflight.oldest, self.inflight.is_exact) = (oldest, is_exact);
            }
        }
        if reader.flag() {
            for missed in &mut self.missed {
                *missed = missed.saturating_add(reader.value(0));
            }
        }
        for _ in 0..reader.value(2).min(MAX_NAMES) {
            let op = reader.value(NAME_LENGTH) as u32;
            let place = self.place_of(op);
            self.series[place].add_read(reader, breakdown.as_deref_mut(), &mut self.read);
        }
    }
}

impl SeriesDelta {
    fn clear(&mut self, op: u32) {
        (self.op, self.bytes, self.requeues) = (op, 0, 0);
        self.errors.clear();
        self.phases.iter_mut().for_each(LatencyCells::clear);
        self.sizes.clear();
        self.usages.clear();
    }

    /// Computes the growth since `before`, or takes everything if any count went down. Returns false if there is none.
    fn take(&mut self, before: Option<&SeriesView>, after: &SeriesView, names: &mut NameTable) -> bool {
        if let Some(before) = before
            && self.take_growth(before, after, names)
        {
            return !self.is_empty();
        }
        self.clear(self.op);
        self.take_growth(&SeriesView::default(), after, names);
        !self.is_empty()
    }

    /// Returns false if any count went down.
    fn take_growth(&mut self, before: &SeriesView, after: &SeriesView, names: &mut NameTable) -> bool {
        let mut is_continued = true;
        let mut grown = |had: u64, has: u64| {
            is_continued &= has >= had;
            has.saturating_sub(had)
        };
        self.bytes = grown(before.bytes, after.bytes);
        self.requeues = grown(before.requeues, after.requeues);
        for (status, &count) in &after.errors {
            let had = before.errors.get(status).copied().unwrap_or_default();
            match grown(had, count) {
                0 => {}
                growth => self.errors.push((names.text(status), growth)),
            }
        }
        for (cells, (had, has)) in self.phases.iter_mut().zip(before.histograms.iter().zip(&after.histograms))
        {
            is_continued &= cells.add_growth(had, has);
        }
        self.sizes.add_growth(before.sizes.as_ref(), after.sizes.as_ref()) && is_continued
    }

    /// The sum of all size bands, if the kernel records the dispatch.
    fn in_bands(&self) -> BandCells {
        in_bands(&self.phases)
    }

    /// The sum of all workloads.
    fn in_all(&self) -> UsageRest {
        in_all(&self.phases, self.bytes)
    }

    fn is_empty(&self) -> bool {
        self.bytes == 0
            && self.requeues == 0
            && self.errors.is_empty()
            && self.phases.iter().all(LatencyCells::is_empty)
    }

    fn write(&self, writer: &mut BitWriter) {
        writer.number(self.op.into(), NAME_LENGTH);
        let [admission, queue, device, total] = &self.phases;
        admission.write(writer, None, None);
        queue.write(writer, None, None);
        device.write(writer, None, None);
        // Usually queue plus device time, and close to the device time if the queue is short.
        total.write(writer, Some(device), Some(queue.sum_ns.wrapping_add(device.sum_ns)));
        writer.number(self.bytes, bytes_length(total.count()));
        writer.number(self.requeues, 0);
        writer.number(self.errors.len() as u64, 0);
        for &(status, count) in &self.errors {
            writer.number(status.into(), NAME_LENGTH);
            writer.number(count, 1);
        }
    }

    fn add_read(
        &mut self,
        reader: &mut BitReader<'_>,
        breakdown: Option<&mut BreakdownReader<'_>>,
        read: &mut SeriesRead,
    ) {
        let [admission, queue, device, total] = &mut read.phases;
        admission.read(reader, None, None);
        queue.read(reader, None, None);
        device.read(reader, None, None);
        total.read(reader, Some(device), Some(queue.sum_ns.wrapping_add(device.sum_ns)));
        let ios = total.count();
        self.phases.iter_mut().zip(&read.phases).for_each(|(sum, read)| sum.add_all(read));
        let bytes = reader.value(bytes_length(ios));
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(BreakdownReader { reader, has_workloads }) = breakdown {
            self.sizes.add_read(reader, &in_bands(&read.phases));
            if *has_workloads {
                self.usages.add_read(reader, in_all(&read.phases, bytes), &mut read.usage);
            }
        }
        self.requeues = self.requeues.saturating_add(reader.value(0));
        for _ in 0..reader.value(0).min(MAX_NAMES) {
            let status = reader.value(NAME_LENGTH) as u32;
            let count = reader.value(1);
            match self.errors.iter_mut().find(|(known, _)| *known == status) {
                Some((_, sum)) => *sum = sum.saturating_add(count),
                None => self.errors.push((status, count)),
            }
        }
    }

    /// In the order of [`biolat_common::series::Phase`].
    pub(super) fn histograms(&self) -> [Histogram; PHASES] {
        self.phases.each_ref().map(LatencyCells::histogram)
    }
}

fn in_bands([.., device, total]: &[LatencyCells; PHASES]) -> BandCells {
    if device.is_empty() { total.coarse() } else { device.coarse() }
}

fn in_all([_, queue, device, total]: &[LatencyCells; PHASES], bytes: u64) -> UsageRest {
    UsageRest { bytes, queue_ns: queue.sum_ns, device_ns: device.sum_ns, latency: total.coarse() }
}
