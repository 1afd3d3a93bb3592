//! Tests of noise and bursts: correlation, deviation, tails.

use rand::SeedableRng as _;

use crate::model::{
    Random,
    noise::{BurstKind, Bursts, Noise},
};

#[test]
fn noise_has_its_deviation_and_correlation() {
    let mut random = Random::seed_from_u64(1);
    let mut noise = Noise::new(0.3, 600.0, &mut random);
    let values: Vec<_> = (0..200_000).map(|_| noise.advance(60.0, &mut random)).collect();
    let product = |lag: usize| {
        values.windows(lag + 1).map(|pair| pair[0] * pair[lag]).sum::<f64>() / values.len() as f64
    };
    assert!((product(0).sqrt() - 0.3).abs() < 0.01, "{}", product(0).sqrt());
    let expected = (-0.1_f64).exp();
    assert!((product(1) / product(0) - expected).abs() < 0.01, "{}", product(1) / product(0));
    assert!((product(10) / product(0) - expected.powi(10)).abs() < 0.04);
}

/// Compares the Hill estimate of the lengths' tail index with the configured index.
#[test]
fn burst_lengths_have_a_heavy_tail() {
    let mut random = Random::seed_from_u64(2);
    let kind = BurstKind {
        gap: 3600.0,
        shortest: 60.0,
        longest: 1e9,
        length_index: 1.5,
        lowest: 1.5,
        highest: 8.0,
        height_index: 2.0,
    };
    let mut bursts = Bursts::new(kind, &mut random);
    let mut lengths = Vec::new();
    while lengths.len() < 20_000 {
        bursts.change(&mut random);
        if bursts.is_burst {
            lengths.push(bursts.left);
            assert!((1.5..=8.0).contains(&bursts.height));
        } else {
            assert_eq!(bursts.height, 1.0);
        }
    }
    let hill = lengths.len() as f64 / lengths.iter().map(|length| (length / 60.0).ln()).sum::<f64>();
    assert!((hill - 1.5).abs() < 0.03, "{hill}");
}

#[test]
fn step_returns_the_mean_factor() {
    let mut random = Random::seed_from_u64(3);
    let kind = BurstKind {
        gap: 100.0,
        shortest: 100.0,
        longest: 100.0,
        length_index: 1.5,
        lowest: 3.0,
        highest: 3.0,
        height_index: 2.0,
    };
    let mut bursts = Bursts::new(kind, &mut random);
    let mean = (0..2000).map(|_| bursts.advance(300.0, &mut random)).sum::<f64>() / 2000.0;
    assert!((mean - 2.0).abs() < 0.05, "half the time 1, half the time 3: {mean}");
}
