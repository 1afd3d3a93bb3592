//! Whether latencies are of two kinds: two hills in a histogram with a deep valley between them.

use crate::histogram::{Bounds, Histogram};

/// Fewer latencies than this make no shape.
pub(super) const MINIMUM: u64 = 500;

/// The lesser hill holds at least this share of all.
const LEAST_SHARE: f64 = 0.05;

/// The valley is no higher than this part of the lesser hill's top.
const DEPTH: f64 = 0.1;

/// Buckets between the tops, at the least: a factor of four.
const APART: usize = 16;

/// A hill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mode {
    /// Its share of all.
    pub(super) share: f64,
    /// Where its top is, in seconds.
    pub(super) top: f64,
}

/// The two hills, if there are two. What is below and above the range is left out.
#[must_use]
pub(super) fn two(histogram: &Histogram) -> Option<[Mode; 2]> {
    let (&(first, _), &(last, _)) = histogram.buckets.first().zip(histogram.buckets.last())?;
    let mut counts = vec![0; (last - first + 1) as usize];
    for &(index, count) in &histogram.buckets {
        counts[(index - first) as usize] = count;
    }
    let all: u64 = counts.iter().sum();
    if all < MINIMUM {
        return None;
    }
    // Of three neighbours: a bucket that was missed by chance is no valley.
    let smooth: Vec<f64> = (0..counts.len())
        .map(|at| {
            let near = &counts[at.saturating_sub(1)..counts.len().min(at + 2)];
            near.iter().sum::<u64>() as f64 / 3.0
        })
        .collect();
    let top = |from: usize, to: usize| {
        let higher = |&a: &usize, &b: &usize| smooth[a].total_cmp(&smooth[b]).then(counts[a].cmp(&counts[b]));
        (from..to).max_by(higher).map(|at| (at, smooth[at]))
    };
    let mut best: Option<(f64, [Mode; 2])> = None;
    for valley in 1..counts.len().saturating_sub(1) {
        let (Some((left, low)), Some((right, high))) = (top(0, valley), top(valley + 1, counts.len())) else {
            continue;
        };
        let below = counts[..=valley].iter().sum::<u64>() as f64 / all as f64;
        let lesser = below.min(1.0 - below);
        let is_deep = smooth[valley] <= DEPTH * low.min(high);
        if right - left < APART || lesser < LEAST_SHARE || !is_deep {
            continue;
        }
        let depth = low.min(high) - smooth[valley];
        let middle = |at: usize| Bounds::of_bucket(first + at as i32).middle().unwrap_or_default();
        let modes =
            [Mode { share: below, top: middle(left) }, Mode { share: 1.0 - below, top: middle(right) }];
        if best.is_none_or(|(deepest, _)| depth > deepest) {
            best = Some((depth, modes));
        }
    }
    best.map(|(_, modes)| modes)
}

#[cfg(test)]
mod tests {
    use super::{Histogram, two};

    /// Hills of the shape of a normal distribution over buckets: where, how wide, how many.
    fn hills(hills: &[(f64, f64, f64)]) -> Histogram {
        let buckets = (-160..80).filter_map(|index| {
            let height = |(at, wide, all): &(f64, f64, f64)| {
                all / (wide * 2.507) * (-((f64::from(index) - at) / wide).powi(2) / 2.0).exp()
            };
            let count = hills.iter().map(height).sum::<f64>().round() as u64;
            (count > 0).then_some((index, count))
        });
        Histogram { buckets: buckets.collect(), ..Histogram::default() }
    }

    #[test]
    fn two_hills_are_found_with_their_places_and_shares() {
        let [fast, slow] = two(&hills(&[(-105.0, 3.0, 6000.0), (-55.0, 3.0, 4000.0)])).unwrap();
        assert!((fast.share - 0.6).abs() < 0.01 && (slow.share - 0.4).abs() < 0.01, "{fast:?} {slow:?}");
        assert!((fast.top / 2_f64.powf(-105.5 / 8.0) - 1.0).abs() < 0.01, "{fast:?}");
        assert!((slow.top / 2_f64.powf(-55.5 / 8.0) - 1.0).abs() < 0.01, "{slow:?}");
    }

    #[test]
    fn one_hill_a_long_tail_and_too_few_are_not_two() {
        assert_eq!(two(&hills(&[(-80.0, 4.0, 10_000.0)])), None);
        // A hill on the other's slope.
        assert_eq!(two(&hills(&[(-90.0, 6.0, 5000.0), (-70.0, 6.0, 5000.0)])), None);
        // Falls by a sixth for each bucket, for a hundred of them.
        let tail = |n: i32| (-100 + n, (10_000.0 * 0.83_f64.powi(n)) as u64 + 1);
        assert_eq!(two(&Histogram { buckets: (0..100).map(tail).collect(), ..Histogram::default() }), None);
        assert_eq!(two(&hills(&[(-105.0, 3.0, 200.0), (-55.0, 3.0, 200.0)])), None);
        // Two of a hundred are a few slow ones and no kind.
        assert_eq!(two(&hills(&[(-105.0, 3.0, 9800.0), (-55.0, 3.0, 200.0)])), None);
        // A factor of three is none of a cache.
        assert_eq!(two(&hills(&[(-80.0, 1.0, 5000.0), (-67.0, 1.0, 5000.0)])), None);
        assert_eq!(two(&Histogram::default()), None);
    }

    /// Uniform noise of few counts has gaps by chance.
    #[test]
    fn noise_is_no_valley() {
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        for _ in 0..200 {
            let mut histogram = Histogram::default();
            for _ in 0..600 {
                let index = -100 + (random() % 60) as i32;
                histogram.add(&Histogram { buckets: vec![(index, 1)], ..Histogram::new() });
            }
            assert_eq!(two(&histogram), None);
        }
    }
}
