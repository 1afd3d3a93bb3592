//! The daemon's validated configuration, and what checks the values of options.

use std::{ffi::OsStr, fmt, net::SocketAddr, path::PathBuf, time::Duration};

use crate::{
    device::selection::Selection, history::HistoryLimits, host::Host, http::ServeConfig, probe::Options,
};

/// The exit status for a wrong option or web config.
pub const EXIT_USAGE: u8 = 2;

/// What the daemon runs with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to serve on, in addition to sockets passed by systemd.
    pub listen: Vec<SocketAddr>,
    pub web_config: Option<PathBuf>,
    /// Time between two collections.
    pub interval: Duration,
    pub serve: ServeConfig,
    /// Which devices are shown.
    pub selection: Selection,
    pub host: Host,
    pub probe: Options,
    /// The folder in which the probe is kept for the next daemon.
    pub pin: Option<PathBuf>,
    /// What is kept of former intervals; none: nothing.
    pub history: Option<HistoryLimits>,
    /// The file that it is kept in, too.
    pub history_file: Option<PathBuf>,
    /// Whether system calls are filtered once the probe is attached.
    pub seccomp: bool,
}

/// An option with an invalid value, as one line.
#[derive(Debug)]
pub struct OptionError(pub(crate) String);

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An option that is empty counts as absent: so an environment file can have it without a value.
pub(crate) fn non_empty<T: AsRef<OsStr>>(value: Option<T>) -> Option<T> {
    value.filter(|value| !value.as_ref().is_empty())
}

/// Parses a value of `--listen`.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    full.parse().map_err(|_| "give an address and a port, as in 127.0.0.1:9976 or [::1]:9976".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse_address;

    #[test]
    fn addresses() {
        assert_eq!(parse_address("[::1]:9976"), Ok("[::1]:9976".parse().unwrap()));
        assert_eq!(parse_address(":80"), Ok("0.0.0.0:80".parse().unwrap()));
        for wrong in ["9976", "::1:9976", "localhost:x"] {
            assert!(parse_address(wrong).is_err(), "{wrong}");
        }
    }
}
