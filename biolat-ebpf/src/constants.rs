//! Constants in the probe's own instructions: the layout of the running kernel's structs, and the probe's options. The compiler
//! emits a placeholder for each constant and each member offset; the daemon replaces it with the value before it loads the probe
//! (`Constants::relocate`). So constants cost nothing, and the verifier removes the branches that they rule out.

/// The index of a constant.
macro_rules! index {
    ($($constant:tt)+) => {
        core::mem::offset_of!(biolat_common::constants::Constants, $($constant)+) / size_of::<u32>()
    };
}

/// A constant of the kernel's layout.
macro_rules! layout_const {
    ($field:ident) => {
        $crate::constants::constant!(kernel.$field)
    };
}

/// A constant of the layout that leads to names.
macro_rules! names_const {
    ($field:ident) => {
        $crate::constants::constant!(names.$field)
    };
}

/// A constant of the probe's options.
macro_rules! option_const {
    ($field:ident) => {
        $crate::constants::constant!(options.$field)
    };
}

#[cfg(target_arch = "bpf")]
macro_rules! constant {
    ($($constant:tt)+) => {{
        let constant: u32;
        // SAFETY: moves a constant into a register.
        unsafe {
            core::arch::asm!(
                "{constant} = {placeholder}",
                constant = out(wreg) constant,
                placeholder = const biolat_common::constants::CONST_PLACEHOLDER + $crate::constants::index!($($constant)+) as i32,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        constant
    }};
}

/// Reads a member of a kernel object, 4 or 8 bytes according to the type.
///
/// The verifier tracks the kernel type behind the pointer, and rejects the program if the member is outside that type. A load
/// that faults, for example through a null pointer, reads zero; for main programs, see `common_case::has_null`.
macro_rules! field {
    ($type:tt, $object:expr, $field:ident) => {
        $crate::constants::member!($type, $object, kernel.$field)
    };
}

/// Like [`field`], for any constant.
#[cfg(target_arch = "bpf")]
macro_rules! member {
    ($type:tt, $object:expr, $($constant:tt)+) => {{
        let value: u64;
        let object: *const u8 = $object;
        // SAFETY: see above.
        unsafe {
            core::arch::asm!(
                concat!("{value} = *(", stringify!($type), " *)({object} + {placeholder})"),
                value = out(reg) value,
                object = in(reg) object,
                placeholder = const biolat_common::constants::OFFSET_PLACEHOLDER + $crate::constants::index!($($constant)+) as i32,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        value as $type
    }};
}

/// On other targets this code is compiled but never run.
#[cfg(not(target_arch = "bpf"))]
macro_rules! constant {
    ($($constant:tt)+) => {
        core::hint::black_box($crate::constants::index!($($constant)+) as u32)
    };
}

/// See [`constant`].
#[cfg(not(target_arch = "bpf"))]
macro_rules! member {
    ($type:tt, $object:expr, $($constant:tt)+) => {
        core::hint::black_box($object as usize + $crate::constants::index!($($constant)+)) as $type
    };
}

pub(crate) use {constant, field, index, layout_const, member, names_const, option_const};
