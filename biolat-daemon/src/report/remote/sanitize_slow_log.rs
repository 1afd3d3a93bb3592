//! Logs of slow I/Os of other hosts: impossible figures are rejected, and text is made harmless.

use std::ops::RangeInclusive;

use anyhow::{Result, bail};

use super::sanitize_snapshot::{INTERVALS, clean};
use crate::api::{ApiSlowIo, ApiSlowLog};

/// Latencies that an I/O may have, in seconds: a year.
const LATENCIES: RangeInclusive<f64> = 0.0..=3.2e7;

/// A log of another host with harmless text, or why it cannot be a biolat's.
pub(super) fn sanitized(mut log: ApiSlowLog) -> Result<ApiSlowLog> {
    if !INTERVALS.contains(&log.interval) {
        bail!("malformed answer: it collects every {} s", log.interval);
    }
    let latencies =
        |io: &ApiSlowIo| [io.latency.admission, io.latency.queue, io.latency.device, io.latency.total];
    let mut all = log.ios.iter().flat_map(latencies).flatten().chain(log.threshold);
    if let Some(latency) = all.find(|latency| !LATENCIES.contains(latency)) {
        bail!("malformed answer: a latency of {latency:e} s");
    }
    if !log.ios.is_sorted_by(|before, after| before.number < after.number) {
        bail!("malformed answer: the numbers of its I/Os do not grow");
    }
    clean_text(&mut log);
    Ok(log)
}

/// Makes the text of a log harmless.
pub(super) fn clean_text(log: &mut ApiSlowLog) {
    let ApiSlowLog { biolat, host, ios, .. } = log;
    clean(biolat);
    clean(host);
    for ApiSlowIo { device, op, status, workload, .. } in ios {
        [device, op, status].into_iter().chain(workload).for_each(clean);
    }
}

#[cfg(test)]
mod tests {
    use super::sanitized;
    use crate::{api::ApiSlowLatency, report::samples};

    #[test]
    fn impossible_figures_are_rejected() {
        let log = || samples::slow_log(vec![samples::slow_io(1, "sda"), samples::slow_io(2, "sda")]);
        assert_eq!(sanitized(log()).unwrap(), log());
        for latency in [-1e-9, 1e300] {
            let mut wrong = log();
            wrong.ios[1].latency = ApiSlowLatency { queue: Some(latency), ..ApiSlowLatency::default() };
            let error = sanitized(wrong).unwrap_err().to_string();
            assert!(error.starts_with("malformed answer: a latency of "), "{error}");
        }
        let mut wrong = log();
        wrong.ios.swap(0, 1);
        assert!(sanitized(wrong).is_err());
        assert!(sanitized(crate::api::ApiSlowLog { interval: 0.0, ..log() }).is_err());
    }

    #[test]
    fn text_does_not_steer_a_terminal() {
        let evil = "a\u{1b}[2J\r\u{9b}b";
        let mut io = samples::slow_io(1, evil);
        (io.op, io.status, io.workload) = (evil.into(), evil.into(), Some(evil.into()));
        let mut log = samples::slow_log(vec![io]);
        (log.host, log.biolat) = (evil.into(), evil.into());
        let shown = format!("{:?}", sanitized(log).unwrap());
        assert!(
            !shown.contains(r"\u{1b}") && !shown.contains(r"\u{9b}") && !shown.contains(r"\r"),
            "{shown}"
        );
        assert_eq!(shown.matches("[2J").count(), 6, "{shown}");
    }
}
