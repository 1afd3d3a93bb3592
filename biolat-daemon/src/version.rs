//! The version and commit of this build.

/// The commit of this build, or `unknown` if it was built outside a checkout.
pub const REVISION: &str = env!("BIOLAT_REVISION");

/// Version and commit, as `--version` prints them.
pub const LONG: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BIOLAT_REVISION"), ")");
