//! Figures as short words, none of them longer than five letters, as in a table there is no room for those of `units`; and bars.

use std::time::Duration;

use crate::{
    histogram::Bounds,
    report::{terminal::Terminal, units},
};

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) unicode: bool,
    pub(super) color: bool,
}

impl Look {
    /// A latency, as exact as it is known: two digits.
    pub(super) fn latency(self, bounds: Option<Bounds>) -> String {
        match bounds {
            None => "-".to_owned(),
            Some(bounds) => match bounds.middle() {
                Some(middle) => self.seconds(middle),
                None if bounds.lower > 0.0 => format!(">{}", self.seconds(bounds.lower)),
                // All of it is 0.95 µs at the most.
                None => format!("<1{}", self.micro()),
            },
        }
    }

    pub(super) fn seconds(self, seconds: f64) -> String {
        // What rounds to a thousand is one of the next unit.
        if seconds < 999.5e-6 {
            two_digits(seconds * 1e6, self.micro())
        } else if seconds < 0.9995 {
            two_digits(seconds * 1e3, "ms")
        } else if seconds < 999.5 {
            two_digits(seconds, "s")
        } else {
            two_digits(seconds / 60.0, "m")
        }
    }

    fn micro(self) -> &'static str {
        if self.unicode { "µs" } else { "us" }
    }

    pub(super) fn dot(self) -> &'static str {
        if self.unicode { " · " } else { " | " }
    }

    /// A bar that fills this share of the width.
    pub(super) fn bar(self, share: f64, width: usize) -> String {
        let plain = Terminal { color: false, unicode: self.unicode, is_terminal: true };
        plain.bar(share, width, false)
    }

    /// A column as high as this share; nothing is empty, and little is not nothing.
    pub(super) fn height(self, share: Option<f64>) -> char {
        const UNICODE: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const ASCII: [char; 8] = ['.', ':', '-', '=', '+', '*', '#', '@'];
        match share {
            Some(share) if share > 0.0 => {
                let level = ((share * 8.0).ceil() as usize).clamp(1, 8) - 1;
                if self.unicode { UNICODE[level] } else { ASCII[level] }
            }
            _ => ' ',
        }
    }
}

fn two_digits(number: f64, unit: &str) -> String {
    if number < 9.95 { format!("{number:.1}{unit}") } else { format!("{number:.0}{unit}") }
}

/// A rate or a count.
pub(super) fn number(number: f64) -> String {
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

/// How many of something.
pub(super) fn count(count: u64) -> String {
    if count < 10_000 { count.to_string() } else { number(count as f64) }
}

pub(super) fn percent(share: Option<f64>) -> String {
    match share {
        None => "-".to_owned(),
        Some(share) if share > 0.0 && share < 0.005 => "<1%".to_owned(),
        Some(share) => format!("{:.0}%", share * 100.0),
    }
}

/// A time, not so exact that it is restless.
pub(super) fn time(time: Duration) -> String {
    let tenths = (time.as_secs_f64() * 10.0).round() / 10.0;
    if tenths == 0.0 { "0 s".to_owned() } else { units::seconds(tenths) }
}
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Look, count, number, percent, time};
    use crate::histogram::Bounds;

    const LOOK: Look = Look { unicode: true, color: false };

    #[test]
    fn latencies_are_short() {
        for (seconds, expected) in [
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
            assert_eq!(LOOK.seconds(seconds), expected);
        }
        assert_eq!(LOOK.latency(None), "-");
        assert_eq!(LOOK.latency(Some(Bounds { lower: 0.0, upper: 2_f64.powi(-20) })), "<1µs");
        assert_eq!(LOOK.latency(Some(Bounds { lower: 1024.0, upper: f64::INFINITY })), ">17m");
        assert_eq!(Look { unicode: false, color: false }.seconds(5e-6), "5.0us");
    }

    #[test]
    fn numbers_are_short() {
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
            assert_eq!(number(value), expected);
        }
        assert_eq!((count(0), count(9999), count(10_000)), ("0".into(), "9999".into(), "10.0k".into()));
        assert_eq!([None, Some(0.0), Some(0.004), Some(1.0)].map(percent), ["-", "0%", "<1%", "100%"]);
    }

    #[test]
    fn heights_are_those_of_their_share() {
        let heights = [None, Some(0.0), Some(1e-9), Some(0.5), Some(1.0)].map(|share| LOOK.height(share));
        assert_eq!(heights, [' ', ' ', '▁', '▄', '█']);
    }

    #[test]
    fn times() {
        let times = [0.0, 0.2, 0.998, 1.5, 59.0, 61.0].map(|seconds| time(Duration::from_secs_f64(seconds)));
        assert_eq!(times, ["0 s", "200 ms", "1 s", "1.5 s", "59 s", "61 s"]);
    }
}
