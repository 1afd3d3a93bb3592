//! Intervals of other hosts: impossible figures are rejected, and text is made harmless.

use std::mem;

use anyhow::{Result, bail};

use super::{
    sanitize_slow_log,
    sanitize_snapshot::{self, INTERVALS, clean},
};
use crate::api::{ApiHistory, ApiInterval, ApiSlowIo, ApiSlowLog, VERSION};

/// More seconds than a history has.
const LONGEST: f64 = 100.0 * 365.25 * 86400.0;

/// What is said of a history of another host, with harmless text, or why it cannot be a biolat's.
pub(in crate::report) fn sanitized_head(mut history: ApiHistory) -> Result<ApiHistory> {
    if !INTERVALS.contains(&history.interval) {
        bail!("malformed answer: it collects every {} s", history.interval);
    }
    clean(&mut history.biolat);
    clean(&mut history.host);
    Ok(history)
}

/// An interval of another host, which collects every so many seconds.
pub(in crate::report) fn sanitized(mut interval: ApiInterval, collected_every: f64) -> Result<ApiInterval> {
    has_length(interval.seconds)?;
    let slow = log_of(mem::take(&mut interval.slow), collected_every);
    interval.slow = sanitize_slow_log::sanitized(slow)?.ios;
    let snapshot = sanitize_snapshot::sanitized(interval.as_snapshot(collected_every))?;
    (interval.devices, interval.workloads) = (snapshot.devices, snapshot.workloads);
    interval.lost = snapshot.lost;
    for summary in &mut interval.summary {
        has_length(summary.slowest_seconds)?;
        clean(&mut summary.device);
        clean(&mut summary.op);
    }
    Ok(interval)
}

fn has_length(seconds: f64) -> Result<()> {
    if !(0.0..=LONGEST).contains(&seconds) {
        bail!("malformed answer: a time of {seconds:e} s");
    }
    Ok(())
}

fn log_of(ios: Vec<ApiSlowIo>, interval: f64) -> ApiSlowLog {
    ApiSlowLog {
        version: VERSION,
        biolat: String::new(),
        host: String::new(),
        taken: 0.0,
        started: 0.0,
        interval,
        threshold: None,
        dropped: 0,
        ios,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{sanitized, sanitized_head};
    use crate::{
        api::{ApiHistory, ApiInterval, ApiSummary},
        report::samples,
    };

    fn sample() -> ApiInterval {
        ApiInterval {
            began: 1.0,
            taken: 6.0,
            seconds: 5.0,
            collections: 1,
            failures: 0,
            devices: vec![samples::device("sda", 1.0, vec![])],
            workloads: None,
            summary: vec![ApiSummary {
                device: "sda".into(),
                op: "read".into(),
                ios: 1,
                bytes: 1,
                errors: 0,
                slowest_seconds: 1.0,
            }],
            lost: Default::default(),
            slow: vec![samples::slow_io(1, "sda")],
            slow_dropped: 0,
        }
    }

    fn history(interval: u64) -> ApiHistory {
        ApiHistory::of("db1", Duration::from_secs(interval), [UNIX_EPOCH; 2], None)
    }

    #[test]
    fn impossible_figures_are_rejected() {
        let is_rejected = |change: fn(&mut ApiInterval)| {
            let mut interval = sample();
            change(&mut interval);
            let error = sanitized(interval, 5.0).unwrap_err().to_string();
            assert!(error.starts_with("malformed answer: "), "{error}");
        };
        assert_eq!(sanitized(sample(), 5.0).unwrap(), sample());
        assert!(sanitized(sample(), 0.0).is_err() && sanitized_head(history(0)).is_err());
        is_rejected(|interval| interval.seconds = -1.0);
        is_rejected(|interval| interval.seconds = f64::NAN);
        is_rejected(|interval| interval.summary[0].slowest_seconds = 1e300);
        is_rejected(|interval| interval.slow[0].latency.total = Some(1e300));
        is_rejected(|interval| {
            let one = samples::histogram(0, &[(5000, 1)], 0, 0.0);
            interval.devices[0].ops = vec![samples::op("read", 1, one.clone(), one.clone(), one)];
        });
    }

    #[test]
    fn text_does_not_steer_a_terminal() {
        let evil = "a\u{1b}[2J\r\u{9b}b";
        let mut sample = sample();
        (sample.summary[0].device, sample.summary[0].op) = (evil.into(), evil.into());
        sample.devices[0].name = evil.into();
        sample.slow[0].device = evil.into();
        let head = ApiHistory { host: evil.into(), biolat: evil.into(), ..history(5) };
        let shown = format!("{:?}{:?}", sanitized_head(head).unwrap(), sanitized(sample, 5.0).unwrap());
        assert!(
            !shown.contains("\\u{1b}") && !shown.contains("\\u{9b}") && !shown.contains("\\r"),
            "{shown}"
        );
    }
}
