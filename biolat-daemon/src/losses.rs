//! Why a completion is in no histogram: one table with every reason, what it means and what to do about it. Help,
//! documentation, the report and the page take their texts from here.

/// One value of the label `reason`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LossReason {
    pub(crate) name: &'static str,
    /// What such a completion was, as a clause: fits after "lost:" and into a table.
    pub(crate) meaning: &'static str,
    /// What to do about it, as a sentence.
    pub(crate) action: &'static str,
    /// Expected in normal operation: no cause for concern.
    pub(crate) expected: bool,
}

pub(crate) const IOSTATS_OFF: LossReason = LossReason {
    name: "iostats_off",
    meaning: "I/O statistics of the device are disabled (queue/iostats is 0): the kernel neither takes timestamps of its \
              requests nor accounts for them",
    action: "Write 1 to queue/iostats of the device.",
    expected: false,
};
pub(crate) const PASSTHROUGH: LossReason = LossReason {
    name: "passthrough",
    meaning: "a passthrough command of a program or driver (nvme, SMART, SG_IO), of which the kernel takes no timestamps",
    action: "None: expected.",
    expected: true,
};
pub(crate) const NO_DISK: LossReason = LossReason {
    name: "no_disk",
    meaning: "a command of a controller or bus, not of a disk",
    action: "None: expected.",
    expected: true,
};
pub(crate) const NO_ROOM: LossReason = LossReason {
    name: "no_room",
    meaning: "more series at that moment than the probe's maps had room for",
    action: "None if it happens once, when many devices appear at a time: biolat adds room with the next collection. \
             Report a bug if it keeps growing.",
    expected: false,
};
pub(crate) const CLOCK: LossReason = LossReason {
    name: "clock",
    meaning: "a kernel timestamp that is later than the completion",
    action: "Report a bug, with the kernel version.",
    expected: false,
};
/// Counted by the kernel itself.
pub(crate) const RECURSION: LossReason = LossReason {
    name: "recursion",
    meaning: "the kernel skipped the probe, which was already running on that CPU",
    action: "None for a few: the audit accounts for them.",
    expected: false,
};
/// Counted by the collector.
pub(crate) const UNKNOWN_DEVICE: LossReason = LossReason {
    name: "unknown_device",
    meaning: "the device was gone before biolat could find its name",
    action: "None for devices that exist for less than 2 s. Before Linux 5.15, the hidden paths of NVMe multipath have no \
             name either.",
    expected: false,
};

/// Every reason, in the order of exposition.
pub(crate) const LOSS_REASONS: [LossReason; 7] =
    [IOSTATS_OFF, PASSTHROUGH, NO_DISK, NO_ROOM, CLOCK, RECURSION, UNKNOWN_DEVICE];

/// The reason of this name; none if a newer daemon has others.
pub(crate) fn find(name: &str) -> Option<&'static LossReason> {
    const ALL: &[LossReason] = &LOSS_REASONS;
    ALL.iter().find(|reason| reason.name == name)
}

/// What completions of this reason were.
pub(crate) fn meaning(name: &str) -> &'static str {
    find(name).map_or("a reason that this version of biolat does not know", |reason| reason.meaning)
}

pub(crate) fn is_expected(name: &str) -> bool {
    find(name).is_some_and(|reason| reason.expected)
}

/// The table as JSON, for the page: meaning and whether it is expected, by name.
pub(crate) fn to_json() -> String {
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

    use super::{LOSS_REASONS, LossReason, find};
    use crate::generated_docs;

    #[test]
    fn every_reason_of_the_probe_is_explained() {
        let names: Vec<_> = LOSS_REASONS.iter().map(|reason| reason.name).collect();
        let of_probe: Vec<_> = Reason::ALL.into_iter().map(Reason::name).collect();
        assert_eq!(names[..of_probe.len()], of_probe, "first, in the probe's order");
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "unique");
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

    /// Texts become part of HTML, of a script and of Markdown tables.
    #[test]
    fn texts_are_plain() {
        for reason in &LOSS_REASONS {
            for text in [reason.name, reason.meaning, reason.action] {
                assert!(!text.is_empty() && !text.contains(['<', '>', '&', '|', '\\', '\n']), "{text}");
            }
            assert!(!reason.meaning.ends_with('.') && reason.action.ends_with('.'), "{reason:?}");
        }
    }
}
