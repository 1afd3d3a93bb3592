//! Parses the command line and checks option values.

use std::{ffi::OsStr, fmt, net::SocketAddr, process};

use clap::Parser;

/// Exit status for an invalid option or web config.
pub const EXIT_USAGE: u8 = 2;

/// A one-line message about an option with an invalid value.
#[derive(Debug)]
pub struct OptionError(pub String);

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Treats an empty option as absent, so that an environment file can list a variable without a value.
pub fn non_empty<T: AsRef<OsStr>>(value: Option<T>) -> Option<T> {
    value.filter(|value| !value.as_ref().is_empty())
}

/// Parses a value of `--listen`.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    full.parse().map_err(|_| "give an address and a port, as in 127.0.0.1:9976 or [::1]:9976".to_owned())
}

/// Parses the command line. Prints help, version or a one-line error and exits if there is nothing to run.
pub fn parse_command_line<T: Parser>() -> T {
    T::try_parse().unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        eprintln!("{}", one_line(&error.to_string()));
        process::exit(EXIT_USAGE.into());
    })
}

/// Joins the lines of a clap error into one, without the usage and clap's own hint.
fn one_line(text: &str) -> String {
    let message = text.split("\n\nUsage:").next().unwrap_or_default();
    let message = message.split("\n\nFor more").next().unwrap_or_default();
    let lines: Vec<_> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // A line that introduces a list ends with a colon and needs no semicolon.
    format!("{} (see --help)", lines.join("; ").replace(":; ", ": "))
}

#[cfg(test)]
mod tests {
    use super::parse_address;

    #[test]
    fn addresses() {
        assert_eq!(parse_address("[::1]:9976"), Ok("[::1]:9976".parse().unwrap()));
        assert_eq!(parse_address(":80"), Ok("0.0.0.0:80".parse().unwrap()));
        for invalid in ["9976", "::1:9976", "localhost:x"] {
            assert!(parse_address(invalid).is_err(), "{invalid}");
        }
    }
}
