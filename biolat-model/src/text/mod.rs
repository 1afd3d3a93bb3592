//! Numbers and lengths of time as text for people, and back; foreign text made harmless.

pub mod duration;
pub mod format;
pub mod sanitize;
pub mod time;

/// A name that is mostly one that the program knows: a reason, a status, a range of sizes.
pub type Name = std::borrow::Cow<'static, str>;
