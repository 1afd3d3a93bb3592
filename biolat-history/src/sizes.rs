//! The I/O of one device and op in an interval, by size.

use biolat_common::size::{BAND_NAMES, BANDS, CELLS, cells_of_band};
use biolat_model::{
    size_histogram::SizeHistogram,
    snapshot::{BandView, SizesView},
};

use super::{
    bits::{BitReader, BitWriter},
    cells::{BandCells, from_zigzag, zigzag},
    quads::{Quad, longest},
};

const REQUEST_QUADS: usize = CELLS.div_ceil(4);

/// Request counts by size, and latencies by band.
#[derive(Default)]
pub(super) struct SizesDelta {
    /// Whether sizes are counted.
    is_counted: bool,
    requests: [u64; CELLS],
    bands: [BandCells; BANDS],
}

impl SizesDelta {
    pub(super) fn clear(&mut self) {
        (self.is_counted, self.requests) = Default::default();
        self.bands.iter_mut().for_each(BandCells::clear);
    }

    /// Adds the growth since `before`. Returns false if any count went down.
    pub(super) fn add_growth(&mut self, before: Option<&SizesView>, after: Option<&SizesView>) -> bool {
        let Some(after) = after else { return true };
        let none = SizesView::default();
        let before = before.unwrap_or(&none);
        self.is_counted = true;
        let mut is_continued = true;
        let (had, has) = (before.requests.cells(), after.requests.cells());
        for (count, (had, has)) in self.requests.iter_mut().zip(had.into_iter().zip(has)) {
            is_continued &= has >= had;
            *count = has.saturating_sub(had);
        }
        for BandView { size, device: latencies } in &after.bands {
            let none = Default::default();
            let had = before.bands.iter().find(|had| had.size == *size).map_or(&none, |had| &had.device);
            if let Some(number) = BAND_NAMES.iter().position(|known| known == size) {
                let band = &mut self.bands[number];
                is_continued &= band.add_growth(had.at_most_schema_1(), latencies.at_most_schema_1());
            }
        }
        is_continued && before.bands.len() <= after.bands.len()
    }

    /// Writes the sizes. `all` holds the expected latencies of all bands together.
    pub(super) fn write(&self, writer: &mut BitWriter, all: &BandCells) {
        writer.flag(self.is_counted);
        if !self.is_counted {
            return;
        }
        self.bands.iter().for_each(|band| writer.flag(!band.is_empty()));
        let last = self.bands.iter().rposition(|band| !band.is_empty());
        let mut rest = all.clone();
        for (number, band) in self.bands.iter().enumerate().filter(|(_, band)| !band.is_empty()) {
            let known_ns = (Some(number) == last).then_some(rest.sum_ns);
            band.write(writer, Some(&rest), known_ns);
            rest.subtract(band);
        }
        let mut before = 0;
        for quad in self.written_requests() {
            let length = longest(quad);
            writer.quad(quad, length, before);
            before = length;
        }
    }

    /// The request counts as written: the last cell of a band only stores the difference from the band's count.
    fn written_requests(&self) -> [Quad; REQUEST_QUADS] {
        let mut written = [[0; 4]; REQUEST_QUADS];
        let cells = written.as_flattened_mut();
        cells[..CELLS].copy_from_slice(&self.requests);
        for (number, band) in self.bands.iter().enumerate() {
            if let Some((last, others)) = cells[cells_of_band(number)].split_last_mut() {
                let rest = others.iter().fold(band.count(), |rest, count| rest.wrapping_sub(*count));
                *last = zigzag(last.wrapping_sub(rest));
            }
        }
        written
    }

    /// Adds sizes that [`Self::write`] wrote.
    pub(super) fn add_read(&mut self, reader: &mut BitReader<'_>, all: &BandCells) {
        if !reader.flag() {
            return;
        }
        self.is_counted = true;
        let is_present: [bool; BANDS] = std::array::from_fn(|_| reader.flag());
        let last = is_present.iter().rposition(|is_present| *is_present);
        let (mut rest, mut read) = (all.clone(), BandCells::default());
        let mut counts = [0; BANDS];
        for number in (0..BANDS).filter(|&number| is_present[number]) {
            let known_ns = (Some(number) == last).then_some(rest.sum_ns);
            read.read(reader, Some(&rest), known_ns);
            counts[number] = read.count();
            self.bands[number].add_all(&read);
            rest.subtract(&read);
        }
        let (mut requests, mut before) = ([[0; 4]; REQUEST_QUADS], 0);
        for quad in &mut requests {
            (*quad, before) = reader.quad(before);
        }
        let cells = requests.as_flattened_mut();
        for (number, count) in counts.into_iter().enumerate() {
            if let Some((last, others)) = cells[cells_of_band(number)].split_last_mut() {
                let rest = others.iter().fold(count, |rest, count| rest.wrapping_sub(*count));
                *last = rest.wrapping_add(from_zigzag(*last));
            }
        }
        for (sum, count) in self.requests.iter_mut().zip(cells) {
            *sum = sum.wrapping_add(*count);
        }
    }

    /// `None` if sizes are not counted.
    pub(super) fn view(&self) -> Option<SizesView> {
        let bands = BAND_NAMES.into_iter().zip(&self.bands).filter(|(_, band)| !band.is_empty());
        self.is_counted.then(|| SizesView {
            requests: SizeHistogram::from_cells(&self.requests),
            bands: bands
                .map(|(name, band)| BandView { size: name.into(), device: band.histogram().into() })
                .collect(),
        })
    }
}
