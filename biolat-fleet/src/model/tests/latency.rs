//! Tests that drawn latencies follow the formulas.

use biolat_common::bucket::{self, CELLS};
use rand::SeedableRng as _;

use crate::model::{
    Random,
    latency::{FEW, Latency, Tail, cell_of, middle, normal},
};

const LATENCY: Latency =
    Latency { median: 100e-6, spread: 0.4, tail: Tail { share: 0.02, from: 3.0, to: 100.0, index: 1.5 } };

fn drawn(latency: Latency, count: u64, times: usize) -> [u64; CELLS] {
    let mut random = Random::seed_from_u64(7);
    let mut cells = [0; CELLS];
    for _ in 0..times {
        latency.draw(count, &mut random, |cell, count| cells[cell] += count);
    }
    cells
}

fn share_above(cells: &[u64], seconds: f64) -> f64 {
    let above: u64 = cells[cell_of(seconds) + 1..].iter().sum();
    above as f64 / cells.iter().sum::<u64>() as f64
}

/// Latencies drawn one by one and latencies drawn by cell both follow the formula.
#[test]
fn few_and_many_draws_follow_the_formula() {
    for (count, times) in [(FEW / 2, 100_000), (1_000_000, 1)] {
        let cells = drawn(LATENCY, count, times);
        assert_eq!(cells.iter().sum::<u64>(), count * times as u64);
        // 2^(-13 1/4) s is 102.5 µs, the end of a cell; 2^-11 s is 488 µs.
        let median = 0.98 * (1.0 - normal((-13.25 - LATENCY.median.log2()) / 0.4)) + 0.02;
        let tail = 0.02 * (1.0 - (1.0 - (2_f64.powi(-11) / 300e-6).powf(-1.5)) / (1.0 - 100_f64.powf(-1.5)));
        for (seconds, expected, error) in
            [(2_f64.powf(-13.25), median, 0.003), (2_f64.powi(-11), tail, 0.0005)]
        {
            let share = share_above(&cells, seconds * 0.9999);
            assert!((share - expected).abs() < error, "{share} and not {expected} above {seconds}");
        }
    }
}

#[test]
fn mean_matches_the_cells() {
    let cells = drawn(LATENCY, 10_000_000, 1);
    let sum: f64 = cells.iter().enumerate().map(|(cell, &count)| count as f64 * middle(cell) as f64).sum();
    let mean = sum / 1e9 / 10_000_000.0;
    assert!(
        (mean / LATENCY.mean(LATENCY.tail.mean()) - 1.0).abs() < 0.01,
        "{mean} and not {}",
        LATENCY.mean(LATENCY.tail.mean())
    );
}

/// Sums of few or many latencies have the mean given by the formula, and the deviation expected from single latencies.
#[test]
fn sum_has_the_mean_and_deviation_of_single_latencies() {
    let mut random = Random::seed_from_u64(8);
    // A tail whose deviation does not depend on one I/O in a million.
    let latency = Latency { tail: Tail { index: 3.5, to: 5.0, ..LATENCY.tail }, ..LATENCY };
    let mean = latency.mean(latency.tail.mean());
    let figures = |draws: &[f64], count: u64| {
        let average = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|draw| (draw - average).powi(2)).sum::<f64>() / draws.len() as f64;
        (average / count as f64 / mean, (variance / count as f64).sqrt() / mean)
    };
    let single: Vec<_> = (0..200_000).map(|_| latency.draw_sum(1, &mut random)).collect();
    let (_, deviation) = figures(&single, 1);
    for count in [1, 20, 1000, 100_000] {
        let draws: Vec<_> = (0..20_000).map(|_| latency.draw_sum(count, &mut random)).collect();
        let (average, of_one) = figures(&draws, count);
        assert!((average - 1.0).abs() < 0.01, "{count}: {average} times the mean");
        assert!((of_one / deviation - 1.0).abs() < 0.1, "{count}: {of_one} and not {deviation}");
    }
}

#[test]
fn middle_is_in_its_cell() {
    for cell in bucket::FIRST..=bucket::OVERFLOW {
        assert_eq!(bucket::cell(middle(cell)), cell);
    }
}

#[test]
fn longest_latencies_are_in_the_overflow_cell() {
    let cells = drawn(Latency { median: 1e4, ..LATENCY }, 1000, 1);
    assert_eq!(cells[bucket::OVERFLOW], 1000);
}
