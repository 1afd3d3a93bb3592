//! Which I/Os of a reading are counted. The kernel copies a CPU's counters while the probe may write them, so that an I/O that
//! completes meanwhile is in some of them and not yet in others. It is left for the next reading: then counts that have to be
//! equal are so at any time.

use biolat_common::{
    bucket,
    series::{Phase, Series},
    size::{self, BANDS, Counters, Sizes},
    workload::Entry,
};

/// What is known of the I/Os of a series.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// They are counted by size.
    pub(super) has_sizes: bool,
    /// Reads or writes. Of these only an empty flush, which is accounted as a write, has no data, and it is not dispatched.
    pub(super) is_read_or_write: bool,
    /// There were some with data that were not dispatched.
    pub(super) has_undispatched: bool,
}

impl Kind {
    /// Whether I/Os with data alone are dispatched.
    fn only_data_is_split(self) -> bool {
        self.has_sizes && self.is_read_or_write
    }

    /// Whether all I/Os with data have been dispatched: then their times in the device are those of the bands.
    fn has_no_undispatched(self, sizes: &Sizes) -> bool {
        !self.has_undispatched && sizes.undispatched == 0
    }
}

/// Reduces the growth of the counters of all CPUs, and of the completions on each, to the I/Os of the reference, which are
/// complete. The counters themselves have neither bytes nor times.
pub(super) fn limit_to(reference: &Entry, growth: &mut Counters, completions: &mut [u32], kind: Kind) {
    let groups = growth.series.cells.chunks_mut(bucket::CELLS / size::BAND_CELLS);
    for (group, &count) in groups.zip(&reference.cells) {
        reduce(group.iter_mut().map(|cell| &mut cell[Phase::Total as usize]), u64::from(count));
    }
    let series = &mut growth.series;
    reduce(&mut series.errors, reference.errors);
    let own = [series.device_ns, series.unsplit_ns];
    (series.device_ns, series.unsplit_ns) = (reference.device_ns, reference.unsplit_ns);
    leave_incomplete(growth, completions, kind);
    [growth.series.device_ns, growth.series.unsplit_ns] = own;
    if kind.has_no_undispatched(&growth.sizes) {
        reduce_device_time(&mut growth.sizes, reference.device_ns);
    }
}

/// Reduces the growth of the counters of all CPUs, and of the completions on each, to I/Os that are in all of them.
pub(super) fn leave_incomplete(growth: &mut Counters, completions: &mut [u32], kind: Kind) {
    let Counters { series, sizes } = growth;
    let mut total = count(series, Phase::Total);
    let mut split = split(series);
    if series.unsplit_ns == 0 && !kind.only_data_is_split() {
        total = total.min(split);
    }
    if kind.has_sizes {
        let all_data = with_data(sizes);
        let mut data = total.min(all_data);
        if kind.only_data_is_split() {
            data = data.min(split + sizes.undispatched);
            split = data.saturating_sub(sizes.undispatched);
            sizes.undispatched = sizes.undispatched.min(data);
        }
        let empty = u64::from(sizes.requests[0]).min(total - data);
        total = empty + data;
        reduce(&mut sizes.requests[..1], empty);
        reduce_bands(sizes, all_data - data);
        if kind.only_data_is_split() && kind.has_no_undispatched(sizes) {
            equalize_device_time(series, sizes);
        }
    }
    split = split.min(total);
    for (phase, kept) in
        [(Phase::Admission, total), (Phase::Queue, split), (Phase::Device, split), (Phase::Total, total)]
    {
        reduce_phase(series, phase, kept);
    }
    reduce(completions, total);
}

/// I/Os of a phase.
fn count(series: &Series, phase: Phase) -> u64 {
    sum(series.cells.iter().map(|cell| &cell[phase as usize]))
}

/// I/Os whose latency is split, as far as both parts are counted.
fn split(series: &Series) -> u64 {
    count(series, Phase::Queue).min(count(series, Phase::Device))
}

/// I/Os with data that are counted by size and by latency.
fn with_data(sizes: &Sizes) -> u64 {
    (0..BANDS).map(|band| of_band(sizes, band)).sum()
}

/// I/Os of a band that are counted by size and by latency.
fn of_band(sizes: &Sizes, band: usize) -> u64 {
    sum(&sizes.requests[size::cells_of_band(band)]).min(sum(&sizes.bands[band]))
}

fn reduce_phase(series: &mut Series, phase: Phase, to: u64) {
    reduce(series.cells.iter_mut().map(|cell| &mut cell[phase as usize]), to);
}

/// Leaves out so many I/Os with data, by size as well as by latency.
fn reduce_bands(sizes: &mut Sizes, mut surplus: u64) {
    let mut bands: [(u64, usize); BANDS] = std::array::from_fn(|band| (of_band(sizes, band), band));
    bands.sort_unstable_by(|one, other| other.cmp(one));
    for (count, band) in bands {
        let left_out = surplus.min(count);
        surplus -= left_out;
        reduce(&mut sizes.requests[size::cells_of_band(band)], count - left_out);
        reduce(&mut sizes.bands[band], count - left_out);
    }
}

/// The same time in the device for all bands together and for the series.
fn equalize_device_time(series: &mut Series, sizes: &mut Sizes) {
    reduce_device_time(sizes, series.device_ns);
    series.device_ns = sizes.band_ns.iter().sum();
}

/// Reduces the time in the device of all bands together to this, beginning with bands of which no I/O is left.
fn reduce_device_time(sizes: &mut Sizes, to: u64) {
    let Sizes { band_ns, bands, .. } = sizes;
    let mut surplus = band_ns.iter().sum::<u64>().saturating_sub(to);
    let (mut with_ios, mut others): (Vec<_>, Vec<_>) =
        band_ns.iter_mut().zip(&*bands).partition(|(_, latencies)| sum(*latencies) > 0);
    for (ns, _) in others.iter_mut().chain(&mut with_ios) {
        let left_out = surplus.min(**ns);
        **ns -= left_out;
        surplus -= left_out;
    }
}

/// A number that grows with each of the counters.
pub(super) fn amount(counters: &Counters) -> u64 {
    let Counters { series, sizes } = counters;
    let counts = sum(series.cells.as_flattened()) + sum(&sizes.requests) + sum(sizes.bands.as_flattened());
    let times = [series.queue_ns, series.device_ns, series.unsplit_ns, series.admission_ns];
    times.iter().chain(&sizes.band_ns).fold(counts, |sum, ns| sum.wrapping_add(*ns))
}

fn sum<'a>(counts: impl IntoIterator<Item = &'a u32>) -> u64 {
    counts.into_iter().map(|&count| u64::from(count)).sum()
}

/// Reduces counts to this sum, beginning with the largest.
fn reduce<'a>(counts: impl IntoIterator<Item = &'a mut u32>, to: u64) {
    let mut counts: Vec<_> = counts.into_iter().filter(|count| **count > 0).collect();
    let mut surplus = sum(counts.iter().map(|count| &**count)).saturating_sub(to);
    if surplus == 0 {
        return;
    }
    counts.sort_unstable_by(|one, other| other.cmp(one));
    for count in counts {
        let left_out = surplus.min(u64::from(*count));
        *count -= left_out as u32;
        surplus -= left_out;
    }
}

#[cfg(test)]
mod tests {
    use biolat_common::{
        series::Phase,
        size::{BANDS, Counters, cells_of_band},
    };
    use proptest::{array::uniform8, collection::vec, prelude::*};

    use biolat_common::workload::Entry;

    use super::{Kind, count, leave_incomplete, limit_to, sum};

    /// How the probe counts one I/O: each step writes one counter.
    #[derive(Clone, Debug)]
    struct Io {
        size_cell: usize,
        latency_cell: usize,
        kind: IoKind,
        /// The steps that the copy of the counters sees. The next copy sees all.
        seen: [bool; 8],
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum IoKind {
        Dispatched,
        /// With data: it fails before it is dispatched.
        Undispatched,
        EmptyFlush,
    }

    fn io() -> impl Strategy<Value = Io> {
        let kind = prop_oneof![
            6 => Just(IoKind::Dispatched),
            1 => Just(IoKind::Undispatched),
            2 => Just(IoKind::EmptyFlush),
        ];
        (1..18_usize, 0..248_usize, kind, uniform8(any::<bool>()))
            .prop_map(|(size_cell, latency_cell, kind, seen)| Io { size_cell, latency_cell, kind, seen })
    }

    impl Io {
        fn count(&self, counters: &mut Counters, seen: [bool; 8]) {
            let Counters { series, sizes } = counters;
            let cell = &mut series.cells[self.latency_cell];
            cell[Phase::Total as usize] += u32::from(seen[0]);
            if self.kind == IoKind::Dispatched {
                cell[Phase::Queue as usize] += u32::from(seen[1]);
                cell[Phase::Device as usize] += u32::from(seen[2]);
                series.device_ns += u64::from(seen[3]);
            } else {
                series.unsplit_ns += u64::from(seen[1]);
            }
            if self.kind == IoKind::EmptyFlush {
                sizes.requests[0] += u32::from(seen[2]);
                return;
            }
            sizes.undispatched += u64::from(self.kind == IoKind::Undispatched && seen[7]);
            sizes.requests[self.size_cell] += u32::from(seen[4]);
            let band = (0..BANDS).find(|&band| cells_of_band(band).contains(&self.size_cell)).unwrap();
            sizes.bands[band][self.latency_cell / 4] += u32::from(seen[5]);
            sizes.band_ns[band] += u64::from(seen[6]);
        }
    }

    /// The entry of these I/Os, all workloads together.
    fn reference<'a>(ios: impl IntoIterator<Item = &'a Io>) -> Entry {
        let mut entry = Entry::ZERO;
        for io in ios {
            entry.cells[io.latency_cell / 4] += 1;
            match io.kind {
                IoKind::Dispatched => entry.device_ns += 1,
                IoKind::Undispatched | IoKind::EmptyFlush => entry.unsplit_ns += 1,
            }
        }
        entry
    }

    fn taken(mut growth: Counters, has_undispatched: bool) -> Counters {
        leave_incomplete(
            &mut growth,
            &mut [],
            Kind { has_sizes: true, is_read_or_write: true, has_undispatched },
        );
        growth
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn counts_of_any_reading_agree(
            complete in vec(io(), 1..30),
            torn in vec(vec(io(), 0..4), 1..8),
        ) {
            let (mut counters, mut last) = (Counters::ZERO, Counters::ZERO);
            for io in &complete {
                io.count(&mut counters, [true; 8]);
            }
            for ios in &torn {
                let mut copy = counters;
                for io in ios {
                    io.count(&mut copy, io.seen);
                    io.count(&mut counters, [true; 8]);
                }
                let growth = taken(copy.since(&last), last.sizes.undispatched > 0);
                last.merge(&growth);
                let Counters { series, sizes } = &last;
                let data = sum(sizes.bands.as_flattened());
                prop_assert_eq!(count(series, Phase::Total), sum(&sizes.requests));
                prop_assert_eq!(data, sum(&sizes.requests[1..]));
                prop_assert_eq!(count(series, Phase::Queue), count(series, Phase::Device));
                if !complete.iter().chain(torn.iter().flatten()).any(|io| io.kind == IoKind::Undispatched) {
                    prop_assert_eq!(data, count(series, Phase::Device));
                    prop_assert_eq!(series.device_ns, sizes.band_ns.iter().sum::<u64>());
                }
            }
            last.merge(&taken(counters.since(&last), last.sizes.undispatched > 0));
            prop_assert!(last == counters);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// In each round, some I/Os complete before the tables of workloads are switched, and some while the counters are read.
        #[test]
        fn counts_are_those_of_the_workloads(
            rounds in vec((vec(io(), 0..10), vec(io(), 0..6)), 1..8),
        ) {
            let (mut counters, mut last) = (Counters::ZERO, Counters::ZERO);
            let (mut all, mut late) = (Vec::new(), Vec::new());
            for (complete, torn) in &rounds {
                for io in complete {
                    io.count(&mut counters, [true; 8]);
                }
                let mut copy = counters;
                for io in torn {
                    io.count(&mut copy, io.seen);
                    io.count(&mut counters, [true; 8]);
                }
                let expected = reference(late.iter().copied().chain(complete));
                all.extend(late.drain(..).chain(complete));
                late.extend(torn);
                // These are only counted by workload.
                for counters in [&mut counters, &mut copy] {
                    (counters.series.device_ns, counters.series.unsplit_ns) = (0, 0);
                }
                let mut growth = copy.since(&last);
                let kind = Kind {
                    has_sizes: true,
                    is_read_or_write: true,
                    has_undispatched: last.sizes.undispatched > 0,
                };
                limit_to(&expected, &mut growth, &mut [], kind);
                last.merge(&growth);
                let Counters { series, sizes } = &last;
                let sums = reference(all.iter().copied());
                for (group, &count) in series.cells.chunks(4).zip(&sums.cells) {
                    prop_assert_eq!(sum(group.iter().map(|cell| &cell[Phase::Total as usize])), u64::from(count));
                }
                prop_assert_eq!(sum(&sizes.requests), all.len() as u64);
                prop_assert_eq!(sum(sizes.bands.as_flattened()), sum(&sizes.requests[1..]));
                prop_assert_eq!(count(series, Phase::Queue), count(series, Phase::Device));
                if !all.iter().chain(&late).any(|io| io.kind == IoKind::Undispatched) {
                    prop_assert_eq!(sum(sizes.bands.as_flattened()), count(series, Phase::Device));
                    prop_assert_eq!(sizes.band_ns.iter().sum::<u64>(), sums.device_ns);
                }
            }
        }
    }

    /// Two I/Os of different sizes that took as long, one of which is late: the band of the other one has its time.
    #[test]
    fn a_band_without_ios_has_no_time() {
        for late in [4, 8] {
            let io =
                |size_cell| Io { size_cell, latency_cell: 100, kind: IoKind::Dispatched, seen: [true; 8] };
            let mut growth = Counters::ZERO;
            let complete = io(12 - late);
            complete.count(&mut growth, [true; 8]);
            io(late).count(&mut growth, [true; 8]);
            growth.series.device_ns = 0;
            let kind = Kind { has_sizes: true, is_read_or_write: true, has_undispatched: false };
            limit_to(&reference([&complete]), &mut growth, &mut [], kind);
            let counts = growth.sizes.bands.map(|latencies| u64::from(latencies.iter().sum::<u32>()));
            assert_eq!(counts, growth.sizes.band_ns);
            assert_eq!(counts.iter().sum::<u64>(), 1);
        }
    }

    #[test]
    fn a_device_without_dispatch_timestamps_is_counted() {
        let mut counters = Counters::ZERO;
        for latency_cell in 100..120 {
            let io = Io { size_cell: 4, latency_cell, kind: IoKind::Undispatched, seen: [true; 8] };
            io.count(&mut counters, [true; 8]);
        }
        assert!(taken(counters, false) == counters);
    }

    #[test]
    fn without_sizes_phases_agree() {
        let mut counters = Counters::ZERO;
        counters.series.cells[80] = [0, 3, 4, 5];
        let mut completions = [2, 3];
        leave_incomplete(
            &mut counters,
            &mut completions,
            Kind { has_sizes: false, is_read_or_write: true, has_undispatched: false },
        );
        assert_eq!((counters.series.cells[80], completions), ([0, 3, 3, 3], [2, 1]));
    }

    #[test]
    fn each_flush_without_data_is_dispatched() {
        let mut counters = Counters::ZERO;
        counters.series.cells[80] = [0, 3, 3, 3];
        counters.sizes.requests[0] = 3;
        let mut growth = counters;
        leave_incomplete(
            &mut growth,
            &mut [],
            Kind { has_sizes: true, is_read_or_write: false, has_undispatched: false },
        );
        assert!(growth == counters);
    }
}
