//! Determines a release's version, commit and date.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{
    process::output,
    static_build::{self, from_env_or_git},
};

/// The version and commit of a release.
pub(super) struct ReleaseInfo {
    pub(super) version: &'static str,
    pub(super) revision: String,
    /// Commit time, in seconds since the Unix epoch.
    pub(super) epoch: u64,
}

impl ReleaseInfo {
    /// Takes the commit time from the environment, otherwise from git.
    pub(super) fn find() -> Result<Self> {
        let epoch = from_env_or_git("SOURCE_DATE_EPOCH", &["log", "-1", "--format=%ct"])?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            revision: static_build::revision()?,
            epoch: epoch.trim().parse().context("SOURCE_DATE_EPOCH is not a number of seconds")?,
        })
    }

    /// Formats the commit time with a date(1) format.
    pub(super) fn date(&self, format: &str) -> Result<String> {
        let mut date = Command::new("date");
        date.args(["--utc", &format!("--date=@{}", self.epoch), &format!("+{format}")]).env("LC_ALL", "C");
        Ok(output(&mut date)?.trim().to_owned())
    }
}
