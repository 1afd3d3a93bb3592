//! Intervals of other hosts: impossible figures are rejected, and text is made harmless.

use anyhow::{Result, bail};

use super::{
    sanitize_slow_log,
    sanitize_snapshot::{self, clean},
};
use crate::{
    api::{ApiInterval, ApiIntervalSummary, ApiSlowIo, ApiSlowLog, VERSION},
    report::past::snapshot_of,
};

/// More seconds than a history has.
const LONGEST: f64 = 100.0 * 365.25 * 86400.0;

/// An interval with harmless text, or why it cannot be one of a biolat that collects every so many seconds.
pub(super) fn interval(mut interval: ApiInterval, collected_every: f64) -> Result<ApiInterval> {
    has_length(interval.seconds)?;
    interval.slow = slow(interval.slow, collected_every)?;
    let snapshot = sanitize_snapshot::sanitized(snapshot_of(&interval, collected_every))?;
    Ok(ApiInterval { devices: snapshot.devices, lost: snapshot.lost, ..interval })
}

/// The same of a summary.
pub(super) fn summary(mut interval: ApiIntervalSummary, collected_every: f64) -> Result<ApiIntervalSummary> {
    has_length(interval.seconds)?;
    interval.slow = slow(interval.slow, collected_every)?;
    for device in &mut interval.devices {
        clean(&mut device.name);
        has_length(device.oldest_seconds)?;
        for op in &mut device.ops {
            clean(&mut op.op);
            has_length(op.slowest_seconds)?;
        }
    }
    Ok(interval)
}

fn has_length(seconds: f64) -> Result<()> {
    if !(0.0..=LONGEST).contains(&seconds) {
        bail!("malformed answer: a time of {seconds:e} s");
    }
    Ok(())
}

fn slow(ios: Vec<ApiSlowIo>, interval: f64) -> Result<Vec<ApiSlowIo>> {
    let log = ApiSlowLog {
        version: VERSION,
        biolat: String::new(),
        host: String::new(),
        taken: 0.0,
        started: 0.0,
        interval,
        threshold: None,
        dropped: 0,
        ios,
    };
    Ok(sanitize_slow_log::sanitized(log)?.ios)
}

#[cfg(test)]
mod tests {
    use super::interval;
    use crate::{api::ApiInterval, report::samples};

    fn sample() -> ApiInterval {
        ApiInterval {
            began: 1.0,
            taken: 6.0,
            seconds: 5.0,
            passes: 1,
            failures: 0,
            devices: vec![samples::device("sda", 1.0, vec![])],
            lost: Default::default(),
            slow: vec![samples::slow_io(1, "sda")],
            slow_dropped: 0,
        }
    }

    #[test]
    fn impossible_figures_are_rejected() {
        assert_eq!(interval(sample(), 5.0).unwrap(), sample());
        for seconds in [-1.0, f64::NAN, 1e300] {
            let error = interval(ApiInterval { seconds, ..sample() }, 5.0).unwrap_err().to_string();
            assert!(error.starts_with("malformed answer: a time of "), "{error}");
        }
        let mut wrong = sample();
        wrong.slow[0].latency.total = Some(1e300);
        assert!(interval(wrong, 5.0).is_err());
        let mut wrong = sample();
        let one = samples::histogram(0, &[(5000, 1)], 0, 0.0);
        wrong.devices[0].ops = vec![samples::op("read", 1, one.clone(), one.clone(), one)];
        assert!(interval(wrong, 5.0).is_err());
    }

    #[test]
    fn text_does_not_steer_a_terminal() {
        let evil = "a\u{1b}[2J\r\u{9b}b";
        let mut sample = sample();
        sample.devices[0].name = evil.into();
        sample.slow[0].device = evil.into();
        let shown = format!("{:?}", interval(sample, 5.0).unwrap());
        assert!(
            !shown.contains("\\u{1b}") && !shown.contains("\\u{9b}") && !shown.contains("\\r"),
            "{shown}"
        );
    }
}
