//! Workloads that wait for I/O although their requests are fast: for `io.max`, or for something that is no request.

use biolat_common::series::Phase;
use biolat_model::text::format::{self, NumberFormat};

use crate::{
    window::Window,
    workloads::{CgroupWindow, OTHER, ROOT},
};

/// Minimum share of the window that the requests do not explain.
const UNEXPLAINED_SHARE: f64 = 0.2;

/// While a request explains why a task is stalled, the request is in the queue or the drive. So the sum of the latencies is an
/// upper bound of the time that requests explain. A task can also wait for the journal or metadata, which are charged to the root
/// cgroup, for I/O that is counted as `other`, for I/O that has not completed, and before its request exists.
pub(super) fn stalled(window: &Window, numbers: NumberFormat) -> Vec<String> {
    let requests_of = |is_of: &dyn Fn(&str) -> bool| -> f64 {
        let cgroups = window.cgroups.iter().filter(|window| is_of(&window.cgroup));
        cgroups.map(|window| window.request_seconds).sum()
    };
    let shared = requests_of(&|cgroup| matches!(cgroup, ROOT | OTHER));
    let ages = window.devices.iter().map(|device| device.inflight.oldest.as_secs_f64());
    let in_flight = ages.fold(0.0, f64::max);
    let admission: f64 =
        window.devices.iter().map(|device| device.all().of(Phase::Admission).sum_seconds()).sum();
    let stalled = |workload: &CgroupWindow| workload.stalled_seconds.unwrap_or_default();
    let is_unexplained = |workload: &&CgroupWindow| {
        let own = requests_of(&|cgroup| is_within(cgroup, &workload.cgroup));
        // A limit explains the wait, and before Linux 5.18 its wait is admission.
        let admission = if workload.has_limit { 0.0 } else { admission };
        stalled(workload) - own - shared - in_flight - admission > UNEXPLAINED_SHARE * window.seconds
    };
    let found: Vec<_> = window.cgroups.iter().filter(is_unexplained).collect();
    // The time includes the cgroups below.
    let is_innermost = |workload: &&&CgroupWindow| {
        let is_below = |other: &&CgroupWindow| {
            other.cgroup != workload.cgroup && is_within(&other.cgroup, &workload.cgroup)
        };
        !found.iter().any(is_below)
    };
    let sentence = |workload: &&CgroupWindow| {
        let cause = if workload.has_limit { "io.max" } else { "I/O that no drive here shows" };
        Some(format!(
            "{} waits for {cause}: stalled {} of the time, while its I/O takes {} (mean total latency).",
            workload.name,
            format::share((stalled(workload) / window.seconds).min(1.0)),
            numbers.latency(workload.reads_and_writes.mean()?),
        ))
    };
    found.iter().filter(is_innermost).filter_map(sentence).collect()
}

fn is_within(cgroup: &str, ancestor: &str) -> bool {
    cgroup.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use biolat_model::{
        histogram::Histogram,
        snapshot::{DeviceView, Inflight, Snapshot, Stalled, WorkloadView},
        text::format::NumberFormat,
    };
    use biolat_testing::samples::{self, usage};

    use crate::window::Window;

    /// A workload with 100 reads of this many milliseconds on sda, stalled for this many seconds.
    fn workload(cgroup: &str, latency: f64, stalled: f64, has_limit: bool) -> WorkloadView {
        let some = Duration::from_secs_f64(stalled);
        WorkloadView {
            stalled: Some(Stalled { some, full: some, has_limit }),
            ..samples::workload(cgroup, vec![usage("sda", "read", 100, 0.0, latency / 1e3)])
        }
    }

    fn found_on(sda: DeviceView, workloads: Vec<WorkloadView>) -> Vec<String> {
        let after = Snapshot { workloads: Some(workloads), ..samples::snapshot(11.0, vec![sda]) };
        let window = Window::between(&samples::snapshot(1.0, vec![]), &after);
        super::stalled(&window, NumberFormat::UNICODE)
    }

    /// The findings in a window of 10 s.
    fn found(workloads: Vec<WorkloadView>) -> Vec<String> {
        found_on(samples::device("sda", 9.0, vec![]), workloads)
    }

    #[test]
    fn names_a_throttled_workload() {
        assert_eq!(
            found(vec![workload("/payments.service", 0.2, 8.3, true)]),
            [
                "/payments.service waits for io.max: stalled 83 % of the time, while its I/O takes 200 \u{b5}s (mean total latency)."
            ]
        );
        assert_eq!(
            found(vec![workload("/payments.service", 0.2, 8.3, false)]),
            [
                "/payments.service waits for I/O that no drive here shows: stalled 83 % of the time, while its I/O takes \
                 200 \u{b5}s (mean total latency)."
            ]
        );
    }

    #[test]
    fn requests_explain_the_time_that_they_take() {
        let is_found = |workloads| !found(workloads).is_empty();
        // 100 reads of 60 ms take 6 s.
        assert!(!is_found(vec![workload("/a", 60.0, 7.9, true)]));
        assert!(is_found(vec![workload("/a", 60.0, 8.1, true)]));
        assert!(!is_found(vec![workload("/a", 0.0, 1.9, true)]));
        assert!(!is_found(vec![workload("/a", 0.0, 8.1, true), workload("/", 62.0, 0.0, false)]));
        assert!(!is_found(vec![workload("/a", 0.0, 8.1, true), workload("other", 62.0, 0.0, false)]));
        assert!(is_found(vec![workload("/a", 0.0, 8.1, true), workload("/ab", 62.0, 0.0, false)]));
        let unknown = WorkloadView { stalled: None, ..workload("/a", 0.0, 9.0, true) };
        assert!(!is_found(vec![unknown]));
    }

    #[test]
    fn hung_io_explains_its_age() {
        let is_found = |age| {
            let mut sda = samples::device("sda", 9.0, vec![]);
            sda.inflight = Inflight { reads: 1, oldest: Duration::from_secs(age), ..Inflight::default() };
            !found_on(sda, vec![workload("/a", 0.0, 8.1, false)]).is_empty()
        };
        assert!(is_found(6) && !is_found(7));
    }

    #[test]
    fn admission_explains_its_wait() {
        let is_found = |seconds, has_limit| {
            let mut read = samples::op("read", 1, histogram(0.0), histogram(0.0), histogram(0.0));
            read.histograms[0] = histogram(seconds);
            let sda = samples::device("sda", 9.0, vec![read]);
            !found_on(sda, vec![workload("/a", 0.0, 8.1, has_limit)]).is_empty()
        };
        assert!(is_found(6.0, false) && !is_found(7.0, false) && is_found(7.0, true));
    }

    fn histogram(seconds: f64) -> Histogram {
        samples::histogram(0, &[(-80, 100)], 0, seconds)
    }

    /// The kernel counts the time of a cgroup for the cgroups above it too.
    #[test]
    fn names_the_innermost_cgroup() {
        let all = [("/a", 9.0), ("/a/b", 9.0), ("/a/c", 0.0), ("/ab", 0.0)];
        let found = found(all.map(|(cgroup, stalled)| workload(cgroup, 0.1, stalled, true)).into());
        assert!(found.len() == 1 && found[0].starts_with("/a/b waits for io.max"), "{found:?}");
        let busy = vec![workload("/a", 0.1, 9.0, false), workload("/a/b", 80.0, 9.0, false)];
        assert!(super::tests::found(busy).is_empty(), "the requests of /a/b");
    }

    #[test]
    fn counts_only_the_window() {
        let of = |stalled| {
            let workloads = Some(vec![workload("/a", 0.1, stalled, true)]);
            Snapshot { workloads, ..samples::snapshot(1.0 + stalled, vec![]) }
        };
        let window = Window::between(&of(100.0), &of(110.0));
        assert!((window.cgroups[0].stalled_seconds.unwrap() - 10.0).abs() < 1e-6);
        assert!(super::stalled(&window, NumberFormat::UNICODE).is_empty(), "no I/O in the window");
    }
}
