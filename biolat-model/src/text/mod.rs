//! Numbers and lengths of time as text for people, and back; foreign text made harmless.

pub mod duration;
pub mod format;
pub mod sanitize;
pub mod time;
