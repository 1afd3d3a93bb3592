//! How the counts of a histogram are read where each has a length of its own. They are written so no more: files may have them.

use super::{COUNT_LENGTH, Cells, from_zigzag, sum_length};
use crate::history::bits::{BitReader, length};

impl<const QUADS: usize> Cells<QUADS> {
    pub(super) fn read_format_1(
        &mut self,
        reader: &mut BitReader<'_>,
        similar: Option<&Self>,
        known_ns: Option<u64>,
    ) {
        // The zero bucket is the first of the cells, and may have no count.
        let cells = Self::OVERFLOW + 2;
        let first_length = cells.ilog2();
        let start = (reader.value(first_length) as usize).min(cells);
        let end = start.saturating_add(reader.value(first_length - 1) as usize).min(cells);
        if end > start.max(1) {
            self.touch(start.max(1) - 1..end - 1);
        }
        let similar = similar.filter(|_| reader.flag());
        let (mut expected, mut longest) = (COUNT_LENGTH, 0);
        for cell in start..end {
            let (difference, length_of) = reader.number(expected);
            expected = length_of;
            let count = similar.map_or(difference, |similar| {
                let other = cell.checked_sub(1).map_or(similar.zero, |cell| similar.get(cell));
                other.wrapping_add(from_zigzag(difference))
            });
            match cell.checked_sub(1) {
                Some(cell) => self.set(cell, count),
                None => self.zero = count,
            }
            longest = longest.max(sum_length(cell * Self::WIDTH, length(count)));
        }
        self.sum_ns = match known_ns {
            Some(known) => reader.value(0).wrapping_add(known),
            None => reader.value(longest),
        };
    }
}
