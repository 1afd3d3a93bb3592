//! Numbers, times and foreign names as text for people, and back. Depends on nothing but the model.

pub mod duration;
pub mod format;
pub mod sanitize;
