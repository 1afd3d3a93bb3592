//! Version of this build, and of the API.

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Version of the API documents.
pub const API: u32 = 1;
