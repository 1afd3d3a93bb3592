//! The state that is kept for the next daemon, as bytes in a file. What it means is known to those whose state it is.

pub(super) mod copies;
pub(super) mod encoded;
pub(super) mod numbers;
pub(super) mod record;
pub(super) mod sparse;
