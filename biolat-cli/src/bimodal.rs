//! Finds bimodal latency distributions: two peaks with a deep valley between them.

use biolat_model::{
    histogram::{Bounds, Histogram},
    saturating::sum,
};

/// Minimum number of latencies for a meaningful shape.
pub(super) const MIN_COUNT: u64 = 500;

/// Minimum share of all latencies in the smaller mode.
const MIN_SHARE: f64 = 0.05;

/// Maximum height of the valley, relative to the lower peak.
const MAX_VALLEY: f64 = 0.1;

/// Minimum distance between the peaks, in buckets: a factor of four.
const MIN_DISTANCE: usize = 16;

/// A peak and the latencies around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mode {
    /// Share of all latencies.
    pub(super) share: f64,
    /// Latency of the peak in seconds.
    pub(super) peak: f64,
}

/// The two modes, if there are two. The zero and overflow buckets are ignored.
pub(super) fn modes(histogram: &Histogram) -> Option<[Mode; 2]> {
    let (&(first, _), &(last, _)) = histogram.buckets.first().zip(histogram.buckets.last())?;
    let mut counts = vec![0; (last - first + 1) as usize];
    for &(index, count) in &histogram.buckets {
        counts[(index - first) as usize] = count;
    }
    let all = sum(&counts);
    if all < MIN_COUNT {
        return None;
    }
    // Averaged over three buckets, so that one that happens to be empty is not a valley.
    let smooth: Vec<f64> = (0..counts.len())
        .map(|at| {
            let near = &counts[at.saturating_sub(1)..counts.len().min(at + 2)];
            sum(near) as f64 / 3.0
        })
        .collect();
    let highest = |from: usize, to: usize| {
        let higher = |&a: &usize, &b: &usize| smooth[a].total_cmp(&smooth[b]).then(counts[a].cmp(&counts[b]));
        (from..to).max_by(higher).map(|at| (at, smooth[at]))
    };
    let mut best: Option<(f64, [Mode; 2])> = None;
    for valley in 1..counts.len().saturating_sub(1) {
        let (Some((left, low)), Some((right, high))) =
            (highest(0, valley), highest(valley + 1, counts.len()))
        else {
            continue;
        };
        let below = sum(&counts[..=valley]) as f64 / all as f64;
        let lesser = below.min(1.0 - below);
        let is_deep = smooth[valley] <= MAX_VALLEY * low.min(high);
        if right - left < MIN_DISTANCE || lesser < MIN_SHARE || !is_deep {
            continue;
        }
        let depth = low.min(high) - smooth[valley];
        let middle = |at: usize| Bounds::of_bucket(first + at as i32).middle().unwrap_or_default();
        let found =
            [Mode { share: below, peak: middle(left) }, Mode { share: 1.0 - below, peak: middle(right) }];
        if best.is_none_or(|(deepest, _)| depth > deepest) {
            best = Some((depth, found));
        }
    }
    best.map(|(_, modes)| modes)
}

#[cfg(test)]
mod tests {
    use super::{Histogram, modes};

    /// Normal distributions over buckets: center, width, count.
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
    fn finds_two_modes() {
        let [fast, slow] = modes(&hills(&[(-105.0, 3.0, 6000.0), (-55.0, 3.0, 4000.0)])).unwrap();
        assert!((fast.share - 0.6).abs() < 0.01 && (slow.share - 0.4).abs() < 0.01, "{fast:?} {slow:?}");
        assert!((fast.peak / 2_f64.powf(-105.5 / 8.0) - 1.0).abs() < 0.01, "{fast:?}");
        assert!((slow.peak / 2_f64.powf(-55.5 / 8.0) - 1.0).abs() < 0.01, "{slow:?}");
    }

    #[test]
    fn rejects_single_peaks_tails_and_small_samples() {
        assert_eq!(modes(&hills(&[(-80.0, 4.0, 10_000.0)])), None);
        // One hill on the slope of the other.
        assert_eq!(modes(&hills(&[(-90.0, 6.0, 5000.0), (-70.0, 6.0, 5000.0)])), None);
        // Falls by a sixth per bucket, over a hundred buckets.
        let tail = |n: i32| (-100 + n, (10_000.0 * 0.83_f64.powi(n)) as u64 + 1);
        assert_eq!(modes(&Histogram { buckets: (0..100).map(tail).collect(), ..Histogram::default() }), None);
        assert_eq!(modes(&hills(&[(-105.0, 3.0, 200.0), (-55.0, 3.0, 200.0)])), None);
        // Two percent are a few slow I/Os, not a mode.
        assert_eq!(modes(&hills(&[(-105.0, 3.0, 9800.0), (-55.0, 3.0, 200.0)])), None);
        // A factor of three is too close.
        assert_eq!(modes(&hills(&[(-80.0, 1.0, 5000.0), (-67.0, 1.0, 5000.0)])), None);
        assert_eq!(modes(&Histogram::default()), None);
    }

    /// Uniform noise with few counts has random gaps.
    #[test]
    fn rejects_noise() {
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
            assert_eq!(modes(&histogram), None);
        }
    }
}
