//! The state that is kept for the next daemon, as bytes in a file. Only the modules that own the data interpret it.

pub(super) mod copies;
pub(super) mod encoded;
pub(super) mod numbers;
pub(super) mod record;
pub(super) mod sparse;
