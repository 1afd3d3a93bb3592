//! Request sizes: maps a size to the size histogram cell that counts the request, and to the band that counts its latency.
//!
//! A band is a range of sizes. Its latency histogram has two buckets per octave; each bucket covers four cells of
//! [`crate::bucket`].

use core::mem::{offset_of, size_of};

use crate::{
    bucket::{self, add_cells},
    series::Series,
};

/// Number of cells of the size histogram. The first cell is for sizes up to 256 bytes, cell `n` for sizes above 2^(n+7) and up to
/// 2^(n+8) bytes, and the last one for sizes above 16 MiB.
pub const CELLS: usize = 18;

/// Upper bound of the first cell.
pub const ZERO_BUCKET_BYTES: u32 = 1 << ZERO_EXPONENT;

/// Upper bound of the first cell, as a power of two in bytes.
pub const ZERO_EXPONENT: i32 = 8;

/// Upper bound of the last cell but one, as a power of two in bytes.
pub const TOP_EXPONENT: i32 = ZERO_EXPONENT + CELLS as i32 - 2;

/// Upper limit of sizes that [`common_place`] accepts, inclusive: 16 MiB.
pub const COMMON_LIMIT: u32 = 1 << TOP_EXPONENT;

/// Number of size bands, each with its own latency histogram.
pub const BANDS: usize = 6;

/// Names of the bands, after their upper bounds.
pub const BAND_NAMES: [&str; BANDS] = ["le_4KiB", "le_16KiB", "le_64KiB", "le_256KiB", "le_1MiB", "gt_1MiB"];

/// Number of cells of a band's histogram.
pub const BAND_CELLS: usize = bucket::CELLS / 4;

/// Schema of a band's histogram: 2^1 buckets per octave.
pub const BAND_SCHEMA: u32 = bucket::SCHEMA - 2;

/// Where a request is counted: the cell of the size histogram in bits 0 to 4, the band in the bits above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u8);

impl Place {
    const fn new(cell: usize) -> Self {
        Self((cell | band(cell) << 5) as u8)
    }

    /// Applies a function to the encoded place.
    #[inline(always)]
    #[must_use]
    pub fn map(self, change: impl FnOnce(u8) -> u8) -> Self {
        Self(change(self.0))
    }

    /// The cell of the size histogram.
    #[inline(always)]
    #[must_use]
    pub const fn cell(self) -> usize {
        (self.0 & 31) as usize
    }

    /// The band. Requests without data have none.
    #[inline(always)]
    #[must_use]
    pub const fn band(self) -> usize {
        (self.0 >> 5) as usize
    }
}

/// Places by size. The first half is indexed by `(bytes - 1) / 256`, the second half by `(bytes - 1) / 65536`.
static PLACES: [Place; 512] = {
    let mut table = [Place::new(0); 512];
    let mut index = 0;
    while index < table.len() {
        let (units, smaller) = if index < 256 { (index, 0) } else { (index - 256, 8) };
        table[index] = Place::new(smaller + (usize::BITS - units.leading_zeros()) as usize);
        index += 1;
    }
    table
};

/// Returns the place for any size.
#[inline(always)]
#[must_use]
pub fn place(bytes: u32) -> Place {
    match bytes {
        0 => Place::new(0),
        1..=COMMON_LIMIT => common_place(bytes),
        _ => Place::new(CELLS - 1),
    }
}

/// Returns the place for a size from 1 to [`COMMON_LIMIT`].
#[inline(always)]
#[must_use]
pub fn common_place(bytes: u32) -> Place {
    let units = bytes.wrapping_sub(1) >> ZERO_EXPONENT;
    let upper = 0xff_u32.wrapping_sub(units) >> 31 << 3;
    PLACES[((units >> upper) & 0xff | upper << 5) as usize]
}

/// Returns the band that a cell of the size histogram belongs to. The first band has the cells up to 4, each band after it has
/// two, and the last one has the rest.
#[must_use]
pub const fn band(cell: usize) -> usize {
    let band = cell.saturating_sub(3) / 2;
    if band < BANDS { band } else { BANDS - 1 }
}

/// Returns the cells of the size histogram that belong to a band. The first cell belongs to none.
#[must_use]
pub const fn cells_of_band(band: usize) -> core::ops::Range<usize> {
    let start = if band == 0 { 1 } else { 2 * band + 3 };
    start..if band == BANDS - 1 { CELLS } else { 2 * band + 5 }
}

/// Converts a cell of [`crate::bucket`] to the matching cell of a band's histogram.
#[inline(always)]
#[must_use]
pub const fn band_cell(cell: usize) -> usize {
    (cell / 4) & (BAND_CELLS - 1)
}

/// Per-size counters of one series on one CPU. They only grow, and wrap on overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sizes {
    /// Sum of the latencies in [`Self::bands`], by band, in nanoseconds.
    pub band_ns: [u64; BANDS],
    /// Number of requests by size cell: see [`place`].
    pub requests: [u32; CELLS],
    /// Latencies of requests with data, by band and [`band_cell`]: the device latency or, if there is no dispatch timestamp, the
    /// total latency.
    pub bands: [[u32; BAND_CELLS]; BANDS],
    /// Number of requests in [`Self::bands`] without a dispatch timestamp.
    pub undispatched: u64,
}

impl Sizes {
    /// All counters at zero.
    pub const ZERO: Self =
        Self { band_ns: [0; BANDS], requests: [0; CELLS], bands: [[0; BAND_CELLS]; BANDS], undispatched: 0 };
}

/// Both patterns name every field without `..`, so code with a new field does not compile until the field is handled here.
#[deny(unused_variables)]
impl Sizes {
    /// Adds the counters of another CPU.
    pub fn merge(&mut self, other: &Self) {
        let Self { band_ns, requests, bands, undispatched } = other;
        self.undispatched = self.undispatched.wrapping_add(*undispatched);
        for (sum, ns) in self.band_ns.iter_mut().zip(band_ns) {
            *sum = sum.wrapping_add(*ns);
        }
        for (sum, count) in self.requests.iter_mut().zip(requests) {
            *sum = sum.wrapping_add(*count);
        }
        add_cells(self.bands.as_flattened_mut(), bands.as_flattened());
    }

    /// Returns how much the counters have grown since `earlier`, even across a wrap.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let Self { band_ns, requests, bands, undispatched } = earlier;
        let mut growth = *self;
        growth.undispatched = growth.undispatched.wrapping_sub(*undispatched);
        for (growth, before) in growth.band_ns.iter_mut().zip(band_ns) {
            *growth = growth.wrapping_sub(*before);
        }
        for (growth, before) in growth.requests.iter_mut().zip(requests) {
            *growth = growth.wrapping_sub(*before);
        }
        for (growth, before) in growth.bands.as_flattened_mut().iter_mut().zip(bands.as_flattened()) {
            *growth = growth.wrapping_sub(*before);
        }
        growth
    }
}

/// All counters of one series on one CPU: a row of the arrays of counters. With `--sizes off`, a row is just the series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Latencies, bytes and errors.
    pub series: Series,
    /// Counters by size.
    pub sizes: Sizes,
}

impl Counters {
    /// All counters at zero.
    pub const ZERO: Self = Self { series: Series::ZERO, sizes: Sizes::ZERO };

    /// Adds `other` to these counters.
    pub fn merge(&mut self, other: &Self) {
        self.series.merge(&other.series);
        self.sizes.merge(&other.sizes);
    }

    /// Returns how much the counters have grown since `earlier`, even across a wrap.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self { series: self.series.since(&earlier.series), sizes: self.sizes.since(&earlier.sizes) }
    }
}

/// Progress of a request that completes in parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Parts {
    /// Allocation time of the request, which distinguishes it from an earlier request at the same address.
    pub allocated_at: u64,
    /// Bytes of the parts completed so far.
    pub bytes: u64,
}

/// Maximum number of partially completed requests that are tracked. Beyond that, the map evicts the least recently used entries;
/// the size counted for an evicted request is too small or unknown.
pub const MAX_PARTS: usize = 2048;

/// The ABI between the probe and the daemon.
const _: () = {
    assert!(offset_of!(Sizes, band_ns) == 0);
    assert!(offset_of!(Sizes, requests) == 48);
    assert!(offset_of!(Sizes, bands) == 120);
    assert!(offset_of!(Sizes, undispatched) == 120 + BANDS * BAND_CELLS * 4);
    assert!(size_of::<Sizes>() == 128 + BANDS * BAND_CELLS * 4);
    assert!(offset_of!(Counters, sizes) == size_of::<Series>());
    assert!(size_of::<Counters>() == 5888);
    assert!(bucket::FIRST.is_multiple_of(4) && bucket::OVERFLOW.is_multiple_of(4));
};

#[cfg(test)]
mod tests {
    use super::{
        BAND_NAMES, BANDS, CELLS, COMMON_LIMIT, Sizes, band, band_cell, cells_of_band, common_place, place,
    };
    use crate::bucket;

    #[test]
    fn upper_bounds_of_size_cells_are_inclusive() {
        for exponent in 9..=24_u32 {
            let (n, bound) = (exponent as usize - 8, 1 << exponent);
            for (bytes, expected) in [(bound - 1, n), (bound, n), (bound + 1, n + 1), (bound / 2 + 1, n)] {
                assert_eq!(place(bytes).cell(), expected, "{bytes}");
            }
        }
        assert_eq!([0, 1, 36, 256, 257].map(|bytes| place(bytes).cell()), [0, 0, 0, 0, 1]);
        assert_eq!(place(u32::MAX).cell(), CELLS - 1);
        for bytes in (1..=COMMON_LIMIT).step_by(509) {
            assert_eq!(common_place(bytes), place(bytes));
        }
    }

    #[test]
    fn bands_are_named_after_their_upper_bounds() {
        let name = |bytes| BAND_NAMES[place(bytes).band()];
        for (kib, own, next) in [
            (4, "le_4KiB", "le_16KiB"),
            (16, "le_16KiB", "le_64KiB"),
            (64, "le_64KiB", "le_256KiB"),
            (256, "le_256KiB", "le_1MiB"),
            (1024, "le_1MiB", "gt_1MiB"),
        ] {
            assert_eq!((name(kib << 10), name((kib << 10) + 1)), (own, next), "{kib} KiB");
        }
        assert_eq!((name(512), name(1 << 31)), ("le_4KiB", "gt_1MiB"));
    }

    #[test]
    fn every_cell_with_data_belongs_to_one_band() {
        let mut cells = (0..BANDS).flat_map(|band| cells_of_band(band).map(move |cell| (cell, band)));
        assert!((1..CELLS).all(|cell| cells.next() == Some((cell, band(cell)))));
        assert_eq!(cells.next(), None);
    }

    /// The zero bucket and the overflow cell are whole band cells, and every band bucket ends at a schema 3 boundary.
    #[test]
    fn four_cells_make_one_band_cell() {
        assert_eq!(band_cell(bucket::FIRST - 1) + 1, band_cell(bucket::FIRST));
        assert_eq!(band_cell(bucket::OVERFLOW - 1) + 1, band_cell(bucket::OVERFLOW));
        assert_eq!(bucket::native_index(bucket::FIRST).rem_euclid(4), 1);
    }

    #[test]
    fn merges_and_subtracts_every_counter_across_a_wrap() {
        let sizes = |wide: u64, narrow: u32| Sizes {
            band_ns: [wide; _],
            requests: [narrow; _],
            bands: [[narrow; _]; _],
            undispatched: wide,
        };
        let mut sum = sizes(u64::MAX - 1, u32::MAX - 1);
        let before = sum;
        sum.merge(&sizes(5, 7));
        assert_eq!(sum, sizes(3, 5));
        assert_eq!(sum.since(&before), sizes(5, 7));
    }
}
