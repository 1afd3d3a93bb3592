//! Parses human-readable durations: `500ms`, `5s`, `1.5m`, `2h`, `1d`.

use std::time::Duration;

/// Longer than any history, and longer than the time since the epoch.
const LONGEST: f64 = 1000.0 * 366.0 * 86_400.0;

/// Parses a number with a unit; the default is seconds.
pub fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let seconds =
        number.parse::<f64>().ok().filter(|_| number.starts_with(|c: char| c.is_ascii_digit()))? * scale;
    if seconds < LONGEST { Duration::try_from_secs_f64(seconds).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;

    #[test]
    fn parses_numbers_and_units() {
        for (text, milliseconds) in [
            ("100ms", 100),
            ("0.5", 500),
            ("1", 1000),
            ("1.5s", 1500),
            ("1.5m", 90_000),
            ("2min", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for wrong in
            ["", "s", ".5s", "1w", "-1", "-1s", "1e3", "1e9s", "NaNs", "x", "1..5s", "99999999d", "1 s"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
