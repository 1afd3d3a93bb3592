//! Numbers, times and foreign names as text for people, and back. Depends on nothing but the model.

pub(crate) mod clock;
pub(crate) mod duration;
pub(crate) mod format;
pub(crate) mod sanitize;
pub(crate) mod wall_time;
