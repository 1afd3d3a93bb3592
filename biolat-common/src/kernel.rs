//! What the daemon tells the probe of the running kernel, as constants in the probe's own instructions: see
//! [`Layout::fill`]. A branch on a flag here costs nothing, as the verifier removes the side not taken.

use core::mem::size_of;

/// Member offsets, flags and numbers, all from the kernel's BTF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// `request.cmd_flags`.
    pub cmd_flags: u32,
    /// `request.rq_flags`.
    pub rq_flags: u32,
    /// `request.__data_len`.
    pub data_len: u32,
    /// `request.bio`.
    pub bio: u32,
    /// `request.start_time_ns`.
    pub start_time_ns: u32,
    /// `request.io_start_time_ns`.
    pub io_start_time_ns: u32,
    /// `request.rq_disk`, or `request.q` where there is none (5.17 and later).
    pub queue_or_disk: u32,
    /// `request_queue.disk`.
    pub queue_disk: u32,
    /// 1 where the disk hangs on the queue, 0 where it hangs on the request (before 5.17).
    pub disk_on_queue: u32,
    /// `gendisk.diskseq`, or `gendisk.major` where there is none (before 5.15).
    pub disk_id: u32,
    /// `gendisk.first_minor`.
    pub first_minor: u32,
    /// 1 where a device's id is its sequence number, which is never used twice; 0 where it is made of its numbers.
    pub id_is_sequence: u32,
    /// `RQF_FLUSH_SEQ` as a mask.
    pub flush_sequence: u32,
    /// `RQF_IO_STAT` as a mask.
    pub io_stat: u32,
    /// `REQ_OP_FLUSH`.
    pub op_flush: u32,
    /// The lowest passthrough op.
    pub op_passthrough: u32,
    /// 1 where the tracepoint carries an errno instead of a status (before 5.16).
    pub status_is_errno: u32,
}

/// Stands for a number of the layout: the immediate of a 32-bit move is this, plus the number of the field.
pub const NUMBER_MARK: i32 = 0x6b1a_7a00;

/// Stands for the offset of a member: that of a load is this, plus the number of the layout's field.
pub const MEMBER_MARK: i32 = 0x6b00;

const FIELDS: usize = size_of::<Layout>() / size_of::<u32>();

/// Instructions that are marked: `w = immediate`, and loads of 4 and 8 bytes.
///
/// <https://www.kernel.org/doc/html/v6.12/bpf/standardization/instruction-set.html>
const MOVE: u8 = 0xb4;
const LOADS: [u8; 2] = [0x61, 0x79];

impl Layout {
    /// The fields, by their numbers.
    const fn fields(self) -> [u32; FIELDS] {
        // SAFETY: `repr(C)`, all of it `u32`.
        unsafe { core::mem::transmute(self) }
    }

    /// Puts what is told in the place of the marks in a program's instructions; how many there were. `None` if a mark
    /// is of no field, or an offset too large for a load.
    pub fn fill(self, code: &mut [u8]) -> Option<usize> {
        let fields = self.fields();
        let mut filled = 0;
        for instruction in code.as_chunks_mut::<8>().0 {
            let offset = i16::from_le_bytes([instruction[2], instruction[3]]);
            let number = i32::from_le_bytes([instruction[4], instruction[5], instruction[6], instruction[7]]);
            if instruction[0] == MOVE && number & !0xff == NUMBER_MARK {
                let field = fields.get((number & 0xff) as usize)?;
                instruction[4..].copy_from_slice(&field.to_le_bytes());
            } else if LOADS.contains(&instruction[0]) && i32::from(offset) & !0xff == MEMBER_MARK {
                let field = *fields.get((offset & 0xff) as usize)?;
                instruction[2..4].copy_from_slice(&i16::try_from(field).ok()?.to_le_bytes());
            } else {
                continue;
            }
            filled += 1;
        }
        Some(filled)
    }
}

/// The id of a device by its numbers, where there is no sequence number. Numbers of disks are multiples of 8 or 16 or
/// all alike but for the major one; what tells them apart goes to the lowest bits, by which series find their place.
#[inline(always)]
#[must_use]
pub const fn device_number(major: u32, minor: u32) -> u64 {
    let mixed = minor ^ minor >> 4 ^ major.wrapping_mul(29) & 0xf_ffff;
    (major as u64) << 20 | mixed as u64
}

#[cfg(test)]
mod tests {
    use super::{Layout, MEMBER_MARK, NUMBER_MARK};

    fn instruction(code: u8, offset: i32, number: i32) -> [u8; 8] {
        let ([o0, o1], [n0, n1, n2, n3]) = ((offset as i16).to_le_bytes(), number.to_le_bytes());
        [code, 0x21, o0, o1, n0, n1, n2, n3]
    }

    #[test]
    fn marks_become_what_is_told() {
        let layout = Layout { rq_flags: 28, status_is_errno: 1, io_stat: 1 << 31, ..Layout::default() };
        let code = |io_stat: i32, errno: i32, flags: i32| {
            [
                instruction(0xb4, 0, io_stat),
                instruction(0x61, flags, 0),
                // A 64-bit move and a store are none.
                instruction(0xb7, 0, NUMBER_MARK),
                instruction(0x63, MEMBER_MARK, 0),
                instruction(0xb4, 0, errno),
                instruction(0x79, flags, 0),
            ]
            .concat()
        };
        let mut marked = code(NUMBER_MARK + 13, NUMBER_MARK + 16, MEMBER_MARK + 1);
        assert_eq!(layout.fill(&mut marked), Some(4));
        assert_eq!(marked, code(i32::MIN, 1, 28));
        assert_eq!(layout.fill(&mut marked), Some(0));
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        let too_far = Layout { cmd_flags: 40_000, ..Layout::default() };
        assert_eq!(too_far.fill(&mut instruction(0x79, MEMBER_MARK, 0)), None);
        assert_eq!(Layout::default().fill(&mut instruction(0xb4, 0, NUMBER_MARK + 17)), None);
    }
}
