//! User name, password, and the certificates to trust.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::target::Target;

/// The environment variable for the password.
const PASSWORD_VARIABLE: &str = "BIOLAT_PASSWORD";

/// How to log in to a daemon, and how it is recognized. All of it is optional.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// User name. `None` for the one in the URL, if any.
    pub user: Option<String>,
    /// File with the password. `None` for the one in the URL or in the environment.
    pub password_file: Option<PathBuf>,
    /// Certificates to trust. `None` for the system's.
    pub ca_file: Option<PathBuf>,
}

impl Credentials {
    /// User name and password.
    pub(super) fn login(&self, target: &Target) -> Result<Option<(String, String)>> {
        let user = self.user.clone().or_else(|| target.user.clone());
        let password = match &self.password_file {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.with_context(|| format!("cannot read {}", path.display()))?;
                Some(text.lines().next().unwrap_or_default().to_owned())
            }
            None => target.password.clone().or_else(|| std::env::var(PASSWORD_VARIABLE).ok()),
        };
        match (user, password) {
            (Some(user), Some(password)) => Ok(Some((user, password))),
            (Some(user), None) => {
                bail!("no password for {user}: give it in {PASSWORD_VARIABLE}, or in --password-file FILE")
            }
            (None, Some(_)) if self.password_file.is_some() => {
                bail!("--password-file requires --user NAME")
            }
            // The variable may be set for another daemon.
            (None, _) => Ok(None),
        }
    }
}
