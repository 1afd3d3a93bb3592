//! Limits for durations on the command line.

use std::time::Duration;

use biolat_common::bucket::COMMON_LIMIT_NS;

use crate::text::duration;

/// Shortest interval between two collections.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// Default minimum latency of a slow I/O.
pub const SLOW: Duration = Duration::from_secs(1);

/// Limits for that latency. Shorter I/Os take the probe's common case, which never records individual I/Os.
const SHORTEST_SLOW: Duration = Duration::from_millis(COMMON_LIMIT_NS / 1_000_000);
const LONGEST_SLOW: Duration = Duration::from_secs(1000);

/// Whether a number needs a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Required,
    /// A bare number is in seconds.
    Optional,
}

/// Parses a number with a unit, up to `longest`.
pub fn parse(text: &str, unit: Unit, longest: Duration) -> Result<Duration, String> {
    let parsed = if unit == Unit::Optional { duration::parse(text) } else { with_unit(text) };
    let interval = parsed.filter(|interval| (SHORTEST_INTERVAL..=longest).contains(interval));
    interval.ok_or_else(|| {
        let seconds = if unit == Unit::Optional { "seconds or " } else { "" };
        let longest = match longest.as_secs() / 60 {
            minutes @ ..60 => format!("{minutes}m"),
            minutes => format!("{}h", minutes / 60),
        };
        format!("give {seconds}a time from 100ms to {longest}, as in 500ms, 5s or 1m")
    })
}

fn with_unit(text: &str) -> Option<Duration> {
    duration::parse(text).filter(|_| !text.ends_with(|c: char| c.is_ascii_digit()))
}

/// Parses the minimum latency of a slow I/O. Rounds it up to whole milliseconds, past the limit of the probe's common case.
pub fn parse_slow(text: &str) -> Result<Duration, String> {
    const ERROR: &str = "give a time from 33ms to 1000s, as in 100ms, 1s or 1m";
    let slow = with_unit(text).filter(|slow| (SHORTEST_SLOW..=LONGEST_SLOW).contains(slow)).ok_or(ERROR)?;
    let milliseconds = slow.as_nanos().max(COMMON_LIMIT_NS.into()).div_ceil(1_000_000);
    Ok(Duration::from_millis(milliseconds as u64))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SLOW, Unit, parse, parse_slow};

    #[test]
    fn enforces_limits() {
        let day = Duration::from_secs(86_400);
        assert_eq!(parse("0.5", Unit::Optional, day), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1d", Unit::Required, day), Ok(day));
        for wrong in ["0", "99ms", "", "s", "2d", "25h", "x"] {
            assert!(parse(wrong, Unit::Optional, day).is_err(), "{wrong}");
        }
        let minutes = Duration::from_secs(300);
        assert_eq!(parse("5m", Unit::Required, minutes), Ok(minutes));
        let error = "give a time from 100ms to 5m, as in 500ms, 5s or 1m".to_owned();
        assert_eq!(parse("5", Unit::Required, minutes), Err(error.clone()));
        assert_eq!(parse("6m", Unit::Required, minutes), Err(error));
        assert!(
            parse("25h", Unit::Optional, day).unwrap_err().contains("seconds or a time from 100ms to 24h")
        );
    }

    #[test]
    fn rounds_slow_up() {
        for (text, milliseconds) in [
            ("33ms", 34),
            ("33.9ms", 34),
            ("34ms", 34),
            ("34.1ms", 35),
            ("0.1s", 100),
            ("1s", 1000),
            ("1000s", 1_000_000),
        ] {
            assert_eq!(parse_slow(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(parse_slow("1s"), Ok(SLOW));
        for wrong in ["32.9ms", "1001s", "1", "0s", "off", ""] {
            let error = parse_slow(wrong).unwrap_err();
            assert_eq!(error, "give a time from 33ms to 1000s, as in 100ms, 1s or 1m", "{wrong}");
        }
    }
}
