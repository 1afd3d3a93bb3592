//! Numbers and durations as text and back, and sanitized foreign text.

pub mod duration;
pub mod format;
pub mod sanitize;
pub mod time;
