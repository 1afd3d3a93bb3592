//! Decides which I/Os of a reading to count. The probe may be writing the counters that are being read, so an I/O that
//! completes meanwhile can be in some counters and not yet in others. Such an I/O is left for the next reading, so
//! counts that must be equal always are.

use biolat_common::{
    bucket,
    series::{Phase, Series},
    size::{self, BANDS, Counters, Sizes},
    workload::Entry,
};

/// Properties of a series' I/Os.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// Whether they are counted by size.
    pub(super) has_sizes: bool,
    /// Whether they are reads or writes. The only ones without data are empty flushes, which are accounted as writes and not
    /// dispatched.
    pub(super) is_read_or_write: bool,
    /// Whether some I/Os with data were not dispatched.
    pub(super) has_undispatched: bool,
}

impl Kind {
    /// Whether only I/Os with data are dispatched.
    fn dispatches_only_data(self) -> bool {
        self.has_sizes && self.is_read_or_write
    }

    /// Whether all I/Os with data were dispatched, in which case their device time equals the sum over the bands.
    fn has_dispatched_all_data(self, sizes: &Sizes) -> bool {
        !self.has_undispatched && sizes.undispatched == 0
    }
}

/// Limits the growth of the counters (summed over all CPUs) and of the per-CPU completions to the I/Os in the reference, which
/// are complete. For these series, the probe counts bytes and the queue, device and unsplit times only by workload, so they are
/// left alone; admission times and the bands' times are in the counters.
pub(super) fn limit_to(reference: &Entry, growth: &mut Counters, completions: &mut [u32], kind: Kind) {
    let groups = growth.series.cells.chunks_mut(bucket::CELLS / size::BAND_CELLS);
    for (group, &count) in groups.zip(&reference.cells) {
        reduce(group.iter_mut().map(|cell| &mut cell[Phase::Total as usize]), u64::from(count));
    }
    let series = &mut growth.series;
    reduce(&mut series.errors, reference.errors);
    let own = [series.device_ns, series.unsplit_ns];
    (series.device_ns, series.unsplit_ns) = (reference.device_ns, reference.unsplit_ns);
    exclude_incomplete(growth, completions, kind);
    [growth.series.device_ns, growth.series.unsplit_ns] = own;
    if kind.has_dispatched_all_data(&growth.sizes) {
        reduce_device_time(&mut growth.sizes, reference.device_ns);
    }
}

/// Limits the growth of the counters (summed over all CPUs) and of the per-CPU completions to the I/Os that every counter
/// includes.
pub(super) fn exclude_incomplete(growth: &mut Counters, completions: &mut [u32], kind: Kind) {
    let Counters { series, sizes } = growth;
    let mut total = count(series, Phase::Total);
    let mut split = split_count(series);
    if series.unsplit_ns == 0 && !kind.dispatches_only_data() {
        total = total.min(split);
    }
    if kind.has_sizes {
        let all_data = with_data(sizes);
        let mut data = total.min(all_data);
        if kind.dispatches_only_data() {
            data = data.min(split + sizes.undispatched);
            split = data.saturating_sub(sizes.undispatched);
            sizes.undispatched = sizes.undispatched.min(data);
        }
        let empty = u64::from(sizes.requests[0]).min(total - data);
        total = empty + data;
        reduce(&mut sizes.requests[..1], empty);
        reduce_bands(sizes, all_data - data);
        if kind.dispatches_only_data() && kind.has_dispatched_all_data(sizes) {
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

/// Returns the number of I/Os in a phase.
fn count(series: &Series, phase: Phase) -> u64 {
    sum(series.cells.iter().map(|cell| &cell[phase as usize]))
}

/// Returns the number of I/Os whose queue and device latencies have both been counted.
fn split_count(series: &Series) -> u64 {
    count(series, Phase::Queue).min(count(series, Phase::Device))
}

/// Returns the number of I/Os with data that are counted by size and by latency.
fn with_data(sizes: &Sizes) -> u64 {
    (0..BANDS).map(|band| count_in_band(sizes, band)).sum()
}

/// Returns the number of I/Os in a band that are counted by size and by latency.
fn count_in_band(sizes: &Sizes, band: usize) -> u64 {
    sum(&sizes.requests[size::cells_of_band(band)]).min(sum(&sizes.bands[band]))
}

fn reduce_phase(series: &mut Series, phase: Phase, to: u64) {
    reduce(series.cells.iter_mut().map(|cell| &mut cell[phase as usize]), to);
}

/// Removes `surplus` I/Os with data from the counts by size and by latency.
fn reduce_bands(sizes: &mut Sizes, mut surplus: u64) {
    let mut bands: [(u64, usize); BANDS] = std::array::from_fn(|band| (count_in_band(sizes, band), band));
    bands.sort_unstable_by(|one, other| other.cmp(one));
    for (count, band) in bands {
        let left_out = surplus.min(count);
        surplus -= left_out;
        reduce(&mut sizes.requests[size::cells_of_band(band)], count - left_out);
        reduce(&mut sizes.bands[band], count - left_out);
    }
}

/// Makes the series' device time equal to the sum of the bands' device times, by lowering the larger to the smaller.
fn equalize_device_time(series: &mut Series, sizes: &mut Sizes) {
    reduce_device_time(sizes, series.device_ns);
    series.device_ns = sizes.band_ns.iter().sum();
}

/// Reduces the device times of the bands until they add up to at most `to`, starting with bands that have no I/Os left.
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

/// Returns the sum of all counts and times. Counters only grow, so the sum changes whenever one of them does. Bytes, errors,
/// requeues and `undispatched` are left out, because they do not show whether an I/O is complete.
pub(super) fn amount(counters: &Counters) -> u64 {
    let Counters { series, sizes } = counters;
    let counts = sum(series.cells.as_flattened()) + sum(&sizes.requests) + sum(sizes.bands.as_flattened());
    let times = [series.queue_ns, series.device_ns, series.unsplit_ns, series.admission_ns];
    times.iter().chain(&sizes.band_ns).fold(counts, |sum, ns| sum.wrapping_add(*ns))
}

fn sum<'a>(counts: impl IntoIterator<Item = &'a u32>) -> u64 {
    counts.into_iter().map(|&count| u64::from(count)).sum()
}

/// Reduces counts until they add up to at most `to`, starting with the largest.
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

    use super::{Kind, count, exclude_incomplete, limit_to, sum};

    /// Models how the probe counts one I/O: each step writes one counter.
    #[derive(Clone, Debug)]
    struct Io {
        size_cell: usize,
        latency_cell: usize,
        kind: IoKind,
        /// Steps that are visible in this copy of the counters. The next copy includes all of them.
        seen: [bool; 8],
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum IoKind {
        Dispatched,
        /// Has data, but fails before it is dispatched.
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

    /// Returns the entry for these I/Os, summed over all workloads.
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

    fn complete_part(mut growth: Counters, has_undispatched: bool) -> Counters {
        exclude_incomplete(
            &mut growth,
            &mut [],
            Kind { has_sizes: true, is_read_or_write: true, has_undispatched },
        );
        growth
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn counts_agree_in_any_reading(
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
                let growth = complete_part(copy.since(&last), last.sizes.undispatched > 0);
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
            last.merge(&complete_part(counters.since(&last), last.sizes.undispatched > 0));
            prop_assert!(last == counters);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// In each round, some I/Os complete before the workload tables are switched, and some while the counters are read.
        #[test]
        fn counts_match_the_workloads(
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
                // The probe counts these times only by workload.
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

    /// Two I/Os of different sizes with the same latency, one of them late: a band left without I/Os must get no time.
    #[test]
    fn band_without_ios_has_no_time() {
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
    fn counts_device_without_dispatch_timestamps() {
        let mut counters = Counters::ZERO;
        for latency_cell in 100..120 {
            let io = Io { size_cell: 4, latency_cell, kind: IoKind::Undispatched, seen: [true; 8] };
            io.count(&mut counters, [true; 8]);
        }
        assert!(complete_part(counters, false) == counters);
    }

    #[test]
    fn phases_agree_without_sizes() {
        let mut counters = Counters::ZERO;
        counters.series.cells[80] = [0, 3, 4, 5];
        let mut completions = [2, 3];
        exclude_incomplete(
            &mut counters,
            &mut completions,
            Kind { has_sizes: false, is_read_or_write: true, has_undispatched: false },
        );
        assert_eq!((counters.series.cells[80], completions), ([0, 3, 3, 3], [2, 1]));
    }

    #[test]
    fn counts_dispatched_flushes_without_data() {
        let mut counters = Counters::ZERO;
        counters.series.cells[80] = [0, 3, 3, 3];
        counters.sizes.requests[0] = 3;
        let mut growth = counters;
        exclude_incomplete(
            &mut growth,
            &mut [],
            Kind { has_sizes: true, is_read_or_write: false, has_undispatched: false },
        );
        assert!(growth == counters);
    }
}
