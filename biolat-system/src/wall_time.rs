//! Parses points in time on the command line and in URLs: RFC 3339, seconds since the epoch, `-2h`, `03:00`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use biolat_model::text::duration;

use crate::c_library::time_of_local_day;

/// Parses a point in time. `03:00` is today in this host's time zone or, if that is still in the future, yesterday.
pub fn parse(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    let parsed = if text == "now" {
        Some(now)
    } else if let Some(age) = text.strip_prefix('-') {
        duration::parse(age).and_then(|age| now.checked_sub(age))
    } else if text.contains(['T', 't']) {
        rfc_3339(text)
    } else if text.contains(':') {
        time_of_day(text, now)
    } else {
        seconds(text).and_then(|since_epoch| UNIX_EPOCH.checked_add(since_epoch))
    };
    parsed.ok_or_else(|| {
        "give a time as in 03:00, 2026-01-05T03:00:00Z, 1767582000 (seconds since the epoch), -2h or now"
            .into()
    })
}

/// Parses a number without a unit.
fn seconds(text: &str) -> Option<Duration> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_number.then(|| duration::parse(text)).flatten()
}

fn time_of_day(text: &str, now: SystemTime) -> Option<SystemTime> {
    let [hour, minute, second] = clock(text)?;
    let now_seconds = i64::try_from(now.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()?;
    let past = (0..=1).map(|days_ago| {
        let time = time_of_local_day(now_seconds, days_ago, [hour, minute, second])?;
        UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(time).ok()?))
    });
    past.flatten().find(|time| *time <= now)
}

/// Parses hour, minute and optionally second.
fn clock(text: &str) -> Option<[u8; 3]> {
    let mut parts = text.split(':').map(|part| {
        let is_number = (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| is_number)
    });
    let time = [parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?];
    (parts.next().is_none() && time[0] < 24 && time[1] < 60 && time[2] < 60).then_some(time)
}

fn rfc_3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', 't'])?;
    let (clock_text, east) = match time.strip_suffix(['Z', 'z']) {
        Some(clock_text) => (clock_text, 0),
        None => {
            let sign = time.rfind(['+', '-'])?;
            let [hours, minutes, _] = clock(time.get(sign + 1..)?)?;
            let offset = i64::from(hours) * 3600 + i64::from(minutes) * 60;
            (time.get(..sign)?, if time[sign..].starts_with('-') { -offset } else { offset })
        }
    };
    let (whole, fraction) = clock_text.split_once('.').unwrap_or((clock_text, "0"));
    let fraction = seconds(&format!("0.{fraction}"))?;
    let [hour, minute, second] = clock(whole)?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u16>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let time_of_day = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
    let utc = days_since_epoch(year, month, day)? * 86_400 + time_of_day - east;
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(utc).ok()?) + fraction)
}

/// Returns the number of days from 1970-01-01 to a Gregorian date, or `None` if there is no such date.
fn days_since_epoch(year: u16, month: u16, day: u16) -> Option<i64> {
    let is_leap = |year: u16| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let february = if is_leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::from(month.checked_sub(1)?);
    if !(1970..=9999).contains(&year) || !(1..=*lengths.get(before)?).contains(&day) {
        return None;
    }
    let leap_days = (1970..year).filter(|&year| is_leap(year)).count() as i64;
    let of_year = i64::from(lengths[..before].iter().sum::<u16>() + day) - 1;
    Some(i64::from(year - 1970) * 365 + leap_days + of_year)
}

#[cfg(test)]
mod tests {
    use std::{
        process::Command,
        time::{Duration, SystemTime, UNIX_EPOCH},
    };

    use super::parse;

    fn at(seconds: f64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs_f64(seconds)
    }

    /// Parses with `date`, as a reference.
    fn date(text: &str) -> SystemTime {
        let output = Command::new("date").args(["-d", text, "+%s"]).output().unwrap();
        at(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap())
    }

    #[test]
    fn parses_rfc_3339() {
        let now = at(1.8e9);
        for text in [
            "2026-01-05T03:00:00Z",
            "2026-01-05t03:00:07z",
            "2026-03-29T02:30:00+02:00",
            "2024-02-29T23:59:59-11:30",
            "2026-01-05T03:00Z",
        ] {
            assert_eq!(parse(text, now), Ok(date(text)), "{text}");
        }
        assert_eq!(
            parse("2026-01-05T03:00:00.25Z", now),
            Ok(date("2026-01-05T03:00:00Z") + Duration::from_millis(250))
        );
    }

    #[test]
    fn parses_other_formats() {
        let now = at(1.8e9);
        for (text, expected) in [
            ("now", 1.8e9),
            ("-2h", 1.8e9 - 7200.0),
            ("-90", 1.8e9 - 90.0),
            ("-1.5m", 1.8e9 - 90.0),
            ("-1d", 1.8e9 - 86_400.0),
            ("1767582000", 1_767_582_000.0),
            ("1767582000.5", 1_767_582_000.5),
        ] {
            assert_eq!(parse(text, now), Ok(at(expected)), "{text}");
        }
    }

    #[test]
    fn time_of_day_is_the_latest_in_the_past() {
        let noon = date("2026-01-05 12:00:00");
        for (text, expected) in [
            ("03:00", "2026-01-05 03:00:00"),
            ("12:00:00", "2026-01-05 12:00:00"),
            ("12:00:01", "2026-01-04 12:00:01"),
            ("23:59", "2026-01-04 23:59:00"),
            ("3:05:09", "2026-01-05 03:05:09"),
        ] {
            assert_eq!(parse(text, noon), Ok(date(expected)), "{text}");
        }
    }

    #[test]
    fn rejects_invalid_times() {
        for text in [
            "",
            "-",
            "x",
            "24:00",
            "03:60",
            "3",
            "03:00:00:00",
            ":",
            "+3",
            "1e9",
            "-1w",
            "-1e3h",
            "--2h",
            "inf",
            "nan",
            "2026-13-05T03:00:00Z",
            "2026-02-30T03:00:00Z",
            "2026-01-05T03:00:00",
            "2026-01-05T",
            "T",
            "99999-01-01T00:00Z",
            "2026-01-05T03:00:00+",
            "1969-12-31T23:59:59Z",
            "99999999999999999999999",
            "-9999999999999999d",
            "2026-01-05T03:00:00.xZ",
        ] {
            let parsed = parse(text, at(1.8e9));
            // A plain number is valid: it means seconds since the epoch.
            assert_eq!(parsed.is_ok(), text == "3", "{text}: {parsed:?}");
        }
    }
}
