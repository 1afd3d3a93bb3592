//! Which biolat this is.

/// The release.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, or `unknown` outside of a checkout.
pub const REVISION: &str = env!("BIOLAT_REVISION");

/// Both, as `--version` shows them.
pub const LONG: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BIOLAT_REVISION"), ")");
