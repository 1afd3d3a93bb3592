//! Why a completion is in no histogram: one table with every reason, what it means and what to do about it. Help,
//! documentation, the report and the page take their texts from here.

use biolat_common::lost::Reason;

/// One value of the label `reason`.
#[derive(Debug, PartialEq, Eq)]
pub struct LossReason {
    pub name: &'static str,
    pub counted_by: CountedBy,
    /// What such a completion was, as a clause: fits after "lost:" and into a table.
    pub meaning: &'static str,
    /// What to do about it, as a sentence.
    pub action: &'static str,
    /// Expected in normal operation: no cause for concern.
    pub expected: bool,
}

/// Who counts the completions that are lost for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedBy {
    Probe(Reason),
    /// The kernel, as recursion misses of the program.
    Kernel,
    Collector,
}

impl CountedBy {
    /// Whether such completions are in diskstats, so that the audit must not report them as missed.
    pub const fn is_accounted(self) -> bool {
        match self {
            Self::Probe(reason) => reason.is_accounted(),
            Self::Kernel => true,
            Self::Collector => false,
        }
    }
}

/// Every reason, in the order of exposition.
pub static LOSS_REASONS: &[LossReason] = &[
    LossReason {
        name: "iostats_off",
        counted_by: CountedBy::Probe(Reason::IostatsOff),
        meaning: "I/O statistics of the device are disabled (queue/iostats is 0): the kernel neither takes timestamps of \
                  its requests nor accounts for them",
        action: "Write 1 to queue/iostats of the device.",
        expected: false,
    },
    LossReason {
        name: "passthrough",
        counted_by: CountedBy::Probe(Reason::Passthrough),
        meaning: "a passthrough command of a program or driver (nvme, SMART, SG_IO), of which the kernel takes no \
                  timestamps",
        action: "None: expected.",
        expected: true,
    },
    LossReason {
        name: "no_disk",
        counted_by: CountedBy::Probe(Reason::NoDisk),
        meaning: "a command of a controller or bus, not of a disk",
        action: "None: expected.",
        expected: true,
    },
    LossReason {
        name: "no_room",
        counted_by: CountedBy::Probe(Reason::NoRoom),
        meaning: "more series at that moment than the probe's maps had room for",
        action: "None if it happens once, when many devices appear at a time: biolat adds room with the next collection. \
                 Report a bug if it keeps growing; the log names the series.",
        expected: false,
    },
    LossReason {
        name: "clock",
        counted_by: CountedBy::Probe(Reason::Clock),
        meaning: "a kernel timestamp that is later than the completion",
        action: "Look for an unstable clock source in the kernel's log. If there is none, report a bug with the kernel's \
                 release.",
        expected: false,
    },
    LossReason {
        name: "recursion",
        counted_by: CountedBy::Kernel,
        meaning: "the kernel ran neither the probe nor its understudy, because both were already running on that CPU \
                  (Linux 6.1 and later)",
        action: "None for a few: the kernel refuses the probe some completions before biolat attaches the understudy, a second \
                 program that counts them from then on. If the number keeps growing, look in the log for the reason why the \
                 understudy was not attached; on Linux 7.0 and later also for real-time tasks that keep a CPU busy.",
        expected: false,
    },
    LossReason {
        name: "unknown_device",
        counted_by: CountedBy::Collector,
        meaning: "the device was gone before biolat could find its name",
        action: "None for devices that exist for less than 2 s.",
        expected: false,
    },
];

/// The reason of this name; none if a newer daemon has others.
pub fn find(name: &str) -> Option<&'static LossReason> {
    LOSS_REASONS.iter().find(|reason| reason.name == name)
}

/// What completions of this reason were.
pub fn meaning(name: &str) -> &'static str {
    find(name).map_or("a reason that this version of biolat does not know", |reason| reason.meaning)
}

pub fn is_expected(name: &str) -> bool {
    find(name).is_some_and(|reason| reason.expected)
}

/// The table as JSON, for the page: meaning and whether it is expected, by name.
pub fn to_json() -> String {
    let reasons = LOSS_REASONS.iter().map(|reason| {
        let value = serde_json::json!({ "meaning": reason.meaning, "expected": reason.expected });
        (reason.name.to_owned(), value)
    });
    serde_json::Value::Object(reasons.collect()).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use biolat_common::lost::Reason;
    use biolat_testing::generated_docs;

    use super::{CountedBy, LOSS_REASONS, LossReason, find};

    #[test]
    fn every_reason_of_the_probe_is_explained() {
        for reason in Reason::ALL {
            let entry = find(reason.name()).unwrap_or_else(|| panic!("{reason:?} is not explained"));
            assert_eq!(entry.counted_by, CountedBy::Probe(reason));
        }
        let names: BTreeSet<_> = LOSS_REASONS.iter().map(|reason| reason.name).collect();
        assert_eq!(names.len(), LOSS_REASONS.len(), "unique");
        assert!(names.iter().all(|name| find(name).is_some_and(|reason| reason.name == *name)));
        assert_eq!(find("of_a_newer_daemon"), None);
    }

    #[test]
    fn reasons_are_documented() {
        let row =
            |reason: &LossReason| format!("| `{}` | {} | {} |\n", reason.name, reason.meaning, reason.action);
        let rows: String = LOSS_REASONS.iter().map(row).collect();
        let table = format!("| reason | meaning | what to do |\n|---|---|---|\n{rows}");
        generated_docs::check("docs/metrics.md", "loss reasons", &table);
    }

    /// Those that have an alert.
    #[test]
    fn reasons_in_the_runbook_are_documented() {
        let alerts = |reason: &&LossReason| !reason.expected && reason.name != "iostats_off";
        let row = |reason: &LossReason| format!("| `{}` | {} |\n", reason.name, reason.action);
        let rows: String = LOSS_REASONS.iter().filter(alerts).map(row).collect();
        let table = format!("| reason | what to do |\n|---|---|\n{rows}");
        generated_docs::check("deploy/prometheus/runbook.md", "loss reasons", &table);
    }

    /// Texts become part of HTML, of a script and of Markdown tables.
    #[test]
    fn texts_are_plain() {
        for reason in LOSS_REASONS {
            for text in [reason.name, reason.meaning, reason.action] {
                assert!(!text.is_empty() && !text.contains(['<', '>', '&', '|', '\\', '\n']), "{text}");
            }
            assert!(!reason.meaning.ends_with('.') && reason.action.ends_with('.'), "{reason:?}");
        }
    }
}
