//! Formats numbers for display: in full, or short enough for a table cell.

use std::time::Duration;

use crate::histogram::Bounds;

/// Format of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberFormat {
    /// Whether to use `µ`, `±` and `–`.
    pub unicode: bool,
    /// Whether every latency is in milliseconds.
    pub milliseconds: bool,
}

impl NumberFormat {
    /// Format for UTF-8 output.
    pub const UNICODE: Self = Self { unicode: true, milliseconds: false };

    /// Formats a latency with three digits: `954 ns`, `15.3 µs`, `1.02 ms`, `2.00 s`.
    pub fn latency(self, seconds: f64) -> String {
        let (number, unit) = if self.milliseconds { (seconds * 1e3, "ms") } else { self.scaled(seconds) };
        format!("{} {unit}", three_digits(number))
    }

    /// Formats the middle of a bucket. The zero and overflow buckets have only one bound: `<954 ns`, `>1024 s`.
    pub fn bounds(self, bounds: Bounds) -> String {
        match bounds.middle() {
            Some(middle) => self.latency(middle),
            None if bounds.lower == 0.0 => format!("<{}", self.latency(bounds.upper)),
            None => format!(">{}", self.latency(bounds.lower)),
        }
    }

    /// Formats a latency with two digits, in at most five characters: `954ns`, `15µs`, `1.0ms`, `2.0s`, `17m`.
    pub fn short_latency(self, seconds: f64) -> String {
        let (number, unit) = if seconds < 999.5 { self.scaled(seconds) } else { (seconds / 60.0, "m") };
        if number < 9.95 { format!("{number:.1}{unit}") } else { format!("{number:.0}{unit}") }
    }

    /// Like [`bounds`](Self::bounds), in at most five characters.
    pub fn short_bounds(self, bounds: Option<Bounds>) -> String {
        let Some(bounds) = bounds else { return "-".to_owned() };
        match bounds.middle() {
            Some(middle) => self.short_latency(middle),
            None if bounds.lower > 0.0 => format!(">{}", self.short_latency(bounds.lower)),
            None => format!("<1{}", self.micro()),
        }
    }

    /// Scales a time to the unit that leaves at most three digits after rounding: 999.96 µs becomes 1.00 ms.
    fn scaled(self, seconds: f64) -> (f64, &'static str) {
        match seconds {
            ..0.9995e-6 => (seconds * 1e9, "ns"),
            ..0.9995e-3 => (seconds * 1e6, self.micro()),
            ..0.9995 => (seconds * 1e3, "ms"),
            _ => (seconds, "s"),
        }
    }

    fn micro(self) -> &'static str {
        if self.unicode { "µs" } else { "us" }
    }

    /// Formats the maximum error of a percentile.
    pub fn error(self, percent: f64) -> String {
        format!("{}{percent} %", if self.unicode { "±" } else { "+-" })
    }

    /// Separates two bounds.
    pub fn dash(self) -> &'static str {
        if self.unicode { "–" } else { "->" }
    }

    /// Separates the parts of a line.
    pub fn separator(self) -> &'static str {
        if self.unicode { " · " } else { " | " }
    }
}

/// Formats a duration with three digits: `5 s`, `509 ms`, `1.5 s`, `15 min`, `26 h`, `3 days`.
pub fn duration(seconds: f64) -> String {
    let (number, unit) = match seconds {
        s if s < 0.9995 => (s * 1e3, "ms"),
        s if s < 599.5 => (s, "s"),
        s if s < 7200.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3600.0, "h"),
        s => (s / 86_400.0, "days"),
    };
    let text = three_digits(number);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

/// Returns a host's name, or a placeholder if it is unknown.
pub fn host(name: &str) -> &str {
    if name.is_empty() { "an unnamed host" } else { name }
}

/// Formats a whole number with commas: `1,234,567`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a rate: `0.25`, `12.3`, `1,234`.
pub fn rate(rate: f64) -> String {
    if rate < 999.5 { three_digits(rate) } else { count(rate.round() as u64) }
}

/// Formats an amount of data: `512 B`, `4.00 KiB`, `46.9 MiB`.
pub fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut number, mut unit) = (bytes, 0);
    while number >= 999.5 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    let number = if unit == 0 { format!("{number:.0}") } else { three_digits(number) };
    format!("{number} {}", UNITS[unit])
}

/// Formats a share: `83 %`, `0.4 %`.
pub fn share(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Formats an amount of data in mebibytes: `56.2 MiB`.
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

/// Formats a rate or an amount in at most five characters: `<0.1`, `9.5`, `9999`, `12.3k`.
pub fn short_number(number: f64) -> String {
    match number {
        n if n <= 0.0 => "0".to_owned(),
        n if n < 0.05 => "<0.1".to_owned(),
        n if n < 9.95 => format!("{n:.1}"),
        n if n < 9999.5 => format!("{n:.0}"),
        n if n < 99_950.0 => format!("{:.1}k", n / 1e3),
        n if n < 999_500.0 => format!("{:.0}k", n / 1e3),
        n if n < 99_950_000.0 => format!("{:.1}M", n / 1e6),
        n if n < 999_500_000.0 => format!("{:.0}M", n / 1e6),
        n => format!("{:.1}G", n / 1e9),
    }
}

/// Formats a whole number in at most five characters.
pub fn short_count(count: u64) -> String {
    if count < 10_000 { count.to_string() } else { short_number(count as f64) }
}

/// Formats a share without decimals: `<1%`, `26%`, `-`.
pub fn short_share(share: Option<f64>) -> String {
    match share {
        None => "-".to_owned(),
        Some(share) if share > 0.0 && share < 0.005 => "<1%".to_owned(),
        Some(share) => format!("{:.0}%", share * 100.0),
    }
}

/// Formats a duration to the nearest tenth of a second, so it does not flicker when it is redrawn.
pub fn rounded_duration(time: Duration) -> String {
    let tenths = (time.as_secs_f64() * 10.0).round() / 10.0;
    if tenths == 0.0 { "0 s".to_owned() } else { duration(tenths) }
}

fn three_digits(number: f64) -> String {
    let decimals = match number {
        0.0 => 0,
        n if n < 0.0995 => 3,
        n if n < 9.995 => 2,
        n if n < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        NumberFormat, bytes, count, duration, rate, rounded_duration, share, short_count, short_number,
        short_share,
    };
    use crate::histogram::Bounds;

    #[test]
    fn formats_latencies() {
        let units = NumberFormat::UNICODE;
        for (given, text) in [
            (953.674e-9, "954 ns"),
            (1.907e-6, "1.91 µs"),
            (15.2588e-6, "15.3 µs"),
            (999.96e-6, "1.00 ms"),
            (976.6e-6, "977 µs"),
            (0.0078125, "7.81 ms"),
            (0.5, "500 ms"),
            (1.0, "1.00 s"),
            (1024.0, "1024 s"),
        ] {
            assert_eq!(units.latency(given), text);
        }
        assert_eq!(units.bounds(Bounds::ZERO), "<954 ns");
        assert_eq!(units.bounds(Bounds::OVERFLOW), ">1024 s");
        assert_eq!(units.bounds(Bounds::of_bucket(-80)), "935 µs");
        let ascii = NumberFormat { unicode: false, milliseconds: false };
        assert_eq!((ascii.latency(1e-5).as_str(), ascii.error(4.4).as_str()), ("10.0 us", "+-4.4 %"));
        let milliseconds = NumberFormat { unicode: false, milliseconds: true };
        assert_eq!(
            (milliseconds.latency(12e-6).as_str(), milliseconds.latency(2.0).as_str()),
            ("0.012 ms", "2000 ms")
        );
    }

    #[test]
    fn formats_counts_rates_and_amounts() {
        assert_eq!([0, 12, 999, 1000, 1_234_567].map(count), ["0", "12", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.0, 0.25, 12.34, 999.4, 999.6, 12345.6].map(rate),
            ["0", "0.25", "12.3", "999", "1,000", "12,346"]
        );
        assert_eq!(
            [0.0, 512.0, 4096.0, 1e6, 49_152_000.0].map(bytes),
            ["0 B", "512 B", "4.00 KiB", "977 KiB", "46.9 MiB"]
        );
        assert_eq!(
            [0.5, 0.5087, 1.0, 5.001, 61.26, 120.0, 900.0, 93_600.0, 216_000.0].map(duration),
            ["500 ms", "509 ms", "1 s", "5 s", "61.3 s", "120 s", "15 min", "26 h", "2.5 days"]
        );
        assert_eq!([0.0, 0.004, 0.0996, 0.83].map(share), ["0 %", "0.4 %", "10 %", "83 %"]);
    }

    #[test]
    fn short_latencies_fit_five_characters() {
        let units = NumberFormat::UNICODE;
        for (seconds, expected) in [
            (954e-9, "954ns"),
            (1.04e-6, "1.0µs"),
            (9.96e-6, "10µs"),
            (999.4e-6, "999µs"),
            (999.6e-6, "1.0ms"),
            (0.0123, "12ms"),
            (0.9994, "999ms"),
            (0.9996, "1.0s"),
            (999.0, "999s"),
            (1024.0, "17m"),
        ] {
            assert_eq!(units.short_latency(seconds), expected);
        }
        assert_eq!(units.short_bounds(None), "-");
        assert_eq!(units.short_bounds(Some(Bounds::ZERO)), "<1µs");
        assert_eq!(units.short_bounds(Some(Bounds::OVERFLOW)), ">17m");
        assert_eq!(NumberFormat { unicode: false, milliseconds: false }.short_latency(5e-6), "5.0us");
    }

    #[test]
    fn short_numbers_fit_five_characters() {
        for (value, expected) in [
            (0.0, "0"),
            (0.01, "<0.1"),
            (0.06, "0.1"),
            (9.96, "10"),
            (9999.4, "9999"),
            (9999.6, "10.0k"),
            (123_456.0, "123k"),
            (999_600.0, "1.0M"),
            (12_345_678.0, "12.3M"),
        ] {
            assert_eq!(short_number(value), expected);
        }
        assert_eq!(
            (short_count(0), short_count(9999), short_count(10_000)),
            ("0".into(), "9999".into(), "10.0k".into())
        );
        assert_eq!([None, Some(0.0), Some(0.004), Some(1.0)].map(short_share), ["-", "0%", "<1%", "100%"]);
    }

    #[test]
    fn rounds_durations() {
        let times = [0.0, 0.2, 0.998, 1.5, 59.0, 61.0]
            .map(|seconds| rounded_duration(Duration::from_secs_f64(seconds)));
        assert_eq!(times, ["0 s", "200 ms", "1 s", "1.5 s", "59 s", "61 s"]);
    }
}
