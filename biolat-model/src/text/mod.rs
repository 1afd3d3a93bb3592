//! Converts numbers and durations to and from text, and sanitizes foreign text.

pub mod duration;
pub mod format;
pub mod sanitize;
pub mod time;
