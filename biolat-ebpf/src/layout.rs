//! The layout of the running kernel's structs, as constants in the probe's own instructions. The compiler emits a
//! placeholder for each constant and each member's offset; the daemon replaces it by the kernel's value before it loads
//! the probe (`Layout::relocate`). So a constant costs nothing, and the verifier removes branches that it decides.

/// The index of a field of the layout.
macro_rules! field_index {
    ($field:ident) => {
        core::mem::offset_of!(biolat_common::kernel::Layout, $field) / size_of::<u32>()
    };
}

/// A constant of the layout.
#[cfg(target_arch = "bpf")]
macro_rules! layout_const {
    ($field:ident) => {{
        let constant: u32;
        // SAFETY: moves a constant into a register.
        unsafe {
            core::arch::asm!(
                "{constant} = {placeholder}",
                constant = out(wreg) constant,
                placeholder = const biolat_common::kernel::CONST_PLACEHOLDER + $crate::layout::field_index!($field) as i32,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        constant
    }};
}

/// Reads a member of a kernel object, 4 or 8 bytes according to the type.
///
/// The verifier tracks the type that the pointer has in the kernel. It rejects the program if the member is outside of
/// that type; a load that faults, through a null pointer too, reads zero.
#[cfg(target_arch = "bpf")]
macro_rules! field {
    ($type:tt, $object:expr, $field:ident) => {{
        let value: u64;
        let object: *const u8 = $object;
        // SAFETY: see above.
        unsafe {
            core::arch::asm!(
                concat!("{value} = *(", stringify!($type), " *)({object} + {placeholder})"),
                value = out(reg) value,
                object = in(reg) object,
                placeholder = const biolat_common::kernel::OFFSET_PLACEHOLDER + $crate::layout::field_index!($field) as i32,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        value as $type
    }};
}

/// On other targets the code is checked but never run.
#[cfg(not(target_arch = "bpf"))]
macro_rules! layout_const {
    ($field:ident) => {
        core::hint::black_box($crate::layout::field_index!($field) as u32)
    };
}

/// See [`layout_const`].
#[cfg(not(target_arch = "bpf"))]
macro_rules! field {
    ($type:tt, $object:expr, $field:ident) => {
        core::hint::black_box($object as usize + $crate::layout::field_index!($field)) as $type
    };
}

pub(crate) use {field, field_index, layout_const};
