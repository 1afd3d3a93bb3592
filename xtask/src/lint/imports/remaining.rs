//! Lists the remaining import cycles.

/// Modules that import from their parent's file, although it imports them, directly or through another module. The check fails if
/// one is no longer in such a cycle.
pub(super) const REMAINING: [&str; 22] = [
    "biolat-cli/src/json/sizes",
    "biolat-cli/src/json/who",
    "biolat-cli/src/past/save",
    "biolat-cli/src/past/worst",
    "biolat-collect/src/collector/refusals",
    "biolat-collect/src/collector/replace",
    "biolat-collect/src/collector/thread",
    "biolat-collect/src/collector/totals/record",
    "biolat-collect/src/collector/workloads/gone",
    "biolat-daemon/src/expose/buckets",
    "biolat-daemon/src/expose/families",
    "biolat-daemon/src/expose/metrics",
    "biolat-daemon/src/http/history",
    "biolat-daemon/src/web_config/client_certificates",
    "biolat-daemon/src/web_config/file_format",
    "biolat-daemon/src/web_config/passwords",
    "biolat-daemon/src/web_config/tls",
    "biolat-history/src/file/contents",
    "biolat-model/src/cgroup/path",
    "biolat-model/src/cgroup/unit",
    "biolat-system/src/rights/calls",
    "biolat-system/src/rights/capabilities",
];
