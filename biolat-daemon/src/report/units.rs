//! Numbers as people read them.

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// Whether `µ`, `±` and `–` are to be had.
    pub unicode: bool,
    /// Whether every time is in milliseconds.
    pub milliseconds: bool,
}

impl Units {
    /// A latency, to three digits: `954 ns`, `15.3 µs`, `1.02 ms`, `2.00 s`.
    #[must_use]
    pub fn latency(self, seconds: f64) -> String {
        // To what it is rounded to: 999.96 µs is 1.00 ms.
        let (number, unit) = if self.milliseconds {
            (seconds * 1e3, "ms")
        } else if seconds < 0.9995e-6 {
            (seconds * 1e9, "ns")
        } else if seconds < 0.9995e-3 {
            (seconds * 1e6, if self.unicode { "µs" } else { "us" })
        } else if seconds < 0.9995 {
            (seconds * 1e3, "ms")
        } else {
            (seconds, "s")
        };
        format!("{} {unit}", three_digits(number))
    }

    /// By how much a percentile may be off.
    #[must_use]
    pub fn error(self, percent: f64) -> String {
        format!("{}{percent} %", if self.unicode { "±" } else { "+-" })
    }

    /// Between two bounds.
    #[must_use]
    pub fn dash(self) -> &'static str {
        if self.unicode { "–" } else { "->" }
    }
}

/// A length of time, to three digits: `5 s`, `509 ms`, `1.5 s`, `15 min`.
#[must_use]
pub fn seconds(seconds: f64) -> String {
    let (number, unit) = match seconds {
        s if s < 0.9995 => (s * 1e3, "ms"),
        s if s < 599.5 => (s, "s"),
        s => (s / 60.0, "min"),
    };
    let text = three_digits(number);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

/// A whole number with commas: `1,234,567`.
#[must_use]
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

/// Something for each second: `0.25`, `12.3`, `1,234`.
#[must_use]
pub fn rate(rate: f64) -> String {
    if rate < 999.5 { three_digits(rate) } else { count(rate.round() as u64) }
}

/// An amount of data: `512 B`, `4.00 KiB`, `46.9 MiB`.
#[must_use]
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

/// A share: `83 %`, `0.4 %`.
#[must_use]
pub fn share(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
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
    use super::{Units, bytes, count, rate, seconds, share};

    #[test]
    fn latencies() {
        let units = Units { unicode: true, milliseconds: false };
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
        let ascii = Units { unicode: false, milliseconds: false };
        assert_eq!((ascii.latency(1e-5).as_str(), ascii.error(4.4).as_str()), ("10.0 us", "+-4.4 %"));
        let milliseconds = Units { unicode: false, milliseconds: true };
        assert_eq!(
            (milliseconds.latency(12e-6).as_str(), milliseconds.latency(2.0).as_str()),
            ("0.012 ms", "2000 ms")
        );
    }

    #[test]
    fn counts_rates_and_amounts() {
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
            [0.5, 0.5087, 1.0, 5.001, 61.26, 120.0, 900.0].map(seconds),
            ["500 ms", "509 ms", "1 s", "5 s", "61.3 s", "120 s", "15 min"]
        );
        assert_eq!([0.0, 0.004, 0.0996, 0.83].map(share), ["0 %", "0.4 %", "10 %", "83 %"]);
    }
}
