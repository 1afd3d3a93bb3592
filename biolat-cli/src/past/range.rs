//! The past time range that the options select.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail};
use biolat_model::text::{format, time::unix_seconds};
use biolat_system::clock;

use crate::{options::RangeOptions, past_time::PastTime};

/// Default length of a range that begins at `--at`, and how far back `biolat worst` looks.
const DEFAULT_LENGTH: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(26 * 3600);

/// A range of wall-clock time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PastRange {
    pub(super) from: SystemTime,
    pub(super) to: SystemTime,
    /// Whether no option sets its beginning.
    pub(super) is_default: bool,
}

/// A time later than any history: the year 2100, in seconds since the epoch.
const END: Duration = Duration::from_secs(4_102_444_800);

impl PastRange {
    /// The range that the options give. The default is everything, or the last day for the worst minutes.
    pub(crate) fn of(options: &RangeOptions, is_worst: bool, now: SystemTime) -> Result<Self> {
        if let (Some(length), None) = (options.length, &options.at) {
            let length = format::duration(length.as_secs_f64());
            let since = length.replace(' ', "");
            bail!(
                "--for is the length of a range that begins at --at: give --at, or --since -{since} for the last {length}"
            );
        }
        let at = |time: &PastTime| time.at(now).map_err(|why| anyhow!("{why}"));
        let range = if let Some(from) = &options.at {
            let from = at(from)?;
            let to = from.checked_add(options.length.unwrap_or(DEFAULT_LENGTH));
            Self { from, to: to.context("--for is too long")?, is_default: false }
        } else if let Some(from) = &options.since {
            let to = options.until.as_ref().map_or(Ok(now), at)?;
            Self { from: at(from)?, to, is_default: false }
        } else if is_worst {
            Self { from: now.checked_sub(DAY).unwrap_or(UNIX_EPOCH), to: now, is_default: true }
        } else {
            Self { from: UNIX_EPOCH, to: UNIX_EPOCH + END, is_default: true }
        };
        if range.from >= range.to {
            bail!("--since must be before --until");
        }
        if range.from > now {
            bail!("{} is in the future", clock::local_with_date(range.from()));
        }
        Ok(range)
    }

    /// Whether it covers everything.
    pub(super) fn is_everything(&self) -> bool {
        self.from == UNIX_EPOCH
    }

    pub(super) fn from(&self) -> f64 {
        unix_seconds(self.from)
    }

    pub(super) fn to(&self) -> f64 {
        unix_seconds(self.to)
    }

    /// The length of a window: the whole range by default.
    pub(super) fn step(&self, window: Option<Duration>) -> Duration {
        let whole = self.to.duration_since(self.from).unwrap_or_default();
        window.unwrap_or(whole).max(Duration::from_secs(1))
    }

    /// The range, extended to the beginning of its first minute.
    pub(super) fn in_whole_minutes(self) -> Self {
        let since = self.from.duration_since(UNIX_EPOCH).unwrap_or_default();
        let from = UNIX_EPOCH + Duration::from_secs(since.as_secs() / 60 * 60);
        Self { from, ..self }
    }

    /// The query for the API.
    pub(super) fn query(&self, rest: &str) -> String {
        format!("?from={}&to={}&{rest}", self.from(), self.to())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use clap::Parser as _;

    use super::PastRange;
    use crate::options::RangeOptions;

    #[derive(clap::Parser)]
    struct TestCommand {
        #[command(flatten)]
        range: RangeOptions,
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn of(line: &str, is_worst: bool) -> Result<(SystemTime, SystemTime), String> {
        let command = TestCommand::parse_from(["test"].into_iter().chain(line.split_whitespace()));
        let range = PastRange::of(&command.range, is_worst, at(1_700_000_000));
        range.map(|range| (range.from, range.to)).map_err(|error| error.to_string())
    }

    fn range(line: &str) -> (SystemTime, SystemTime) {
        of(line, false).unwrap()
    }

    #[test]
    fn parses_ranges() {
        assert_eq!(range("--at 1600000000"), (at(1_600_000_000), at(1_600_000_060)));
        assert_eq!(range("--at 1600000000 --for 5m"), (at(1_600_000_000), at(1_600_000_300)));
        assert_eq!(range("--since 1600000000"), (at(1_600_000_000), at(1_700_000_000)));
        assert_eq!(range("--since 1600000000 --until 1600000001"), (at(1_600_000_000), at(1_600_000_001)));
        assert_eq!(range("--since -2h"), (at(1_700_000_000 - 7200), at(1_700_000_000)));
    }

    #[test]
    fn default_range_is_everything_or_a_day_for_the_worst() {
        assert_eq!(range(""), (at(0), at(4_102_444_800)));
        assert_eq!(of("", true), Ok((at(1_700_000_000 - 93_600), at(1_700_000_000))));
        assert_eq!(of("--since 1600000000", true), Ok((at(1_600_000_000), at(1_700_000_000))));
    }

    #[test]
    fn rejects_invalid_ranges() {
        let error = |line| of(line, false).unwrap_err();
        assert_eq!(error("--since 1600000000 --until 1600000000"), "--since must be before --until");
        assert!(error("--at 1700000001").ends_with(" is in the future"));
    }

    #[test]
    fn extends_to_whole_minutes() {
        let range = PastRange { from: at(1_700_000_030), to: at(1_700_000_100), is_default: true };
        assert_eq!(range.in_whole_minutes(), PastRange { from: at(1_699_999_980), ..range });
        assert_eq!(range.in_whole_minutes().in_whole_minutes(), range.in_whole_minutes());
    }

    #[test]
    fn builds_queries() {
        let range = PastRange { from: at(100), to: at(400), is_default: false };
        assert_eq!(range.query("step=60"), "?from=100&to=400&step=60");
        assert_eq!(range.step(None), Duration::from_secs(300));
        assert_eq!(range.step(Some(Duration::from_secs(10))), Duration::from_secs(10));
    }
}
