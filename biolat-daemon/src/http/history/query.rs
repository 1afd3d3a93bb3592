//! Parses the query of a history request.

use std::time::{Duration, SystemTime};

use biolat_model::text::duration;
use biolat_system::wall_time;

/// A range of wall clock time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryQuery {
    pub(super) from: SystemTime,
    pub(super) to: SystemTime,
    /// Minimum length of intervals; `None`: as stored.
    pub(super) step: Option<Duration>,
    /// Whether histograms are omitted.
    pub(super) is_summary: bool,
}

/// Length of the range if the query gives no start.
const DEFAULT_RANGE: Duration = Duration::from_secs(600);

impl HistoryQuery {
    /// Parses the query string of a URL. Error messages are one line.
    pub(super) fn parse(query: &str, now: SystemTime) -> Result<Self, String> {
        let (mut from, mut to, mut step, mut detail) = (None, None, None, None);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = percent_decoded(value).ok_or("malformed percent-encoding")?;
            let time = |name: &str| wall_time::parse(&value, now).map_err(|why| format!("{name}: {why}"));
            let is_repeated = match name {
                "from" => from.replace(time("from")?).is_some(),
                "to" => to.replace(time("to")?).is_some(),
                "step" => {
                    let length = duration::parse(&value).filter(|length| !length.is_zero());
                    step.replace(length.ok_or("step: give a time as in 10s, 5m or 1h")?).is_some()
                }
                "detail" => {
                    let detail_of = [("summary", true), ("histograms", false)];
                    let known = detail_of.iter().find(|(name, _)| *name == value);
                    let (_, is_summary) = known.ok_or("detail: give summary or histograms")?;
                    detail.replace(*is_summary).is_some()
                }
                _ => return Err("unknown parameter: use from, to, step and detail".to_owned()),
            };
            if is_repeated {
                return Err(format!("{name} is given twice"));
            }
        }
        let to = to.unwrap_or(now);
        let from = from.or_else(|| to.checked_sub(DEFAULT_RANGE)).unwrap_or(to);
        if from >= to {
            return Err("from must be before to".to_owned());
        }
        if from > now {
            return Err("from is in the future".to_owned());
        }
        Ok(Self { from, to, step, is_summary: detail.unwrap_or(false) })
    }
}

/// Decodes percent-encoding; `None` if malformed. A plus is not a space, because RFC 3339 times contain it.
fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        decoded.push(match byte {
            b'%' => (digit(bytes.next())? << 4 | digit(bytes.next())?) as u8,
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::HistoryQuery;

    const NOW: u64 = 1_767_582_000;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn parse(query: &str) -> Result<HistoryQuery, String> {
        HistoryQuery::parse(query, at(NOW))
    }

    #[test]
    fn ranges() {
        let range = |from, to, step: Option<u64>| {
            Ok(HistoryQuery {
                from: at(from),
                to: at(to),
                step: step.map(Duration::from_secs),
                is_summary: false,
            })
        };
        assert_eq!(parse(""), range(NOW - 600, NOW, None));
        assert_eq!(parse("from=-2h&step=5m"), range(NOW - 7200, NOW, Some(300)));
        assert_eq!(parse("to=-1h"), range(NOW - 4200, NOW - 3600, None));
        let expected = range(NOW - 3600, NOW - 60, Some(10));
        assert_eq!(parse("from=2026-01-05T03:00:00%2B01:00&to=1767581940&step=10"), expected);
        assert_eq!(parse("from=2026-01-05T03:00:00+01:00&&to=1767581940&step=10s"), expected);
        assert_eq!(parse("from=2026-01-05T02%3a00:00Z&to=1767581940&step=10s"), expected);
    }

    #[test]
    fn details() {
        let is_summary = |query| parse(query).unwrap().is_summary;
        assert!(is_summary("detail=summary") && !is_summary("detail=histograms") && !is_summary(""));
    }

    #[test]
    fn rejects_invalid_queries_with_a_reason() {
        for (query, why) in [
            ("from=x", "from: give a time as in 03:00"),
            ("to=", "to: give a time"),
            ("step=0", "step: give a time as in 10s"),
            ("step=-5s", "step: give a time"),
            ("from=-1h&to=-2h", "from must be before to"),
            ("from=now", "from must be before to"),
            ("from=1767582001&to=1767582002", "from is in the future"),
            ("since=-1h", "unknown parameter: use from, to, step and detail"),
            ("detail=all", "detail: give summary or histograms"),
            ("from=-1h&from=-2h", "from is given twice"),
            ("from=%zz", "malformed percent-encoding"),
            ("from=%f", "malformed percent-encoding"),
            ("from=%ff", "malformed percent-encoding"),
        ] {
            let error = parse(query).unwrap_err();
            assert!(error.starts_with(why) && !error.contains('\n'), "{query}: {error}");
        }
    }
}
