//! Syntax of the file: the keys that [Prometheus' exporters share]. The meaning of their values is not known here.
//!
//! [Prometheus' exporters share]: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md

use std::collections::BTreeMap;

use serde::Deserialize;

use super::WebConfigError;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WebConfigFile {
    pub(super) tls_server_config: Option<TlsSection>,
    pub(super) http_server_config: Option<HttpSection>,
    pub(super) basic_auth_users: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsSection {
    pub(super) cert: Option<String>,
    pub(super) key: Option<String>,
    pub(super) client_ca: Option<String>,
    pub(super) cert_file: Option<String>,
    pub(super) key_file: Option<String>,
    pub(super) client_ca_file: Option<String>,
    pub(super) client_auth_type: Option<String>,
    pub(super) client_allowed_sans: Option<Vec<String>>,
    pub(super) min_version: Option<String>,
    pub(super) max_version: Option<String>,
    pub(super) cipher_suites: Option<Vec<String>>,
    pub(super) curve_preferences: Option<Vec<String>>,
    pub(super) prefer_server_cipher_suites: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HttpSection {
    pub(super) http2: Option<bool>,
    pub(super) headers: Option<BTreeMap<String, String>>,
}

/// Parses a file. Unknown and duplicate keys are errors, of one line each.
pub(super) fn parse(text: &str) -> Result<WebConfigFile, WebConfigError> {
    let invalid = |error: yaml_serde::Error| WebConfigError(without_values(&error.to_string()));
    // Maps accept duplicate keys; only the plain value reports them.
    yaml_serde::from_str::<yaml_serde::Value>(text).map_err(invalid)?;
    Ok(yaml_serde::from_str::<Option<WebConfigFile>>(text).map_err(invalid)?.unwrap_or_default())
}

/// A message without the value that it quotes, which may be a key or a password.
fn without_values(message: &str) -> String {
    let quoted = ["invalid type: ", "invalid value: "].iter().find_map(|kind| {
        let kind_ends = message.find(kind)? + kind.len();
        let begin = kind_ends + message[kind_ends..].find(['"', '`'])?;
        let end = message.rfind(", expected ")?;
        (begin < end).then_some((begin, end))
    });
    match quoted {
        Some((begin, end)) => format!("{}{}", message[..begin].trim_end(), &message[end..]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn an_empty_file() {
        for text in ["", "# nothing\n", "{}", "tls_server_config:\nbasic_auth_users:\nhttp_server_config:\n"]
        {
            let format = parse(text).unwrap();
            assert!(format.tls_server_config.unwrap_or_default() == Default::default(), "{text:?}");
            assert!(format.basic_auth_users.is_none() && format.http_server_config.is_none());
        }
    }

    #[test]
    fn errors_name_the_key_and_no_secret() {
        for (text, expected) in [
            ("tls_server_confg: {}", "unknown field `tls_server_confg`"),
            ("tls_server_config:\n  certfile: x", "unknown field `certfile`"),
            ("rate_limit:\n  burst: 1", "unknown field `rate_limit`"),
            ("basic_auth_users: 'alice:hunter2'", "basic_auth_users: invalid type: string, expected a map"),
            ("basic_auth_users:\n  alice: [hunter2]", "invalid type"),
            ("basic_auth_users:\n  alice: a\n  alice: b", "duplicate"),
            ("http_server_config:\n  http2: \"hunter2, expected \"", "invalid type: string, expected"),
            ("tls_server_config: [", "line 2"),
            ("a: b: c", "line 1"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
