//! Which snapshot an answer is of, and whether the client has it already: `ETag` and `If-None-Match` of [RFC 9110].
//!
//! [RFC 9110]: https://www.rfc-editor.org/rfc/rfc9110#section-13.1.2

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::header::{HeaderMap, IF_NONE_MATCH};

use crate::snapshot::Snapshot;

/// A weak tag, as compressed or not it is the same. After a restart it is another one, since the probe was attached
/// at another time.
pub(super) fn tag(snapshot: &Snapshot) -> String {
    let nanoseconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("W/\"{:x}-{:x}\"", nanoseconds(snapshot.started), nanoseconds(snapshot.taken))
}

/// Whether the client says that it has what this tag is of.
pub(super) fn has(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
    // None of our tags has a comma in it.
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|known| known == "*" || opaque(known) == opaque(tag))
}

/// Weak or not, as the comparison is the weak one.
fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderMap, HeaderValue, IF_NONE_MATCH};

    use super::has;

    #[test]
    fn what_clients_have() {
        let is_known = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IF_NONE_MATCH, HeaderValue::from_str(value).unwrap());
            }
            has(&headers, "W/\"1a-2b\"")
        };
        assert!(is_known(&["W/\"1a-2b\""]) && is_known(&["\"1a-2b\""]) && is_known(&["*"]));
        assert!(is_known(&["\"x\", W/\"1a-2b\" ,\"y\""]) && is_known(&["\"x\"", "\"1a-2b\""]));
        assert!(!is_known(&[]) && !is_known(&[""]) && !is_known(&["1a-2b"]) && !is_known(&["w/\"1a-2b\""]));
        assert!(!is_known(&["W/\"1a-2\", \"a-2b\", \"1a-2b"]) && !is_known(&["\"*\""]));
    }
}
