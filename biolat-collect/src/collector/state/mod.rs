//! The state that is kept for the next daemon, as bytes in a file. Its meaning is up to the modules that own the data.

pub(super) mod copies;
pub(super) mod encoded;
pub(super) mod numbers;
pub(super) mod record;
pub(super) mod sparse;
