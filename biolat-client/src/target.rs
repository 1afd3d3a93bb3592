//! The URL of a running daemon, with defaults for omitted parts.

use std::fmt;

use hyper::Uri;

/// Path of the snapshot.
pub(super) const PATH: &str = "/api/v1/snapshot";

/// Default port of the daemon.
pub const PORT: u16 = 9976;

/// A running daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether the scheme is `https`.
    pub tls: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path before [`PATH`], for a daemon behind a proxy.
    pub prefix: String,
    /// User name from the URL.
    pub user: Option<String>,
    /// Password from the URL.
    pub password: Option<String>,
}

impl Target {
    /// The daemon on this host.
    pub fn here() -> Self {
        let (user, password) = (None, None);
        Self { tls: false, host: "localhost".to_owned(), port: PORT, prefix: String::new(), user, password }
    }

    /// Parses a URL, or the short forms `HOST` and `HOST:PORT`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("'{}' is not a URL, as in http://db1:9976", without_password(text));
        let (scheme, rest) = text.split_once("://").map_or((None, text), |(s, rest)| (Some(s), rest));
        let (tls, port) = match scheme {
            None => (false, PORT),
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            Some(other) => return Err(format!("unsupported scheme '{other}': give http:// or https://")),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, place) = authority.rsplit_once('@').map_or((None, authority), |(u, at)| (Some(u), at));
        let (user, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            None => (None, None),
            Some((user, password)) => {
                let password = Some(decode(password).ok_or_else(bad)?).filter(|text| !text.is_empty());
                (Some(decode(user).ok_or_else(bad)?), password)
            }
        };
        let (host, given) = match place.rsplit_once(':') {
            // In an IPv6 address without a port, the last colon does not separate one.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (place, None),
        };
        let port = given.map_or(Ok(port), str::parse).map_err(|_| bad())?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(format!("put an IPv6 address in brackets, as in http://[::1]:{PORT}"));
        }
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let prefix = path.strip_suffix(PATH).or(path.strip_suffix("/metrics")).unwrap_or(path);
        let prefix = prefix.trim_end_matches('/').to_owned();
        let target = Self { tls, host: host.to_owned(), port, prefix, user, password };
        // Catches characters that are not allowed in a URL.
        let is_url = !target.host.is_empty() && format!("{target}{PATH}").parse::<Uri>().is_ok();
        if is_url { Ok(target) } else { Err(bad()) }
    }

    /// Host and port, as in a `Host` header.
    #[must_use]
    pub fn authority(&self) -> String {
        let default = if self.tls { 443 } else { 80 };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default { host } else { format!("{host}:{}", self.port) }
    }
}

/// Without user name and password, so that it can be logged.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.prefix)
    }
}

fn without_password(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, place)| place)
}

/// Percent-decodes: `%40` becomes `@`.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || (rest.next()? as char).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            _ => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn fills_in_defaults() {
        for (given, means) in [
            ("db1", "http://db1:9976"),
            ("db1:80", "http://db1"),
            ("10.0.0.1:1234", "http://10.0.0.1:1234"),
            ("[::1]", "http://[::1]:9976"),
            ("[::1]:80", "http://[::1]"),
            ("http://db1", "http://db1"),
            ("http://db1:9976/", "http://db1:9976"),
            ("https://db1:9976/metrics", "https://db1:9976"),
            ("https://db1/biolat/api/v1/snapshot?x=y", "https://db1/biolat"),
            ("https://db1/biolat/", "https://db1/biolat"),
        ] {
            assert_eq!(
                Target::parse(given).map(|target| target.to_string()).as_deref(),
                Ok(means),
                "{given}"
            );
        }
        let target = Target::parse("https://[fe80::1]:9976").unwrap();
        assert_eq!((target.tls, target.host.as_str(), target.port), (true, "fe80::1", 9976));
    }

    #[test]
    fn passwords_are_parsed_but_never_displayed() {
        let target = Target::parse("https://alice:p%40ss:w%25@db1:1/").unwrap();
        assert_eq!((target.user.as_deref(), target.password.as_deref()), (Some("alice"), Some("p@ss:w%")));
        assert_eq!(target.to_string(), "https://db1:1");
        let target = Target::parse("alice@db1").unwrap();
        assert_eq!((target.user.as_deref(), target.password), (Some("alice"), None));
        let error = Target::parse("https://alice:secret@db1:port/").unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn rejects_invalid_urls() {
        for wrong in
            ["", "ftp://db1", "http://", "db1:port", "db1:70000", "http://a b", "http://x%zz@db1", ":1"]
        {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }
}
