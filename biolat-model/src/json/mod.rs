//! Custom JSON representations of values.

pub(crate) mod per_phase;
pub(crate) mod phase_names;
pub(crate) mod seconds;
pub(crate) mod seconds_of_ns;
pub(crate) mod seconds_per_phase;
pub(crate) mod unix_time;
