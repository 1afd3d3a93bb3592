//! Compares every bucket boundary with its definition, in arbitrary-precision integers: `ns > 10^9 * 2^(k/8)` if and only if
//! `ns^8 > 10^72 * 2^k`.

use biolat_common::bucket::{BUCKETS, FIRST, FIRST_NATIVE_INDEX, OVERFLOW, cell};
use num_bigint::BigUint;

/// Whether `ns` is above the upper boundary of native bucket `index`.
fn above(ns: u64, index: i32) -> bool {
    let scale = BigUint::from(1_000_000_000_u64).pow(8);
    let eighth = BigUint::from(ns).pow(8);
    if index >= 0 { eighth > scale << index } else { eighth << -index > scale }
}

/// Returns the largest whole number of nanoseconds that is not above the boundary.
fn last_inside(index: i32) -> u64 {
    let (mut low, mut high) = (0, 1 << 41);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if above(middle, index) { high = middle } else { low = middle }
    }
    low
}

#[test]
fn every_boundary_and_its_neighbours() {
    for bucket in 0..=BUCKETS {
        let upper = FIRST_NATIVE_INDEX - 1 + bucket as i32;
        let inside = last_inside(upper);
        let expected = FIRST - 1 + bucket;
        assert_eq!(cell(inside), expected, "{inside} ns is the last of native bucket {upper}");
        assert_eq!(cell(inside + 1), expected + 1, "{} ns is above native bucket {upper}", inside + 1);
        let before = cell(inside - 1);
        assert!(before == expected || (bucket <= 8 && before < expected), "{} ns", inside - 1);
    }
    assert_eq!(cell(last_inside(80) + 1), OVERFLOW);
}

#[test]
fn random_latencies_lie_between_their_boundaries() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..50_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let ns = (state & ((1 << 40) - 1)) >> ((state >> 58) % 40);
        let cell = cell(ns);
        if cell < FIRST {
            assert!(!above(ns, FIRST_NATIVE_INDEX - 1), "{ns} ns in the zero bucket");
        } else if cell == OVERFLOW {
            assert!(above(ns, 80), "{ns} ns above the range");
        } else {
            let index = FIRST_NATIVE_INDEX + (cell - FIRST) as i32;
            assert!(above(ns, index - 1) && !above(ns, index), "{ns} ns in native bucket {index}");
        }
    }
}
