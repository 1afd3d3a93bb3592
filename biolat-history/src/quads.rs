//! Packs four numbers at a time, each in as many bits as the longest of them needs: neighbours in a histogram have similar
//! lengths.

use super::bits::{BitReader, BitWriter, length};

/// Four neighbouring counts.
pub(super) type Quad = [u64; 4];

/// Quads up to this length are written or read in one step, together with their head.
const SHORT: u32 = 12;

/// Escape code: the length follows. Otherwise the code is the change in length from the previous quad, plus one.
const ESCAPE: u64 = 3;

/// Escape code instead of a short length: the length follows in more bits.
const LONG_ESCAPE: u64 = 15;

/// Length of the longest number.
#[inline(always)]
pub(super) const fn longest([a, b, c, d]: Quad) -> u32 {
    length(a | b | c | d)
}

impl BitWriter {
    /// Writes four numbers, the longest of which has `length` bits. The longest of the previous quad had `before` bits.
    #[inline(always)]
    pub(super) fn quad(&mut self, quad: Quad, length: u32, before: u32) {
        let longer = u64::from(length.wrapping_sub(before).wrapping_add(1));
        let (head, bits) = if longer < ESCAPE { (longer, 2) } else { (ESCAPE | u64::from(length) << 2, 6) };
        if length > SHORT {
            self.long_quad(quad, length, longer);
            return;
        }
        let [a, b, c, d] = quad;
        let all = (a | b << length) | (c | d << length) << (2 * length);
        self.bits(head | all << bits, bits + 4 * length);
    }

    #[inline(never)]
    fn long_quad(&mut self, quad: Quad, length: u32, longer: u64) {
        if longer < ESCAPE {
            self.bits(longer, 2);
        } else {
            self.bits(ESCAPE | LONG_ESCAPE << 2 | u64::from(length) << 6, 13);
        }
        for number in quad {
            self.bits(number & u64::from(u32::MAX), length.min(32));
            if length > 32 {
                self.bits(number >> 32, length - 32);
            }
        }
    }
}

impl BitReader<'_> {
    /// Reads four numbers. Returns them and the length of the longest; the longest of the previous quad had `before` bits.
    #[inline(always)]
    pub(super) fn quad(&mut self, before: u32) -> (Quad, u32) {
        let word = self.peek();
        let longer = word & ESCAPE;
        let (length, bits) = if longer < ESCAPE {
            (before.wrapping_add(longer as u32).wrapping_sub(1), 2)
        } else {
            ((word >> 2 & LONG_ESCAPE) as u32, 6)
        };
        if length > SHORT {
            return self.long_quad(before);
        }
        self.skip(bits + 4 * length);
        let (one, mask) = (word >> bits, (1 << length) - 1);
        let two = one >> (2 * length);
        ([one & mask, one >> length & mask, two & mask, two >> length & mask], length)
    }

    #[inline(never)]
    fn long_quad(&mut self, before: u32) -> (Quad, u32) {
        let longer = self.bits(2);
        let length = match longer {
            ESCAPE => (self.bits(11) >> 4) as u32,
            _ => before.wrapping_add(longer as u32).saturating_sub(1),
        };
        let length = length.min(u64::BITS);
        let number = |_| {
            let low = self.bits(length.min(32));
            low | if length > 32 { self.bits(length - 32) << 32 } else { 0 }
        };
        (std::array::from_fn(number), length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::{Quad, longest};
    use crate::bits::{BitReader, BitWriter};

    fn written(quads: &[Quad]) -> usize {
        let (mut writer, mut before) = (BitWriter::default(), quads.first().map_or(0, |quad| longest(*quad)));
        for quad in quads {
            let length = longest(*quad);
            writer.quad(*quad, length, before);
            before = length;
        }
        writer.take().len()
    }

    #[test]
    fn neighbouring_quads_are_short() {
        assert_eq!(written(&[[0; 4]; 40]), 40 * 2 / 8);
        assert_eq!(written(&[[1, 0, 1, 1]; 40]), 40 * 6 / 8);
        assert_eq!(written(&[[1 << 11; 4], [1 << 10; 4], [1 << 11; 4]].repeat(8)), 50 + 46 + 50);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn quads_survive_a_round_trip(quads in vec((any::<Quad>(), 0..=64_u32, any::<bool>()), 0..200)) {
            let quads = quads.into_iter().map(|(quad, shift, flag)| {
                (quad.map(|number| number.checked_shr(shift).unwrap_or(0)), flag)
            });
            let quads: Vec<_> = quads.collect();
            let (mut writer, mut before) = (BitWriter::default(), 0);
            for &(quad, flag) in &quads {
                let length = longest(quad);
                writer.quad(quad, length, before);
                writer.flag(flag);
                before = length;
            }
            let bytes = writer.take();
            let (mut reader, mut before) = (BitReader::new(&bytes), 0);
            for (quad, flag) in quads {
                let (read, length) = reader.quad(before);
                prop_assert_eq!((read, length, reader.flag()), (quad, longest(quad), flag));
                before = length;
            }
        }

        #[test]
        fn reads_arbitrary_bytes(bytes in vec(any::<u8>(), 0..100)) {
            let (mut reader, mut before) = (BitReader::new(&bytes), 0);
            for _ in 0..1000 {
                before = reader.quad(before).1;
            }
        }
    }
}
