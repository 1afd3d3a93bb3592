//! The I/O of a window by size.

use biolat_common::size::{BAND_NAMES, BANDS, CELLS, ZERO_EXPONENT, band};
use biolat_model::{
    band_histogram::BandHistogram,
    size_histogram::SizeHistogram,
    snapshot::{BandView, SizesView},
};

/// Requests of one device and op by size.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SizeWindow {
    /// Number of requests.
    pub(super) requests: SizeHistogram,
    /// Latencies by band, in the order of [`BAND_NAMES`].
    pub(super) bands: [BandHistogram; BANDS],
}

impl SizeWindow {
    /// The requests since `before`.
    pub(super) fn since(before: Option<&SizesView>, after: &SizesView) -> Self {
        let had = before.map(by_band).unwrap_or_default();
        let has = by_band(after);
        let none = SizeHistogram::default();
        Self {
            requests: after.requests.since(before.map_or(&none, |sizes| &sizes.requests)),
            bands: std::array::from_fn(|band| has[band].since(&had[band])),
        }
    }

    /// Number and latencies of each band with requests.
    pub(super) fn busy(&self) -> impl Iterator<Item = (usize, &BandHistogram)> {
        self.bands.iter().enumerate().filter(|(_, latencies)| latencies.count() > 0)
    }

    /// Mean size of a band's requests in bytes, estimated from the size histogram: accurate to within a factor of the square root
    /// of two. `None` without data.
    pub(super) fn mean_bytes(&self, number: usize) -> Option<f64> {
        let cells = self.requests.cells();
        // The first cell is mostly requests without data, which no band counts.
        let of_band = (1..CELLS).filter(|&cell| band(cell) == number);
        let (count, bytes) = of_band.fold((0.0, 0.0), |(count, bytes), cell| {
            let requests = cells[cell] as f64;
            (count + requests, bytes + requests * middle(cell))
        });
        (count > 0.0).then(|| bytes / count)
    }
}

/// The geometric midpoint of a cell's sizes.
fn middle(cell: usize) -> f64 {
    (f64::from(ZERO_EXPONENT) + cell as f64 - 0.5).exp2()
}

/// Latencies by band. Bands with unknown names are left out.
fn by_band(sizes: &SizesView) -> [BandHistogram; BANDS] {
    let mut bands = <[BandHistogram; BANDS]>::default();
    for BandView { size, device } in &sizes.bands {
        if let Some(number) = BAND_NAMES.iter().position(|name| name == size) {
            bands[number].add(device);
        }
    }
    bands
}

/// The sizes of a band in a table.
pub(super) fn range(band: usize) -> &'static str {
    ["up to 4 KiB", "4-16 KiB", "16-64 KiB", "64-256 KiB", "256 KiB-1 MiB", "above 1 MiB"][band]
}

/// The sizes of a band in a sentence: `reads of 4 to 16 KiB`.
pub(super) fn range_in_words(band: usize) -> &'static str {
    [
        "up to 4 KiB",
        "of 4 to 16 KiB",
        "of 16 to 64 KiB",
        "of 64 to 256 KiB",
        "of 256 KiB to 1 MiB",
        "of more than 1 MiB",
    ][band]
}

#[cfg(test)]
mod tests {
    use biolat_common::size::{BAND_NAMES, BANDS};
    use biolat_testing::samples::sizes;

    use super::{SizeWindow, range, range_in_words};

    #[test]
    fn sizes_are_the_growth_of_counters() {
        let before = sizes(&[("le_4KiB", &[(12, 10)], 1e-4), ("gt_1MiB", &[(21, 1)], 1e-2)]);
        let after = sizes(&[("le_4KiB", &[(12, 14)], 1e-4), ("le_64KiB", &[(15, 2), (16, 2)], 1e-3)]);
        let window = SizeWindow::since(Some(&before), &after);
        let busy: Vec<_> = window.busy().map(|(band, latencies)| (band, latencies.count())).collect();
        assert_eq!(busy, [(0, 4), (2, 4)]);
        assert_eq!(window.requests.buckets, [(12, 4), (15, 2), (16, 2)]);
        assert!((window.bands[0].mean().unwrap() - 1e-4).abs() < 1e-9);
        assert!((window.mean_bytes(0).unwrap() - 4096.0 / 2_f64.sqrt()).abs() < 1e-6);
        assert!((window.mean_bytes(2).unwrap() - 49152.0 / 2_f64.sqrt()).abs() < 1e-6);
        assert_eq!(window.mean_bytes(1), None);
    }

    #[test]
    fn ignores_unknown_bands_and_sums_duplicates() {
        let given =
            sizes(&[("le_2GiB", &[], 1.0), ("le_4KiB", &[(12, 1)], 1e-4), ("le_4KiB", &[(12, 2)], 1e-4)]);
        let window = SizeWindow::since(None, &given);
        assert_eq!(
            window.busy().map(|(band, latencies)| (band, latencies.count())).collect::<Vec<_>>(),
            [(0, 3)]
        );
    }

    #[test]
    fn ranges_match_the_names_of_bands() {
        for (band, name) in BAND_NAMES[..BANDS - 1].iter().enumerate() {
            let largest = name.strip_prefix("le_").unwrap();
            for words in [range(band), range_in_words(band)] {
                assert!(words.replace(' ', "").ends_with(largest), "{words}");
            }
        }
    }
}
