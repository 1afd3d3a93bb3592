//! Buckets of native and classic histograms. Coarser ones are made by merging neighbours, which is exact.

use std::{ops::RangeInclusive, time::Duration};

use biolat_common::{
    bucket::{self, FIRST, LIMIT_NS, OVERFLOW, SCHEMA, TOP_EXPONENT, ZERO_EXPONENT},
    size,
};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{Bucket, BucketSpan};

use crate::{
    histogram::{Histogram, index_at_schema},
    size_histogram::SizeHistogram,
};

/// Up to this many empty buckets are cheaper to encode than a new span.
const MAX_EMPTY_IN_SPAN: i32 = 2;

/// Native buckets: spans, and the count of each bucket as a difference from the previous one.
#[must_use]
pub fn native(histogram: &Histogram, schema: u32) -> (Vec<BucketSpan>, Vec<i64>) {
    spans(merged(histogram.at_schema(schema), TOP_EXPONENT << schema, histogram.overflow))
}

/// The same of sizes, at schema 0.
#[must_use]
pub fn native_sizes(sizes: &SizeHistogram) -> (Vec<BucketSpan>, Vec<i64>) {
    spans(merged(sizes.buckets.clone(), size::TOP_EXPONENT + 1, sizes.overflow))
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

/// Counts what is above the range in the bucket `top`, the last one.
fn merged(mut buckets: Vec<(i32, u64)>, top: i32, overflow: u64) -> Vec<(i32, u64)> {
    if overflow > 0 {
        match buckets.last_mut() {
            Some((last, sum)) if *last == top => *sum += overflow,
            _ => buckets.push((top, overflow)),
        }
    }
    buckets
}

/// The index of the native bucket that counts a latency; none of the zero bucket.
#[must_use]
pub fn native_index(latency: Duration, schema: u32) -> Option<i32> {
    let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
    match bucket::cell(ns.min(LIMIT_NS - 1)) {
        ..FIRST => None,
        OVERFLOW.. => Some(TOP_EXPONENT << schema),
        cell => Some(index_at_schema(bucket::native_index(cell), schema)),
    }
}

/// Classic buckets: cumulative counts at each power of two of a second within the range.
#[must_use]
pub fn classic(histogram: &Histogram) -> Vec<Bucket> {
    let bounds = (ZERO_EXPONENT..=TOP_EXPONENT).map(|exponent| (exponent, exponent << SCHEMA));
    cumulative(histogram.zero, &histogram.buckets, bounds, histogram.count())
}

/// Whether a classic bucket is one of those that remain where few are exposed: every third power of two, from 122 us to 4 s.
#[must_use]
pub fn is_of_few(bucket: &Bucket) -> bool {
    const FEW: RangeInclusive<i32> = -13..=2;
    let exponent = bucket.upper_bound.log2();
    exponent.is_infinite() || FEW.step_by(3).any(|few| f64::from(few) == exponent)
}

/// Classic buckets of sizes: cumulative counts at each power of two of a byte within the range.
#[must_use]
pub fn classic_sizes(sizes: &SizeHistogram) -> Vec<Bucket> {
    let bounds = (size::ZERO_EXPONENT + 1..=size::TOP_EXPONENT).map(|exponent| (exponent, exponent));
    cumulative(sizes.zero, &sizes.buckets, bounds, sizes.count())
}

/// `bounds` are powers of two, each with the index of the last bucket below it.
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
    use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::BucketSpan;

    use super::{classic, native};
    use crate::histogram::Histogram;

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

    /// Counts by index, decoded as a reader of the format does.
    fn decode(spans: &[BucketSpan], deltas: &[i64]) -> Vec<(i32, i64)> {
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
        let (spans, deltas) = native(&histogram(), 3);
        assert_eq!(spans[0], BucketSpan { offset: -159, length: 1 });
        assert_eq!(spans[1], BucketSpan { offset: 6, length: 6 });
        assert_eq!(
            decode(&spans, &deltas),
            [(-159, 1), (-152, 4), (-151, 8), (-150, 16), (-147, 32), (0, 64), (1, 128), (80, 256 + 512)]
        );
    }

    #[test]
    fn coarser_schemas_merge_neighbours() {
        let (spans, deltas) = native(&histogram(), 0);
        assert_eq!(decode(&spans, &deltas), [(-19, 5), (-18, 56), (0, 64), (1, 128), (10, 768)]);
        let (spans, deltas) = native(&histogram(), 2);
        assert_eq!(
            decode(&spans, &deltas),
            [(-79, 1), (-76, 4), (-75, 24), (-73, 32), (0, 64), (1, 128), (40, 768)]
        );
    }

    #[test]
    fn few_buckets_are_three_octaves_wide() {
        let bounds =
            classic(&histogram()).into_iter().filter(super::is_of_few).map(|bucket| bucket.upper_bound);
        let few = [-13, -10, -7, -4, -1, 2].map(|exponent: i32| f64::from(exponent).exp2());
        assert_eq!(bounds.collect::<Vec<_>>(), [&few[..], &[f64::INFINITY]].concat());
    }

    #[test]
    fn an_empty_histogram_has_no_span() {
        assert_eq!(native(&Histogram::new(), 3), (Vec::new(), Vec::new()));
    }

    #[test]
    fn classic_buckets_are_cumulative_powers_of_two() {
        let buckets = classic(&histogram());
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
