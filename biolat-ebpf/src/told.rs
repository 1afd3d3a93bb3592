//! What the daemon tells the probe of the running kernel, in the probe's own instructions. The compiler knows a
//! number or an offset only by its mark; the daemon puts the kernel's own in its place before it loads the probe.
//! So each costs nothing, and a branch that they decide is gone: the verifier sees constants.

/// The mark of a field of the layout.
macro_rules! mark {
    ($field:ident) => {
        core::mem::offset_of!(biolat_common::kernel::Layout, $field) / size_of::<u32>()
    };
}

/// A number that the daemon tells.
#[cfg(target_arch = "bpf")]
macro_rules! told {
    ($field:ident) => {{
        let number: u32;
        // SAFETY: moves a constant into a register.
        unsafe {
            core::arch::asm!(
                "{number} = {mark}",
                number = out(wreg) number,
                mark = const biolat_common::kernel::NUMBER_MARK + $crate::told::mark!($field) as i32,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        number
    }};
}

/// Reads a member of a kernel object, 4 or 8 bytes as its type says.
///
/// The object is a pointer that the verifier tracks by its type: it refuses the program at load time if the member is
/// not inside that type, and a fault (a null pointer included) reads as zero.
#[cfg(target_arch = "bpf")]
macro_rules! member {
    ($type:tt, $object:expr, $field:ident) => {{
        let value: u64;
        let object: *const u8 = $object;
        // SAFETY: see above.
        unsafe {
            core::arch::asm!(
                concat!("{value} = *(", stringify!($type), " *)({object} + {mark})"),
                value = out(reg) value,
                object = in(reg) object,
                mark = const biolat_common::kernel::MEMBER_MARK + $crate::told::mark!($field) as i32,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        value as $type
    }};
}

/// Elsewhere there are no such instructions, and nothing is ever run: only checked.
#[cfg(not(target_arch = "bpf"))]
macro_rules! told {
    ($field:ident) => {
        core::hint::black_box($crate::told::mark!($field) as u32)
    };
}

/// See [`told`].
#[cfg(not(target_arch = "bpf"))]
macro_rules! member {
    ($type:tt, $object:expr, $field:ident) => {
        core::hint::black_box($object as usize + $crate::told::mark!($field)) as $type
    };
}

pub(crate) use {mark, member, told};
