//! Buckets of native and classic histograms. Coarser buckets are exact sums of neighbouring ones.

use std::time::Duration;

use biolat_common::{
    bucket::{self, FIRST, LIMIT_NS, OVERFLOW, SCHEMA, TOP_EXPONENT, ZERO_EXPONENT},
    size,
};
use biolat_model::{
    histogram::{Histogram, index_at_schema},
    size_histogram::SizeHistogram,
};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{Bucket, BucketSpan};

use super::ClassicBuckets;

/// Maximum number of empty buckets for which extending a span is cheaper than starting a new one.
const MAX_EMPTY_IN_SPAN: i32 = 2;

/// Native histograms have fewer buckets than this: some storages reject or alter histograms with more than 160.
const NATIVE_LIMIT: usize = 160;

/// The buckets of a native histogram.
#[derive(Debug, PartialEq, Eq)]
pub struct NativeBuckets {
    /// There are 2^schema buckets per power of two.
    pub schema: u32,
    pub spans: Vec<BucketSpan>,
    /// Count of each bucket, as the difference from the previous bucket.
    pub deltas: Vec<i64>,
}

/// Returns native buckets at this schema, or at a coarser one if there would be too many. Counts only grow, so the number of
/// buckets never falls and the schema never rises; Prometheus does not treat a falling schema as a counter reset.
#[must_use]
pub fn native(histogram: &Histogram, schema: u32) -> NativeBuckets {
    let top = TOP_EXPONENT << schema;
    let (spans, deltas) = spans(with_overflow(histogram.at_schema(schema), top, histogram.overflow));
    if deltas.len() >= NATIVE_LIMIT && schema > 0 {
        return native(histogram, schema - 1);
    }
    NativeBuckets { schema, spans, deltas }
}

/// Returns native buckets of sizes, at schema 0.
#[must_use]
pub fn native_sizes(sizes: &SizeHistogram) -> (Vec<BucketSpan>, Vec<i64>) {
    spans(with_overflow(sizes.buckets.clone(), size::TOP_EXPONENT + 1, sizes.overflow))
}

fn spans(buckets: Vec<(i32, u64)>) -> (Vec<BucketSpan>, Vec<i64>) {
    let mut spans: Vec<BucketSpan> = Vec::new();
    let mut deltas = Vec::new();
    let mut next = 0;
    let mut last = 0;
    for (index, count) in buckets {
        let gap = index - next;
        match spans.last_mut() {
            Some(span) if gap <= MAX_EMPTY_IN_SPAN => {
                span.length += gap.unsigned_abs() + 1;
                for _ in 0..gap {
                    deltas.push(-last);
                    last = 0;
                }
            }
            _ => spans.push(BucketSpan { offset: gap, length: 1 }),
        }
        let count = count.cast_signed();
        deltas.push(count - last);
        last = count;
        next = index + 1;
    }
    (spans, deltas)
}

/// Adds the overflow to the last bucket of the range, `top`.
fn with_overflow(mut buckets: Vec<(i32, u64)>, top: i32, overflow: u64) -> Vec<(i32, u64)> {
    if overflow > 0 {
        match buckets.last_mut() {
            Some((last, sum)) if *last == top => *sum += overflow,
            _ => buckets.push((top, overflow)),
        }
    }
    buckets
}

/// Returns the index of the native bucket that counts a latency; `None` for the zero bucket.
#[must_use]
pub fn native_index(latency: Duration, schema: u32) -> Option<i32> {
    let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
    match bucket::cell(ns.min(LIMIT_NS - 1)) {
        ..FIRST => None,
        OVERFLOW.. => Some(TOP_EXPONENT << schema),
        cell => Some(index_at_schema(bucket::native_index(cell), schema)),
    }
}

/// Bounds of a workload's classic buckets, from 122 µs to 4 s. Only a few, because there are many workloads.
pub const WORKLOAD_BOUNDS: [i32; 6] = [-13, -10, -7, -4, -1, 2];

/// Upper bounds of classic latency buckets, as powers of two in seconds.
#[must_use]
pub fn latency_bounds(which: ClassicBuckets) -> Vec<i32> {
    match which {
        ClassicBuckets::Few => vec![-16, -14, -12, -10, -8, -6, -4, -2, 0, 2, 5],
        ClassicBuckets::All => (ZERO_EXPONENT..=TOP_EXPONENT).collect(),
    }
}

/// Upper bounds of classic size buckets, as powers of two in bytes. `Few` has the sector size and the sizes that file systems,
/// databases and the block layer use.
fn size_bounds(which: ClassicBuckets) -> Vec<i32> {
    match which {
        ClassicBuckets::Few => vec![9, 12, 13, 14, 16, 17, 18, 19, 20, 22, 24],
        ClassicBuckets::All => (size::ZERO_EXPONENT + 1..=size::TOP_EXPONENT).collect(),
    }
}

/// Returns classic buckets: cumulative counts at these powers of two in seconds, and at infinity.
#[must_use]
pub fn classic(histogram: &Histogram, bounds: &[i32]) -> Vec<Bucket> {
    let bounds = bounds.iter().map(|&exponent| (exponent, exponent << SCHEMA));
    cumulative(histogram.zero, &histogram.buckets, bounds, histogram.count())
}

/// Returns classic buckets of sizes.
#[must_use]
pub fn classic_sizes(sizes: &SizeHistogram, which: ClassicBuckets) -> Vec<Bucket> {
    let bounds = size_bounds(which).into_iter().map(|exponent| (exponent, exponent));
    cumulative(sizes.zero, &sizes.buckets, bounds, sizes.count())
}

/// Returns cumulative counts. `bounds` are powers of two, each with the index of the last bucket below it.
fn cumulative(
    zero: u64,
    buckets: &[(i32, u64)],
    bounds: impl Iterator<Item = (i32, i32)>,
    count: u64,
) -> Vec<Bucket> {
    let mut rest = buckets.iter().peekable();
    let mut cumulative_count = zero;
    let bucket = |(exponent, last): (i32, i32)| {
        while let Some((_, count)) = rest.next_if(|(index, _)| *index <= last) {
            cumulative_count += count;
        }
        Bucket { cumulative_count, upper_bound: f64::from(exponent).exp2(), ..Bucket::default() }
    };
    let mut buckets: Vec<_> = bounds.map(bucket).collect();
    buckets.push(Bucket { cumulative_count: count, upper_bound: f64::INFINITY, ..Bucket::default() });
    buckets
}

#[cfg(test)]
mod tests {
    use biolat_common::bucket::{CELLS, cell};
    use biolat_model::{histogram::Histogram, size_histogram::SizeHistogram};
    use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::BucketSpan;

    use super::{NATIVE_LIMIT, NativeBuckets, classic, classic_sizes, latency_bounds, native};
    use crate::expose::ClassicBuckets;

    fn histogram() -> Histogram {
        Histogram {
            zero: 2,
            buckets: vec![
                (-159, 1),
                (-152, 4),
                (-151, 8),
                (-150, 16),
                (-147, 32),
                (0, 64),
                (1, 128),
                (80, 256),
            ],
            overflow: 512,
            sum_ns: 0,
        }
    }

    /// Decodes counts by index, as a consumer of the format would.
    fn decode(NativeBuckets { spans, deltas, .. }: &NativeBuckets) -> Vec<(i32, i64)> {
        let (mut index, mut count, mut deltas) = (0, 0, deltas.iter());
        let mut decoded = Vec::new();
        for span in spans {
            index += span.offset;
            for _ in 0..span.length {
                count += deltas.next().unwrap();
                decoded.push((index, count));
                index += 1;
            }
        }
        assert!(deltas.next().is_none());
        decoded.retain(|(_, count)| *count != 0);
        decoded
    }

    #[test]
    fn native_at_full_resolution() {
        let native = native(&histogram(), 3);
        assert_eq!(native.schema, 3);
        assert_eq!(native.spans[0], BucketSpan { offset: -159, length: 1 });
        assert_eq!(native.spans[1], BucketSpan { offset: 6, length: 6 });
        assert_eq!(
            decode(&native),
            [(-159, 1), (-152, 4), (-151, 8), (-150, 16), (-147, 32), (0, 64), (1, 128), (80, 256 + 512)]
        );
    }

    #[test]
    fn coarser_schemas_merge_neighbours() {
        assert_eq!(decode(&native(&histogram(), 0)), [(-19, 5), (-18, 56), (0, 64), (1, 128), (10, 768)]);
        assert_eq!(
            decode(&native(&histogram(), 2)),
            [(-79, 1), (-76, 4), (-75, 24), (-73, 32), (0, 64), (1, 128), (40, 768)]
        );
    }

    /// Every latency from 1 µs to 1000 s, as might be seen over a year, in steps narrower than any bucket.
    #[test]
    fn histogram_with_all_latencies_stays_below_bucket_limit() {
        let mut cells = [0; CELLS];
        let (mut ns, mut latencies) = (1_000_u64, 0);
        while ns <= 1_000_000_000_000 {
            cells[cell(ns)] += 1;
            latencies += 1;
            ns += ns / 100;
        }
        let histogram = Histogram::from_cells(cells, 0);
        assert!(histogram.buckets.len() > 235, "{}", histogram.buckets.len());
        for (schema, expected) in [(3, 2), (2, 2), (1, 1), (0, 0)] {
            let native = native(&histogram, schema);
            assert_eq!(native.schema, expected);
            assert!(native.deltas.len() < NATIVE_LIMIT, "{}", native.deltas.len());
            let counted: i64 = decode(&native).iter().map(|(_, count)| count).sum();
            assert_eq!(counted + histogram.zero.cast_signed(), latencies);
        }
    }

    /// A series whose schema rises would look like a counter reset.
    #[test]
    fn schema_of_a_growing_histogram_only_falls() {
        // Fills every bucket once, in steps of seven, so that there are gaps of every width.
        let order = (0..240_u32).map(|n| n * 7 % 240);
        let (mut cells, mut schema) = ([0; CELLS], 3);
        for n in order {
            cells[8 + n as usize] += 1;
            let now = native(&Histogram::from_cells(cells, 0), 3);
            assert!(now.schema <= schema && now.deltas.len() < NATIVE_LIMIT, "{}", now.deltas.len());
            schema = now.schema;
        }
        assert_eq!(schema, 2);
    }

    #[test]
    fn empty_histogram_has_no_span() {
        let empty = NativeBuckets { schema: 3, spans: Vec::new(), deltas: Vec::new() };
        assert_eq!(native(&Histogram::new(), 3), empty);
    }

    #[test]
    fn few_classic_buckets_are_a_subset_of_all() {
        let few = classic(&histogram(), &latency_bounds(ClassicBuckets::Few));
        assert_eq!((few.len(), few[0].upper_bound, few[10].upper_bound), (12, 2f64.powi(-16), 32.0));
        let all = classic(&histogram(), &latency_bounds(ClassicBuckets::All));
        assert!(few.iter().all(|bucket| all.contains(bucket)));
        let sizes = SizeHistogram { zero: 1, buckets: (9..=24).map(|n| (n, 1)).collect(), overflow: 1 };
        let few = classic_sizes(&sizes, ClassicBuckets::Few);
        assert_eq!((few.len(), few[0].upper_bound, few[10].upper_bound), (12, 512.0, f64::from(1 << 24)));
        let all = classic_sizes(&sizes, ClassicBuckets::All);
        assert!(all.len() == 17 && few.iter().all(|bucket| all.contains(bucket)));
    }

    #[test]
    fn classic_buckets_are_cumulative_powers_of_two() {
        let buckets = classic(&histogram(), &latency_bounds(ClassicBuckets::All));
        assert_eq!(buckets.len(), 32);
        let at =
            |bound: f64| buckets.iter().find(|bucket| bucket.upper_bound == bound).unwrap().cumulative_count;
        assert_eq!(at(2f64.powi(-20)), 2);
        assert_eq!(at(2f64.powi(-19)), 2 + 1 + 4);
        assert_eq!(at(2f64.powi(-18)), 2 + 1 + 4 + 8 + 16 + 32);
        assert_eq!(at(0.5), 63);
        assert_eq!(at(1.0), 63 + 64);
        assert_eq!(at(2.0), 63 + 64 + 128);
        assert_eq!(at(1024.0), 255 + 256);
        assert_eq!(at(f64::INFINITY), 255 + 256 + 512);
    }
}
