//! Integer-only bucket arithmetic: maps nanoseconds to a cell of a histogram in Prometheus' exponential schema 3, whose unit is
//! the second.
//!
//! A latency is in native bucket `i` if `2^((i-1)/8) < seconds <= 2^(i/8)`. The eight boundaries of an octave, in nanoseconds and
//! shifted so that their top bit is bit 39, are the same eight numbers in every octave. The top bits of a latency, shifted the
//! same way, select one of 16 segments, each of which contains at most one boundary. One table lookup and one addition with its
//! carry give the number of boundaries below the latency.
//!
//! The common case has no branches. The probe inlines several copies of it, and each branch would be mispredicted and double the
//! paths that the verifier walks.

/// Number of cells of a histogram in the kernel. Cells above [`OVERFLOW`] stay zero: 256 cells allow a mask to bound the index,
/// without a comparison.
pub const CELLS: usize = 256;

/// Cells `0..FIRST` together are the zero bucket, up to 2^-20 s. There are eight, so the arithmetic needs no special case for it.
pub const FIRST: usize = 8;

/// Upper bound of the zero bucket: 2^-20 s, rounded down.
pub const ZERO_BUCKET_NS: u64 = 953;

/// Cell of latencies above 2^10 s.
pub const OVERFLOW: usize = 248;

/// Number of buckets between the zero bucket and the overflow cell: 30 octaves of 8.
pub const BUCKETS: usize = OVERFLOW - FIRST;

/// Schema of the native histograms: 2^3 buckets per octave.
pub const SCHEMA: u32 = 3;

/// Native index of the first bucket, `(2^-20, 2^(-20 + 1/8)]` seconds.
pub const FIRST_NATIVE_INDEX: i32 = -20 * (1 << SCHEMA) + 1;

/// Upper bound of the zero bucket, as a power of two in seconds.
pub const ZERO_EXPONENT: i32 = -20;

/// Upper bound of the last bucket, as a power of two in seconds.
pub const TOP_EXPONENT: i32 = 10;

/// Upper limit of latencies that [`cell`] accepts, exclusive: 2^40 ns, a little over 18 minutes.
pub const LIMIT_NS: u64 = 1 << 40;

/// Upper limit of latencies that [`common_cell`] accepts, exclusive: 2^25 ns, 33 ms.
pub const COMMON_LIMIT_NS: u64 = 1 << 25;

/// Returns the difference, or 0 if it is negative, without a branch.
#[inline(always)]
#[must_use]
pub const fn positive(difference: u64) -> u64 {
    difference & !((difference.cast_signed() >> 63).cast_unsigned())
}

/// The left shift that moves the top bit of a latency below 2^17 ns to bit 39, indexed by bits 9 to 16 of the latency.
static SHIFTS: [u8; 256] = {
    let mut table = [30; 256];
    let mut byte = 1;
    while byte < table.len() {
        table[byte] = 30 - byte.ilog2() as u8;
        byte += 1;
    }
    table
};

/// The boundaries within an octave, ascending: `floor(10^9 * 2^(k/8))`, shifted so that the top bit is bit 39.
const BOUNDARIES: [u64; 8] = [
    558_339_959_124,
    608_874_042_881,
    663_981_851_981,
    724_077_343_935,
    789_611_942_608,
    861_077_929_219,
    939_012_140_241,
    1_024_000_000_000,
];

/// Indexed by segment. Each entry is the number of boundaries below the segment plus 240 (8 for each bit of the largest shift),
/// in units of 2^40, plus an offset that carries into bit 40 when added to a mantissa above the segment's own boundary. The first
/// half is for latencies below 512 ns, whose bit 39 is clear after the shift.
static STEPS: [u64; 32] = steps();

const fn steps() -> [u64; 32] {
    let mut table = [240 << 40; 32];
    let mut segment = 16;
    while segment < 32 {
        let start = (segment as u64) << 35;
        let end = start + (1 << 35);
        let mut below = 0;
        let mut boundary = LIMIT_NS - 1;
        let mut i = 0;
        while i < BOUNDARIES.len() {
            if BOUNDARIES[i] < start {
                below += 1;
            } else if BOUNDARIES[i] < end {
                boundary = BOUNDARIES[i];
            }
            i += 1;
        }
        table[segment] = ((240 + below) << 40) + (LIMIT_NS - 1 - boundary);
        segment += 1;
    }
    table
}

/// Returns the cell of a latency below [`LIMIT_NS`].
#[inline(always)]
#[must_use]
pub fn cell(ns: u64) -> usize {
    let units = (ns >> 9) as u32;
    if units >> 16 == 0 { common_cell(ns) } else { shifted_cell(ns, shift(units >> 16) - 16) }
}

/// Returns the cell of a latency below [`COMMON_LIMIT_NS`].
#[inline(always)]
#[must_use]
pub fn common_cell(ns: u64) -> usize {
    shifted_cell(ns, shift((ns >> 9) as u32))
}

/// The left shift that moves the top bit of a latency to bit 39. `units` are bits 9 to 24 of the latency.
#[inline(always)]
fn shift(units: u32) -> u32 {
    let upper = 0xff_u32.wrapping_sub(units) >> 31 << 3;
    u32::from(SHIFTS[(units >> upper) as usize & 0xff]).wrapping_sub(upper)
}

#[inline(always)]
fn shifted_cell(ns: u64, shift: u32) -> usize {
    let mantissa = ns << (shift & 63);
    let step = STEPS[(mantissa >> 35) as usize & 31];
    ((step.wrapping_add(mantissa) >> 40) as u32).wrapping_sub(8 * shift) as usize & (CELLS - 1)
}

/// Returns the native index, in schema 3, of a cell in `FIRST..OVERFLOW`.
#[must_use]
pub const fn native_index(cell: usize) -> i32 {
    FIRST_NATIVE_INDEX + (cell - FIRST) as i32
}

/// Adds the cells of another histogram, modulo 2^32. Most blocks of eight cells are zero, and are skipped.
pub fn add_cells(sums: &mut [u32], cells: &[u32]) {
    for (sums, cells) in sums.chunks_mut(8).zip(cells.chunks(8)) {
        if let &[a, b, c, d, e, f, g, h] = cells
            && a | b | c | d | e | f | g | h == 0
        {
            continue;
        }
        for (sum, cell) in sums.iter_mut().zip(cells) {
            *sum = sum.wrapping_add(*cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BUCKETS, CELLS, COMMON_LIMIT_NS, FIRST, LIMIT_NS, OVERFLOW, ZERO_BUCKET_NS, cell, common_cell,
        native_index,
    };

    #[test]
    fn range_limits() {
        assert!(cell(0) < FIRST && cell(1) < FIRST && cell(511) < FIRST && cell(512) < FIRST);
        assert_eq!(cell(ZERO_BUCKET_NS), FIRST - 1);
        assert_eq!(cell(ZERO_BUCKET_NS + 1), FIRST);
        assert_eq!(cell(1_024_000_000_000), OVERFLOW - 1);
        assert_eq!(cell(1_024_000_000_001), OVERFLOW);
        assert_eq!(cell(LIMIT_NS - 1), OVERFLOW);
        assert_eq!(BUCKETS, 240);
        const { assert!(OVERFLOW < CELLS) };
    }

    #[test]
    fn whole_seconds_end_an_octave() {
        assert_eq!(native_index(cell(1_000_000_000)), 0);
        assert_eq!(native_index(cell(1_000_000_001)), 1);
        assert_eq!(native_index(cell(2_000_000_000)), 8);
        assert_eq!(native_index(cell(500_000_000)), -8);
    }

    #[test]
    fn common_cell_equals_cell() {
        for ns in (0..COMMON_LIMIT_NS).step_by(7).chain(COMMON_LIMIT_NS - 100..COMMON_LIMIT_NS) {
            assert_eq!(common_cell(ns), cell(ns), "{ns} ns");
        }
    }

    #[test]
    fn cells_never_decrease() {
        let mut last = 0;
        for octave in 0..40 {
            for step in 0..512_u64 {
                let now = cell((1_u64 << octave) + ((1_u64 << octave) * step) / 512);
                assert!(now >= last, "at octave {octave} step {step}");
                last = now;
            }
        }
    }
}
