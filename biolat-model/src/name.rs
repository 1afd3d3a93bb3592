//! Names that are mostly constants of this program: reasons, statuses, size bands.

/// Borrowed if it is a constant of this program, owned if it was read from another one.
pub type Name = std::borrow::Cow<'static, str>;
