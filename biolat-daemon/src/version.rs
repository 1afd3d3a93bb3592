//! The commit of this build.

/// The commit that it was built from, or `unknown` outside of a checkout.
pub const REVISION: &str = env!("BIOLAT_REVISION");

/// As `--version` shows it.
pub const LONG: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BIOLAT_REVISION"), ")");
