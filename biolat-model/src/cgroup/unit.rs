//! Names of systemd units as spelled in cgroup paths.

use super::Kind;

/// Unit types that have a cgroup: systemd.resource-control(5).
const TYPES: [(&str, Kind); 6] = [
    ("service", Kind::Service),
    ("scope", Kind::Scope),
    ("slice", Kind::Slice),
    ("socket", Kind::Unit),
    ("mount", Kind::Unit),
    ("swap", Kind::Unit),
];

/// Maximum length of a valid unit name: systemd.unit(5).
const MAX_LENGTH: usize = 255;

/// Returns the unit whose cgroup has this name. systemd adds a leading underscore if the name could clash with one of the
/// kernel's files.
pub(super) fn parse(component: &str) -> Option<(&str, Kind)> {
    let name = component.strip_prefix('_').unwrap_or(component);
    let (prefix, suffix) = name.rsplit_once('.')?;
    let &(_, kind) = TYPES.iter().find(|(unit_type, _)| *unit_type == suffix)?;
    let is_valid = !prefix.is_empty()
        && name.len() <= MAX_LENGTH
        // A template without an instance has no cgroup.
        && !prefix.starts_with('@') && !prefix.ends_with('@')
        && prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte));
    let is_session =
        kind == Kind::Scope && prefix.strip_prefix("session-").is_some_and(|session| !session.is_empty());
    is_valid.then_some((name, if is_session { Kind::Session } else { kind }))
}

/// Replaces escapes such as `\x2d` with their characters. Returns text with invalid escapes unchanged.
pub(super) fn unescape(text: &str) -> String {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_owned();
    for part in parts {
        let Some((digits, plain)) = part.split_at_checked(2) else { return text.to_owned() };
        let Ok(byte) = u8::from_str_radix(digits, 16) else { return text.to_owned() };
        bytes.push(byte);
        bytes.extend_from_slice(plain.as_bytes());
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}
