//! How many files the daemon may have open.

use super::finding::Finding;

/// From here on there is room for as many connections as the daemon takes at all: half of the files are theirs.
const PLENTY: u64 = 512;
/// The probe, its maps, sockets, and some to read.
const FEWEST: u64 = 32;

/// By the limit up to which the daemon raises its own.
pub(super) fn open_files(limit: u64) -> Finding {
    const ID: &str = "limits.files";
    const SUBJECT: &str = "open files";
    let step = "in a systemd unit: LimitNOFILE=65536; in a shell: `ulimit -n 65536`; in a container: `--ulimit nofile=65536`";
    let connections = limit / 2;
    match limit {
        PLENTY.. => Finding::ok(ID, SUBJECT, format!("{limit}")),
        FEWEST.. => Finding::note(ID, SUBJECT, format!("{limit}: {connections} connections at once, of 256"))
            .step(step),
        _ => Finding::fail(
            ID,
            SUBJECT,
            format!("{limit} are not enough for the probe's maps and a few connections"),
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
            (20, Fail, "20 are not enough"),
        ] {
            let finding = open_files(limit);
            assert_eq!((finding.id, finding.verdict), ("limits.files", verdict));
            assert!(finding.text.contains(expected), "{finding:?}");
            assert_eq!(finding.fix.is_empty(), verdict == Fine);
        }
    }
}
