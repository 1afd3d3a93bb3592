//! Parses durations in Prometheus' format: `90s`, `5m`, `1h30m`, `1w`.

use std::time::Duration;

use serde::{Deserialize as _, Deserializer, de::Error as _};

const UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

/// Parses a nonzero duration.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text;
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, others) = rest.split_at(digits);
        let unit = others.bytes().take_while(u8::is_ascii_lowercase).count();
        let (unit, others) = others.split_at(unit);
        let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
        let part =
            number.parse::<u64>().ok().zip(scale).and_then(|(number, scale)| number.checked_mul(scale));
        sum = part.and_then(|part| sum.checked_add(part)).ok_or_else(|| invalid(text))?;
        rest = others;
    }
    if sum == 0 { Err(invalid(text)) } else { Ok(Duration::from_millis(sum)) }
}

fn invalid(text: &str) -> String {
    format!("{text:?} is not a duration such as 90s, 5m or 1h30m")
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "0" || text == "0s" { Ok(Duration::ZERO) } else { parse(&text).map_err(D::Error::custom) }
}
