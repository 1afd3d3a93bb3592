//! The version of this build.

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of the documents of the API.
pub const API: u32 = 1;
