//! Names that the program mostly knows: reasons, statuses, ranges of sizes.

/// Borrowed if this program made it, owned if it comes from another one.
pub type Name = std::borrow::Cow<'static, str>;
