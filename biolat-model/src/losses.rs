//! Reasons why a completion is in no histogram: a table of their meanings and the actions to take. The help, the documentation,
//! the report and the page all use these texts.

use biolat_common::lost::Reason;

/// One value of the label `reason`.
#[derive(Debug, PartialEq, Eq)]
pub struct LossReason {
    pub name: &'static str,
    pub counted_by: CountedBy,
    /// Describes such a completion, in words that fit after "lost:" and into a table.
    pub meaning: &'static str,
    /// What to do about it, as a sentence.
    pub action: &'static str,
    /// Whether it is expected in normal operation, and no cause for concern.
    pub expected: bool,
}

/// The component that counts the completions lost for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedBy {
    Probe(Reason),
    /// The kernel, as the program's recursion misses.
    Kernel,
    Collector,
}

impl CountedBy {
    /// Whether such completions are in the disk statistics, so the audit must not report them as missed.
    pub const fn is_accounted(self) -> bool {
        match self {
            Self::Probe(reason) => reason.is_accounted(),
            Self::Kernel => true,
            Self::Collector => false,
        }
    }
}

/// All reasons, in the order of exposition.
pub static LOSS_REASONS: &[LossReason] = &[
    LossReason {
        name: "iostats_off",
        counted_by: CountedBy::Probe(Reason::IostatsOff),
        meaning: "I/O statistics of the device are disabled (queue/iostats is 0): the kernel neither timestamps \
                  nor accounts its requests",
        action: "Write 1 to queue/iostats of the device.",
        expected: false,
    },
    LossReason {
        name: "passthrough",
        counted_by: CountedBy::Probe(Reason::Passthrough),
        meaning: "a passthrough command from a program or driver (nvme, SMART, SG_IO), for which the kernel takes no \
                  timestamps",
        action: "Nothing: expected.",
        expected: true,
    },
    LossReason {
        name: "no_disk",
        counted_by: CountedBy::Probe(Reason::NoDisk),
        meaning: "a command to a controller or bus, not to a disk",
        action: "Nothing: expected.",
        expected: true,
    },
    LossReason {
        name: "no_room",
        counted_by: CountedBy::Probe(Reason::NoRoom),
        meaning: "more series at that moment than the probe's maps had room for, or a CPU that had just come online",
        action: "Nothing if it happens once, when many devices or CPUs appear at once: biolat adds room with the next collection. \
                 Report a bug if it keeps growing; the log names the series.",
        expected: false,
    },
    LossReason {
        name: "clock",
        counted_by: CountedBy::Probe(Reason::Clock),
        meaning: "a kernel timestamp that is later than the completion",
        action: "Look for an unstable clock source in the kernel's log. If there is none, report a bug and include \
                 the kernel version.",
        expected: false,
    },
    LossReason {
        name: "recursion",
        counted_by: CountedBy::Kernel,
        meaning: "the kernel ran neither the probe nor its understudy, because both were already running on that CPU \
                  (Linux 6.1 and later)",
        action: "Nothing if there are only a few: the kernel refuses to run the probe for some completions before biolat attaches the \
                 understudy, a second program that counts them from then on. If the number keeps growing, check the log for \
                 why the understudy was not attached; on Linux 7.0 and later, also look for real-time tasks that keep a \
                 CPU busy.",
        expected: false,
    },
    LossReason {
        name: "unknown_device",
        counted_by: CountedBy::Collector,
        meaning: "the device was gone before biolat could find its name",
        action: "Nothing for devices that exist for less than 2 s.",
        expected: false,
    },
];

/// Returns the reason with this name, or `None` if only a newer daemon knows it.
pub fn find(name: &str) -> Option<&'static LossReason> {
    LOSS_REASONS.iter().find(|reason| reason.name == name)
}

/// Describes completions that were lost for this reason.
pub fn meaning(name: &str) -> &'static str {
    find(name).map_or("a reason that this version of biolat does not know", |reason| reason.meaning)
}

pub fn is_expected(name: &str) -> bool {
    find(name).is_some_and(|reason| reason.expected)
}

/// Returns the table as JSON for the page: each reason's meaning and whether it is expected, by name.
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
    fn documents_every_probe_reason() {
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
    fn docs_match_the_table() {
        let row =
            |reason: &LossReason| format!("| `{}` | {} | {} |\n", reason.name, reason.meaning, reason.action);
        let rows: String = LOSS_REASONS.iter().map(row).collect();
        let table = format!("| reason | meaning | what to do |\n|---|---|---|\n{rows}");
        generated_docs::check("docs/metrics.md", "loss reasons", &table);
    }

    /// Checks the reasons that have an alert.
    #[test]
    fn runbook_matches_the_table() {
        let alerts = |reason: &&LossReason| !reason.expected && reason.name != "iostats_off";
        let row = |reason: &LossReason| format!("| `{}` | {} |\n", reason.name, reason.action);
        let rows: String = LOSS_REASONS.iter().filter(alerts).map(row).collect();
        let table = format!("| reason | what to do |\n|---|---|\n{rows}");
        generated_docs::check("deploy/prometheus/runbook.md", "loss reasons", &table);
    }

    /// The texts end up in HTML, a script and Markdown tables.
    #[test]
    fn texts_need_no_escaping() {
        for reason in LOSS_REASONS {
            for text in [reason.name, reason.meaning, reason.action] {
                assert!(!text.is_empty() && !text.contains(['<', '>', '&', '|', '\\', '\n']), "{text}");
            }
            assert!(!reason.meaning.ends_with('.') && reason.action.ends_with('.'), "{reason:?}");
        }
    }
}
