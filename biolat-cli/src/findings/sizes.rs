//! Sizes whose I/O takes longer than the latencies of the other sizes suggest.

use biolat_common::size::BANDS;
use biolat_model::text::format::NumberFormat;

use super::words::plural;
use crate::{
    sizes::{SizeWindow, range_in_words},
    window::DeviceWindow,
};

/// Minimum number of I/Os in a band.
const MINIMUM: u64 = 30;

/// Minimum factor over the expected latency. The size histogram gives a mean size to within a factor of the square root of two,
/// and the expected latency depends on two such means.
const SLOWER: f64 = 3.0;

/// A mean too short to matter.
const SHORT: f64 = 100e-6;

/// Time for a seek and a rotation on a rotating disk: it depends on the location, not on the size.
const SEEK: f64 = 20e-3;

/// A band with enough I/Os: mean size in bytes, latencies in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Band {
    number: usize,
    bytes: f64,
    mean: f64,
    /// An upper bound on the median.
    median: f64,
}

/// A band that is abnormally slow.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SlowBand {
    band: Band,
    /// The smaller band that it is compared with.
    smaller: Band,
    /// Ratio to the expected latency.
    factor: f64,
}

pub(super) fn slow_band(device: &DeviceWindow, numbers: NumberFormat) -> Vec<String> {
    let allowance = if device.rotational { SEEK } else { 0.0 };
    let found = device.ops.iter().filter_map(|op| {
        let SlowBand { band, smaller, factor } = slowest(&bands(op.sizes.as_ref()?), allowance)?;
        Some(format!(
            "{}: {} {} take {} (mean) where those {} take {}: {factor:.0} times what the size explains.",
            device.name,
            plural(&op.name),
            range_in_words(band.number),
            numbers.latency(band.mean),
            range_in_words(smaller.number),
            numbers.latency(smaller.mean)
        ))
    });
    found.collect()
}

fn bands(sizes: &SizeWindow) -> Vec<Band> {
    let bands = (0..BANDS).filter_map(|number| {
        let latencies = &sizes.bands[number];
        (latencies.count() >= MINIMUM).then_some(Band {
            number,
            bytes: sizes.mean_bytes(number)?,
            mean: latencies.mean()?,
            median: latencies.percentile(0.5)?.upper,
        })
    });
    bands.collect()
}

/// Finds the band that exceeds its expected latency by the largest factor, if that factor is large enough. A request is expected
/// to take as long as a smaller one, plus the time for its additional bytes at the best throughput that any band shows for a
/// single request.
fn slowest(bands: &[Band], allowance: f64) -> Option<SlowBand> {
    let throughput = bands.iter().map(|band| band.bytes / band.mean).fold(0.0, f64::max);
    let compared = bands.iter().filter_map(|&band| {
        let expected = |smaller: &Band| smaller.mean + (band.bytes - smaller.bytes) / throughput;
        let smaller = bands.iter().filter(|other| other.number < band.number);
        let smaller = *smaller.min_by(|one, other| expected(one).total_cmp(&expected(other)))?;
        let limit = SLOWER * expected(&smaller) + allowance;
        // A few stalls raise the mean, but not the median.
        let is_slow = band.mean.min(band.median) > limit && band.mean >= SHORT;
        is_slow.then(|| SlowBand { band, smaller, factor: band.mean / expected(&smaller) })
    });
    compared.max_by(|one, other| one.factor.total_cmp(&other.factor))
}

#[cfg(test)]
mod tests {
    use biolat_common::size::{BAND_NAMES, TOP_EXPONENT, band, place};
    use biolat_model::text::format::NumberFormat;
    use biolat_testing::samples;
    use proptest::{array::uniform16, prelude::*};

    use super::slow_band;
    use crate::window::Window;

    /// The findings for writes, given the number of requests of each size and the latency by size.
    fn found(requests: &[(u64, u64)], latency: impl Fn(u64) -> f64, rotational: bool) -> Vec<String> {
        let requests = requests.iter().filter(|(_, count)| *count > 0);
        let requests: Vec<_> =
            requests.map(|&(bytes, count)| (place(bytes as u32).cell(), bytes, count)).collect();
        let bands = requests.chunk_by(|(one, ..), (other, ..)| band(*one) == band(*other)).map(|requests| {
            let buckets: Vec<_> =
                requests.iter().map(|(cell, _, count)| (*cell as i32 + 8, *count)).collect();
            let seconds =
                requests.iter().map(|(_, bytes, count)| latency(*bytes) * *count as f64).sum::<f64>();
            let count = requests.iter().map(|(.., count)| count).sum::<u64>() as f64;
            (BAND_NAMES[band(requests[0].0)], buckets, seconds / count)
        });
        let bands: Vec<_> = bands.collect();
        let bands: Vec<_> =
            bands.iter().map(|(name, buckets, mean)| (*name, buckets.as_slice(), *mean)).collect();
        let none = || samples::histogram(0, &[], 0, 0.0);
        let mut op = samples::op("write", 0, none(), none(), none());
        op.sizes = Some(samples::sizes(&bands));
        let mut sda = samples::device("sda", 9.0, vec![op]);
        sda.device.rotational = rotational;
        let window = Window::between(&samples::snapshot(0.0, vec![]), &samples::snapshot(60.0, vec![sda]));
        slow_band(&window.devices[0], NumberFormat::UNICODE)
    }

    /// This many requests of the largest size in each bucket.
    fn of_each(count: u64) -> Vec<(u64, u64)> {
        (9..=TOP_EXPONENT as u64).map(|exponent| (1 << exponent, count)).collect()
    }

    /// 80 µs plus the transfer at 1 GB/s, except for sizes above 256 KiB and up to 1 MiB.
    fn with_slow_band(seconds: f64) -> impl Fn(u64) -> f64 {
        move |bytes| match bytes {
            262_145..=1_048_576 => seconds,
            _ => 80e-6 + bytes as f64 / 1e9,
        }
    }

    #[test]
    fn reports_one_slow_band() {
        let expected = "sda: writes of 256 KiB to 1 MiB take 9.00 ms (mean) where those of 64 to 256 KiB take 277 µs: 10 \
                        times what the size explains.";
        assert_eq!(found(&of_each(40), with_slow_band(9e-3), false), [expected]);
        // Not reported if no longer than a seek, too few, or hardly longer than expected.
        assert!(found(&of_each(40), with_slow_band(9e-3), true).is_empty());
        assert!(!found(&of_each(40), with_slow_band(30e-3), true).is_empty());
        assert!(found(&of_each(14), with_slow_band(9e-3), false).is_empty());
        assert!(found(&of_each(40), with_slow_band(1.5e-3), false).is_empty());
    }

    /// With only two bands, limited bandwidth may explain the difference.
    #[test]
    fn two_bands_prove_nothing() {
        let latency = |bytes| if bytes == 4096 { 80e-6 } else { 9e-3 };
        assert!(found(&[(4096, 100), (1 << 20, 100)], latency, false).is_empty());
        let latency = |bytes| if bytes == 1 << 20 { 9e-3 } else { 80e-6 };
        assert_eq!(found(&[(4096, 100), (1 << 17, 100), (1 << 20, 100)], latency, false).len(), 1);
    }

    #[test]
    fn ignores_short_latencies() {
        let latency = |bytes| if bytes == 1 << 14 { 90e-6 } else { 2e-6 };
        assert!(found(&[(4096, 100), (1 << 14, 100), (1 << 20, 100)], latency, false).is_empty());
    }

    proptest! {
        /// Any distribution of sizes, anywhere within their buckets.
        #[test]
        fn ignores_latencies_that_the_size_explains(
            requests in uniform16((0_u64..500, 0.5001..=1.0_f64)),
            fixed in prop_oneof![Just(0.0), 1e-6..1e-1],
            per_byte in prop_oneof![Just(0.0), 1e-11..1e-6],
        ) {
            prop_assume!(fixed + per_byte > 0.0);
            let sizes = requests.iter().enumerate().map(|(at, &(count, part))| {
                ((part * (1_u64 << (at + 9)) as f64).ceil() as u64, count)
            });
            let sizes: Vec<_> = sizes.collect();
            let found = found(&sizes, |bytes| fixed + per_byte * bytes as f64, false);
            prop_assert!(found.is_empty(), "{found:?}");
        }
    }
}
