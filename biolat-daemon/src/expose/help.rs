//! What each metric means, for `# HELP`.

pub(super) const QUEUE: &str = "Seconds from the making of a block request to its hand-over to the driver: \
    waiting in the plug, the scheduler and for a tag.";
pub(super) const DEVICE: &str = "Seconds from the hand-over of a block request to the driver to its completion: \
    the driver and the drive.";
pub(super) const TOTAL: &str = "Seconds from the making of a block request to its completion: queue and device \
    together.";
pub(super) const BYTES: &str =
    "Bytes moved by completed block requests, as the kernel's disk statistics count them.";
pub(super) const ERRORS: &str = "Completions of block requests that failed, by the kernel's block status.";
pub(super) const OVERFLOWS: &str = "Latencies above the histogram's range of 1024 seconds.";
pub(super) const DEVICE_INFO: &str = "What a device is. For a hidden path of a multipath device, path_of is that \
    device; holders are the dm and md devices on top.";
pub(super) const PHASE_AVAILABLE: &str = "Whether the kernel takes the stamps that this latency is made of (1) or \
    not (0): total takes queue/iostats, queue and device take writeback throttling or another rq-qos policy.";
pub(super) const LOST: &str = "Completions that are in no histogram, by reason.";
pub(super) const UNSEEN: &str = "Completions in the kernel's own books (diskstats) for which the kernel did not run \
    the probe: a lower bound, exact when the device is quiet.";
pub(super) const BUILD_INFO: &str = "Which biolat this is.";
pub(super) const COLLECT_DURATION: &str = "Seconds that a pass of the collector took: read the books and the \
    counters, sum, audit.";
pub(super) const COLLECT_FAILURES: &str = "Passes of the collector that failed; the figures of the last good one \
    stayed.";
pub(super) const COLLECT_OVERRUNS: &str = "Passes of the collector that took longer than the interval.";
pub(super) const COLLECTED: &str = "When the figures were read from the kernel, in seconds since the epoch.";
pub(super) const SLOTS: &str = "Series that the probe has room for now; it grows with the series in use.";
pub(super) const MAP_BYTES: &str = "Bytes of kernel memory that hold the series, on all CPUs.";
pub(super) const PROBE_RUNS: &str = "Runs of the probe, while --probe-stats has the kernel count them.";
pub(super) const PROBE_SECONDS: &str =
    "Seconds in the probe, while --probe-stats has the kernel measure them.";
pub(super) const CPU: &str = "Total user and system CPU time spent in seconds.";
pub(super) const RESIDENT: &str = "Resident memory size in bytes.";
pub(super) const VIRTUAL: &str = "Virtual memory size in bytes.";
pub(super) const OPEN_FDS: &str = "Number of open file descriptors.";
pub(super) const MAX_FDS: &str = "Maximum number of open file descriptors.";
pub(super) const START_TIME: &str = "Start time of the process since unix epoch in seconds.";
