//! Parses the web config file, which uses the keys of the [Prometheus exporter toolkit]. Values are interpreted elsewhere.
//!
//! [Prometheus exporter toolkit]: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{
    Deserialize, Deserializer,
    de::{
        self, DeserializeSeed, EnumAccess, Error as _, IgnoredAny, MapAccess, SeqAccess, VariantAccess as _,
        Visitor,
    },
};

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

/// Parses a file. Unknown and duplicate keys are errors. Error messages are one line.
pub(super) fn parse(text: &str) -> Result<WebConfigFile, WebConfigError> {
    let invalid = |error: yaml_serde::Error| WebConfigError(without_values(&error.to_string()));
    // serde's maps would accept duplicate keys, and aliases can multiply the content of a small file.
    ContentBudget(&Cell::new(MAX_CONTENT))
        .deserialize(yaml_serde::Deserializer::from_str(text))
        .map_err(invalid)?;
    Ok(yaml_serde::from_str::<Option<WebConfigFile>>(text).map_err(invalid)?.unwrap_or_default())
}

/// Maximum size of a file's content, in bytes of text and nodes, with aliases expanded.
const MAX_CONTENT: usize = 4 << 20;

/// Cost of a node in addition to its text.
const NODE: usize = 16;

/// Reads any content without keeping it, and fails on a duplicate key or beyond [`MAX_CONTENT`].
#[derive(Clone, Copy)]
struct ContentBudget<'a>(&'a Cell<usize>);

impl ContentBudget<'_> {
    fn charge<E: de::Error>(self, text: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(NODE + text);
        self.0.set(left.ok_or_else(|| E::custom("too much content: aliases repeat parts of the file"))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for ContentBudget<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ContentBudget<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        self.charge(0)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        self.charge(0)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        self.charge(0)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        self.charge(0)
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.charge(0)
    }

    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        self.charge(0)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.charge(text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.charge(0)?;
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        self.charge(0)?;
        let mut keys = BTreeSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.charge(key.len())?;
            entries.next_value_seed(self)?;
            if let Some(twice) = keys.replace(key) {
                return Err(A::Error::custom(format!("duplicate key {twice}")));
            }
        }
        Ok(())
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<(), A::Error> {
        let (_, content) = tagged.variant::<IgnoredAny>()?;
        content.newtype_variant_seed(self)
    }
}

/// Removes the quoted value from a message, because it can be a key or a password.
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
    fn accepts_an_empty_file() {
        for text in ["", "# nothing\n", "{}", "tls_server_config:\nbasic_auth_users:\nhttp_server_config:\n"]
        {
            let format = parse(text).unwrap();
            assert!(format.tls_server_config.unwrap_or_default() == Default::default(), "{text:?}");
            assert!(format.basic_auth_users.is_none() && format.http_server_config.is_none());
        }
    }

    /// 20,001 aliases of a list of 20,001 items.
    #[test]
    fn limits_expansion_of_aliases() {
        let items = ["x"; 20_001].join(",");
        let aliases = ["*a"; 20_001].join(",");
        let error = parse(&format!("a: &a [{items}]\nb: [{aliases}]")).unwrap_err().to_string();
        assert!(error.contains("too much content"), "{error}");
        let long = format!("basic_auth_users:\n  a: &a {}\n", "x".repeat(1 << 19));
        let users: String = (0..20).map(|user| format!("  u{user}: *a\n")).collect();
        assert!(parse(&format!("{long}{users}")).unwrap_err().to_string().contains("too much content"));
        let few = "basic_auth_users:\n  a: &a x\n  b: *a\n";
        assert_eq!(parse(few).unwrap().basic_auth_users.unwrap()["b"], "x");
    }

    #[test]
    fn errors_name_the_key_but_no_secret() {
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
