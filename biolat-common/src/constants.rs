//! The constants in the probe's instructions. The compiler emits placeholders, and the daemon replaces them with the values
//! before it loads the probe: see [`Constants::relocate`]. A branch on a constant costs nothing, because the verifier removes the
//! side that is never taken.

use core::mem::size_of;

use crate::{
    kernel::KernelLayout, names::NamesLayout, processes::ProcessConstants, volumes::VolumeConstants,
    workload::Tables,
};

/// All constants. A placeholder refers to one by its index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Constants {
    /// Layout of the running kernel's structs.
    pub kernel: KernelLayout,
    /// Layout of the structs that lead to the file and the process of an I/O.
    pub names: NamesLayout,
    /// The daemon's choices.
    pub options: ProbeOptions,
    /// For the programs of [`crate::processes`], which have no [`ProbeOptions`]. This and the next one are last, so the probe's
    /// indices do not depend on them.
    pub processes: ProcessConstants,
    /// For the programs of [`crate::volumes`].
    pub volumes: VolumeConstants,
}

/// The daemon's choices for a probe: its options, and the map sizes that follow from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProbeOptions {
    /// I/Os that take at least this many milliseconds are recorded individually; 0 if none are.
    pub slow_ms: u32,
    /// 1 if those records name the process, 2 if they also name the file.
    pub slow_names: u32,
    /// 1 if requests are counted by size.
    pub sizes: u32,
    /// Number of rows in a bank: see [`crate::slot`].
    pub rows: u32,
    /// Number of CPUs in the first bank. Their rows are their numbers.
    pub first_rows: u32,
    /// Size of the counters of a series on one CPU, in bytes.
    pub series_bytes: u32,
    /// [`Tables::slots`]; 0 if I/Os are not counted by workload.
    pub workload_slots: u32,
    /// [`Tables::hashes`].
    pub workload_hashes: u32,
    /// Number of lines of [`crate::mark`], a power of two; 0 without the understudy.
    pub mark_lines: u32,
}

impl ProbeOptions {
    /// The workload tables.
    #[must_use]
    pub const fn tables(self) -> Tables {
        Tables { slots: self.workload_slots, hashes: self.workload_hashes }
    }
}

/// Placeholder of a constant: the immediate of a 32-bit move, to which the constant's index is added.
pub const CONST_PLACEHOLDER: i32 = 0x6b1a_7a00;

/// Placeholder of a member's offset: the offset of a load, to which the constant's index is added.
pub const OFFSET_PLACEHOLDER: i32 = 0x6b00;

const COUNT: usize = size_of::<Constants>() / size_of::<u32>();

// The index is the lowest byte of a placeholder.
const _: () = assert!(COUNT <= 256);

// Placeholders for the lengths of arrays in the object's BTF, which the daemon also replaces before it loads the probe.
/// The value of a map of series, in 64-bit words.
pub const SERIES_WORDS_PLACEHOLDER: usize = 0x6b_5e71;
/// The value of a map of workload entries, in 64-bit words.
pub const ENTRY_WORDS_PLACEHOLDER: usize = 0x6b_e717;
/// The workload tables.
pub const PLACES_PLACEHOLDER: usize = 0x6b_1a7a;
/// The flags of these maps, `BPF_F_MMAPABLE` and `BPF_F_NUMA_NODE`. BTF stores them as the length of an array too, and the
/// daemon takes away `BPF_F_NUMA_NODE` if there is only one node.
pub const COUNTER_FLAGS: usize = 1 << 10 | 1 << 2;

/// Opcodes that carry placeholders: `w = immediate`, and loads of 4, 1 and 8 bytes.
///
/// <https://www.kernel.org/doc/html/v6.12/bpf/standardization/instruction-set.html>
const MOVE: u8 = 0xb4;
const LOADS: [u8; 3] = [0x61, 0x71, 0x79];

impl Constants {
    const fn by_index(self) -> [u32; COUNT] {
        // SAFETY: `repr(C)`, and every field is a `u32`.
        unsafe { core::mem::transmute(self) }
    }

    /// Replaces the placeholders in a program's instructions with the constants, and returns how many there were. `None` if a
    /// placeholder refers to no constant or an offset does not fit into a load.
    pub fn relocate(self, code: &mut [u8]) -> Option<usize> {
        let constants = self.by_index();
        let mut relocated = 0;
        for instruction in code.as_chunks_mut::<8>().0 {
            let offset = i16::from_le_bytes([instruction[2], instruction[3]]);
            let number = i32::from_le_bytes([instruction[4], instruction[5], instruction[6], instruction[7]]);
            if instruction[0] == MOVE && number & !0xff == CONST_PLACEHOLDER {
                let constant = constants.get((number & 0xff) as usize)?;
                instruction[4..].copy_from_slice(&constant.to_le_bytes());
            } else if LOADS.contains(&instruction[0]) && i32::from(offset) & !0xff == OFFSET_PLACEHOLDER {
                let constant = *constants.get((offset & 0xff) as usize)?;
                instruction[2..4].copy_from_slice(&i16::try_from(constant).ok()?.to_le_bytes());
            } else {
                continue;
            }
            relocated += 1;
        }
        Some(relocated)
    }
}

#[cfg(test)]
mod tests {
    use core::mem::{offset_of, size_of};

    use super::{CONST_PLACEHOLDER, COUNT, Constants, OFFSET_PLACEHOLDER, ProbeOptions};
    use crate::kernel::KernelLayout;

    fn instruction(code: u8, offset: i32, number: i32) -> [u8; 8] {
        let ([o0, o1], [n0, n1, n2, n3]) = ((offset as i16).to_le_bytes(), number.to_le_bytes());
        [code, 0x21, o0, o1, n0, n1, n2, n3]
    }

    macro_rules! index {
        ($($constant:tt)+) => {
            (offset_of!(Constants, $($constant)+) / size_of::<u32>()) as i32
        };
    }

    #[test]
    fn relocates_placeholders() {
        let constants = Constants {
            kernel: KernelLayout { rq_flags: 28, io_stat: 1 << 31, ..KernelLayout::default() },
            options: ProbeOptions { mark_lines: 128, ..ProbeOptions::default() },
            ..Constants::default()
        };
        let code = |io_stat: i32, mark_lines: i32, flags: i32| {
            [
                instruction(0xb4, 0, io_stat),
                instruction(0x61, flags, 0),
                // 64-bit moves and stores have no placeholders.
                instruction(0xb7, 0, CONST_PLACEHOLDER),
                instruction(0x63, OFFSET_PLACEHOLDER, 0),
                instruction(0xb4, 0, mark_lines),
                instruction(0x79, flags, 0),
            ]
            .concat()
        };
        let mut relocated = code(
            CONST_PLACEHOLDER + index!(kernel.io_stat),
            CONST_PLACEHOLDER + index!(options.mark_lines),
            OFFSET_PLACEHOLDER + index!(kernel.rq_flags),
        );
        assert_eq!(constants.relocate(&mut relocated), Some(4));
        assert_eq!(relocated, code(i32::MIN, 128, 28));
        assert_eq!(constants.relocate(&mut relocated), Some(0));
    }

    #[test]
    fn rejects_unknown_constants_and_far_offsets() {
        let kernel = KernelLayout { cmd_flags: 40_000, ..KernelLayout::default() };
        let too_far = Constants { kernel, ..Constants::default() };
        let placeholder = OFFSET_PLACEHOLDER + index!(kernel.cmd_flags);
        assert_eq!(too_far.relocate(&mut instruction(0x79, placeholder, 0)), None);
        let unknown = CONST_PLACEHOLDER + COUNT as i32;
        assert_eq!(Constants::default().relocate(&mut instruction(0xb4, 0, unknown)), None);
    }
}
