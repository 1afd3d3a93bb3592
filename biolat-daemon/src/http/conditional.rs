//! Conditional requests with `ETag` and `If-None-Match`: [RFC 9110].
//!
//! [RFC 9110]: https://www.rfc-editor.org/rfc/rfc9110#section-13.1.2

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use biolat_model::snapshot::Snapshot;
use hyper::header::{HeaderMap, IF_NONE_MATCH};

/// Returns the entity tag of a snapshot. It is weak because compressed and plain bodies share it. It changes when the probe is
/// reattached, and after a failed collection, which publishes the last snapshot with new `health`.
pub(super) fn etag(snapshot: &Snapshot) -> String {
    let (started, taken) = (nanoseconds(snapshot.started), nanoseconds(snapshot.taken));
    format!("W/\"{started:x}-{taken:x}-{:x}\"", snapshot.health.failures)
}

/// Returns nanoseconds since the epoch; negative if the clock has not been set yet and shows a time before the epoch.
fn nanoseconds(time: SystemTime) -> i128 {
    let signed = |duration: Duration| i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => signed(since),
        Err(before) => -signed(before.duration()),
    }
}

/// Whether `If-None-Match` names this entity tag.
pub(super) fn matches(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
    // biolat's entity tags contain no comma.
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|known| known == "*" || opaque(known) == opaque(etag))
}

/// Strips the weakness prefix, because `If-None-Match` uses weak comparison.
fn opaque(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use hyper::header::{HeaderMap, HeaderValue, IF_NONE_MATCH};

    use super::{matches, nanoseconds};

    #[test]
    fn times_before_the_epoch_differ() {
        let before = |seconds| nanoseconds(UNIX_EPOCH - Duration::from_secs(seconds));
        assert_eq!((before(2), before(1)), (-2_000_000_000, -1_000_000_000));
    }

    #[test]
    fn if_none_match() {
        let is_known = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IF_NONE_MATCH, HeaderValue::from_str(value).unwrap());
            }
            matches(&headers, "W/\"1a-2b\"")
        };
        assert!(is_known(&["W/\"1a-2b\""]) && is_known(&["\"1a-2b\""]) && is_known(&["*"]));
        assert!(is_known(&["\"x\", W/\"1a-2b\" ,\"y\""]) && is_known(&["\"x\"", "\"1a-2b\""]));
        assert!(!is_known(&[]) && !is_known(&[""]) && !is_known(&["1a-2b"]) && !is_known(&["w/\"1a-2b\""]));
        assert!(!is_known(&["W/\"1a-2\", \"a-2b\", \"1a-2b"]) && !is_known(&["\"*\""]));
    }
}
