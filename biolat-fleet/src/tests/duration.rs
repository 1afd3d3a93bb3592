//! Tests of durations.

use std::time::Duration;

use crate::duration::parse;

#[test]
fn parses_durations() {
    assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
    assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
    assert_eq!(parse("1w"), Ok(Duration::from_secs(604_800)));
    assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
    for invalid in ["", "5", "m", "5x", "0s", "-5m", "99999999999999w"] {
        assert!(parse(invalid).is_err(), "{invalid}");
    }
}
