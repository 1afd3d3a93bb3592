//! The I/O of one device and op in an interval, by workload.

use biolat_model::snapshot::{WorkloadUsage, WorkloadView};

use super::{
    bits::{BitReader, BitWriter},
    cells::{BandCells, bytes_length, from_zigzag, zigzag},
    names::NameTable,
};

/// Expected length of a workload's number, and how many bits shorter a queue time is than the total.
const NUMBER_LENGTH: u32 = 4;
const QUEUE_SHORTER: u32 = 4;

/// An upper bound on the number of workloads, so that reading a corrupt block terminates.
const MAX_WORKLOADS: u64 = 1 << 20;

/// The usage of one device and op by a workload, before and after.
pub(super) struct GrownUsage<'a> {
    /// Number of the workload.
    workload: u32,
    before: Option<&'a WorkloadUsage>,
    after: &'a WorkloadUsage,
}

/// All usages that have grown, by device and op.
pub(super) struct GrownUsages<'a>(Vec<GrownUsage<'a>>);

impl<'a> GrownUsages<'a> {
    /// Both lists must be sorted by cgroup.
    pub(super) fn of(before: &'a [WorkloadView], after: &'a [WorkloadView], names: &mut NameTable) -> Self {
        let mut grown = Vec::new();
        for workload in after {
            let had = before.binary_search_by(|had| had.cgroup.cmp(&workload.cgroup));
            let had = had.map_or(&[][..], |place| &before[place].usage);
            let mut number = None;
            for (place, after) in workload.usage.iter().enumerate() {
                let is_same = |had: &&WorkloadUsage| had.device == after.device && had.op == after.op;
                let before = had.get(place).filter(is_same).or_else(|| had.iter().find(is_same));
                if before != Some(after) {
                    let workload = *number.get_or_insert_with(|| names.workload(workload));
                    grown.push(GrownUsage { workload, before, after });
                }
            }
        }
        grown.sort_unstable_by(|one, other| one.place().cmp(&other.place()));
        Self(grown)
    }

    /// The usages of one device and op.
    fn of_series(&self, device: &str, op: &str) -> &[GrownUsage<'a>] {
        let begin = self.0.partition_point(|usage| usage.place() < (device, op));
        let length = self.0[begin..].partition_point(|usage| usage.place() == (device, op));
        &self.0[begin..begin + length]
    }
}

impl GrownUsage<'_> {
    fn place(&self) -> (&str, &str) {
        (&self.after.device, &self.after.op)
    }
}

/// The I/O of all workloads on one device and op.
#[derive(Default)]
pub(super) struct UsagesDelta {
    /// Each workload once. The first `used` are valid; the rest are kept to reuse their memory.
    workloads: Vec<UsageDelta>,
    used: usize,
}

/// The I/O of a workload.
#[derive(Clone, Default)]
pub(super) struct UsageDelta {
    /// Number of the workload.
    pub(super) workload: u32,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    pub(super) queue_ns: u64,
    pub(super) device_ns: u64,
    /// Total latencies, with the sum of all times.
    pub(super) latency: BandCells,
}

/// The rest of a series' I/O after subtracting the workloads so far.
#[derive(Clone, Default)]
pub(super) struct UsageRest {
    pub(super) bytes: u64,
    pub(super) queue_ns: u64,
    pub(super) device_ns: u64,
    pub(super) latency: BandCells,
}

impl UsageRest {
    fn subtract(&mut self, usage: &UsageDelta) {
        self.bytes = self.bytes.wrapping_sub(usage.bytes);
        self.queue_ns = self.queue_ns.wrapping_sub(usage.queue_ns);
        self.device_ns = self.device_ns.wrapping_sub(usage.device_ns);
        self.latency.subtract(&usage.latency);
    }

    fn contains(&self, usage: &UsageDelta) -> bool {
        self.bytes >= usage.bytes
            && self.queue_ns >= usage.queue_ns
            && self.device_ns >= usage.device_ns
            && self.latency.contains(&usage.latency)
    }

    fn is_empty(&self) -> bool {
        (self.bytes, self.queue_ns, self.device_ns, self.latency.count(), self.latency.sum_ns)
            == (0, 0, 0, 0, 0)
    }
}

impl UsagesDelta {
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    pub(super) fn workloads(&self) -> &[UsageDelta] {
        &self.workloads[..self.used]
    }

    fn workload_mut(&mut self, workload: u32) -> &mut UsageDelta {
        let place =
            self.workloads().iter().position(|usage| usage.workload == workload).unwrap_or_else(|| {
                if self.used == self.workloads.len() {
                    self.workloads.push(UsageDelta::default());
                }
                self.workloads[self.used].clear(workload);
                self.used += 1;
                self.used - 1
            });
        &mut self.workloads[place]
    }

    /// Computes the growth on this device and op, which adds up to `rest`. I/O that no workload accounts for is attributed to
    /// `other`: all of it, if the workloads exceed the sum, which happens when one is renamed.
    pub(super) fn take(
        &mut self,
        grown: &GrownUsages<'_>,
        (device, op): (&str, &str),
        mut rest: UsageRest,
        names: &mut NameTable,
    ) {
        self.clear();
        let all = rest.clone();
        for grown in grown.of_series(device, op) {
            let usage = self.workload_mut(grown.workload);
            usage.take(grown);
            if !rest.contains(usage) {
                self.clear();
                rest = all;
                break;
            }
            rest.subtract(usage);
        }
        if !rest.is_empty() {
            let usage = self.workload_mut(names.other_workloads());
            usage.add(&UsageDelta {
                workload: usage.workload,
                errors: 0,
                bytes: rest.bytes,
                queue_ns: rest.queue_ns,
                device_ns: rest.device_ns,
                latency: rest.latency,
            });
        }
    }

    /// Writes the workloads. `rest` is their expected sum.
    pub(super) fn write(&self, writer: &mut BitWriter, mut rest: UsageRest) {
        writer.number(self.used as u64, 1);
        for (number, usage) in self.workloads().iter().enumerate() {
            usage.write(writer, &rest, number + 1 == self.used);
            rest.subtract(usage);
        }
    }

    /// Adds workloads that [`Self::write`] wrote.
    pub(super) fn add_read(
        &mut self,
        reader: &mut BitReader<'_>,
        mut rest: UsageRest,
        read: &mut UsageDelta,
    ) {
        let count = reader.value(1).min(MAX_WORKLOADS);
        for number in 1..=count {
            read.read(reader, &rest, number == count);
            self.workload_mut(read.workload).add(read);
            rest.subtract(read);
        }
    }
}

impl UsageDelta {
    fn clear(&mut self, workload: u32) {
        (self.workload, self.bytes, self.errors, self.queue_ns, self.device_ns) = (workload, 0, 0, 0, 0);
        self.latency.clear();
    }

    /// Computes the growth, or takes everything if any count went down.
    fn take(&mut self, grown: &GrownUsage<'_>) {
        if let Some(before) = grown.before
            && self.take_growth(before, grown.after)
        {
            return;
        }
        self.clear(self.workload);
        self.take_growth(&WorkloadUsage::default(), grown.after);
    }

    /// Returns false if any count went down.
    fn take_growth(&mut self, before: &WorkloadUsage, after: &WorkloadUsage) -> bool {
        let mut is_continued = true;
        let mut grown = |had: u128, has: u128| {
            is_continued &= has >= had;
            has.saturating_sub(had) as u64
        };
        self.bytes = grown(before.bytes.into(), after.bytes.into());
        self.errors = grown(before.errors.into(), after.errors.into());
        self.queue_ns = grown(before.queue_ns, after.queue_ns);
        self.device_ns = grown(before.device_ns, after.device_ns);
        let (had, has) = (before.latency.at_most_schema_1(), after.latency.at_most_schema_1());
        self.latency.add_growth(had, has) && is_continued
    }

    fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.errors = self.errors.wrapping_add(other.errors);
        self.queue_ns = self.queue_ns.wrapping_add(other.queue_ns);
        self.device_ns = self.device_ns.wrapping_add(other.device_ns);
        self.latency.add_all(&other.latency);
    }

    /// Total time that is neither queue nor device time.
    fn unsplit_ns(&self) -> u64 {
        self.latency.sum_ns.wrapping_sub(self.queue_ns).wrapping_sub(self.device_ns)
    }

    fn write(&self, writer: &mut BitWriter, rest: &UsageRest, is_last: bool) {
        writer.number(self.workload.into(), NUMBER_LENGTH);
        writer.number(self.errors, 0);
        let known = |known: u64| is_last.then_some(known);
        self.latency.write(writer, Some(&rest.latency), known(rest.latency.sum_ns));
        if is_last {
            writer.number(zigzag(self.bytes.wrapping_sub(rest.bytes)), 0);
            writer.number(zigzag(self.queue_ns.wrapping_sub(rest.queue_ns)), 0);
        } else {
            writer.number(self.bytes, bytes_length(self.latency.count()));
            writer.number(self.queue_ns, queue_length(self.latency.sum_ns));
        }
        writer.number(self.unsplit_ns(), 0);
    }

    fn read(&mut self, reader: &mut BitReader<'_>, rest: &UsageRest, is_last: bool) {
        self.workload = reader.value(NUMBER_LENGTH) as u32;
        self.errors = reader.value(0);
        let known = is_last.then_some(rest.latency.sum_ns);
        self.latency.read(reader, Some(&rest.latency), known);
        if is_last {
            self.bytes = rest.bytes.wrapping_add(from_zigzag(reader.value(0)));
            self.queue_ns = rest.queue_ns.wrapping_add(from_zigzag(reader.value(0)));
        } else {
            self.bytes = reader.value(bytes_length(self.latency.count()));
            self.queue_ns = reader.value(queue_length(self.latency.sum_ns));
        }
        let unsplit_ns = reader.value(0);
        self.device_ns = self.latency.sum_ns.wrapping_sub(self.queue_ns).wrapping_sub(unsplit_ns);
    }
}

/// Expected length of a queue time, given the total time.
const fn queue_length(sum_ns: u64) -> u32 {
    super::bits::length(sum_ns).saturating_sub(QUEUE_SHORTER)
}
