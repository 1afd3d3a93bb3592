//! Checks the limit on open files.

use super::finding::Finding;

/// Enough for all 256 connections, which may use up to half of the descriptors.
const ENOUGH: u64 = 512;
/// Enough for the probe, its maps, sockets, and files to read.
const MINIMUM: u64 = 40;

/// Checks the hard limit; the daemon raises its soft limit to it.
pub(super) fn open_files(limit: u64) -> Finding {
    const ID: &str = "limits.files";
    const SUBJECT: &str = "open files";
    let step = "in a systemd unit: LimitNOFILE=65536; in a shell: `ulimit -n 65536`; in a container: `--ulimit nofile=65536`";
    let connections = limit / 2;
    match limit {
        ENOUGH.. => Finding::ok(ID, SUBJECT, format!("{limit}")),
        MINIMUM.. => Finding::note(
            ID,
            SUBJECT,
            format!("{limit}: allows at most {connections} connections at a time instead of 256"),
        )
        .step(step),
        _ => Finding::fail(
            ID,
            SUBJECT,
            format!("{limit} is not enough for the probe's maps and a few connections"),
        )
        .step(step),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::finding::Verdict::{Fail, Note, Ok as Fine},
        open_files,
    };

    #[test]
    fn limits() {
        for (limit, verdict, expected) in [
            (u64::MAX, Fine, ""),
            (1024, Fine, "1024"),
            (256, Note, "128 connections"),
            (20, Fail, "20 is not enough"),
        ] {
            let finding = open_files(limit);
            assert_eq!((finding.id, finding.verdict), ("limits.files", verdict));
            assert!(finding.text.contains(expected), "{finding:?}");
            assert_eq!(finding.fix.is_empty(), verdict == Fine);
        }
    }
}
