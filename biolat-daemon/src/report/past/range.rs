//! The range of the past that the options select.

use std::time::{Duration, SystemTime};

use crate::{api, report::options::ReportOptions};

/// How long a range is that begins at `--at`, and how far back `--worst` looks.
const DEFAULT_LENGTH: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(26 * 3600);

/// A range of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) struct PastRange {
    pub(super) from: SystemTime,
    pub(super) to: SystemTime,
    /// Whether no option gives its beginning.
    pub(super) is_default: bool,
}

impl PastRange {
    /// None if the options are about now.
    pub(in crate::report) fn of(options: &ReportOptions, now: SystemTime) -> Option<Self> {
        let length = options.length.unwrap_or(DEFAULT_LENGTH);
        match (options.at, options.since) {
            (Some(from), _) => Some(Self { from, to: from.checked_add(length)?, is_default: false }),
            (None, Some(from)) => Some(Self { from, to: options.until.unwrap_or(now), is_default: false }),
            (None, None) if options.worst => {
                Some(Self { from: now.checked_sub(DAY)?, to: now, is_default: true })
            }
            (None, None) => None,
        }
    }

    pub(super) fn from(&self) -> f64 {
        api::seconds(self.from)
    }

    pub(super) fn to(&self) -> f64 {
        api::seconds(self.to)
    }

    /// The length of a window: all in one, if none is given.
    pub(super) fn step(&self, window: Option<Duration>) -> Duration {
        let whole = self.to.duration_since(self.from).unwrap_or_default();
        window.unwrap_or(whole).max(Duration::from_secs(1))
    }

    /// The query of the API.
    pub(super) fn query(&self, rest: &str) -> String {
        format!("?from={}&to={}&{rest}", self.from(), self.to())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use clap::Parser as _;

    use super::PastRange;
    use crate::report::ReportOptions;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        options: ReportOptions,
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn range(line: &str) -> Option<(SystemTime, SystemTime)> {
        let cli = Cli::parse_from(["report", "--from", "db1"].into_iter().chain(line.split_whitespace()));
        let range = PastRange::of(&cli.options, at(1_700_000_000));
        range.map(|range| (range.from, range.to))
    }

    #[test]
    fn ranges() {
        assert_eq!(range(""), None);
        assert_eq!(range("--at 1600000000"), Some((at(1_600_000_000), at(1_600_000_060))));
        assert_eq!(range("--at 1600000000 --for 5m"), Some((at(1_600_000_000), at(1_600_000_300))));
        assert_eq!(range("--since 1600000000"), Some((at(1_600_000_000), at(1_700_000_000))));
        assert_eq!(
            range("--since 1600000000 --until 1600000001"),
            Some((at(1_600_000_000), at(1_600_000_001)))
        );
        assert_eq!(range("--worst"), Some((at(1_700_000_000 - 93_600), at(1_700_000_000))));
        assert_eq!(range("--worst --since 1600000000"), Some((at(1_600_000_000), at(1_700_000_000))));
    }

    #[test]
    fn queries() {
        let range = PastRange { from: at(100), to: at(400), is_default: false };
        assert_eq!(range.query("step=60"), "?from=100&to=400&step=60");
        assert_eq!(range.step(None), Duration::from_secs(300));
        assert_eq!(range.step(Some(Duration::from_secs(10))), Duration::from_secs(10));
    }
}
