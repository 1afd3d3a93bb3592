//! The folder of `--pin`: whether a probe can be kept there, and what is.

use std::path::Path;

use super::finding::Finding;
use crate::{pins::Pins, shell};

/// What is in it.
pub(super) enum Kept {
    Nothing,
    /// By a daemon that runs.
    InUse,
    /// A probe that nobody reads.
    Left,
}

/// Reads it.
pub(super) fn read(folder: &Path) -> anyhow::Result<Kept> {
    let Some(pins) = Pins::open_unless_used(folder)? else { return Ok(Kept::InUse) };
    Ok(match pins.probes()?.len() {
        0 => Kept::Nothing,
        _ => Kept::Left,
    })
}

pub(super) fn pin(folder: &Path, kept: anyhow::Result<Kept>) -> Finding {
    const ID: &str = "pin";
    const SUBJECT: &str = "kept probe";
    let shown = folder.display();
    match kept {
        Ok(Kept::Nothing) => Finding::ok(ID, SUBJECT, format!("nothing is kept in {shown} yet")),
        Ok(Kept::InUse) => Finding::ok(ID, SUBJECT, format!("a running biolat keeps its probe in {shown}")),
        Ok(Kept::Left) => Finding::note(
            ID,
            SUBJECT,
            format!(
                "a probe without a daemon is kept in {shown}, and counts on: the next daemon takes it over"
            ),
        )
        .command(format!("biolat-daemon unpin {}", shell::quoted(&shown.to_string()))),
        Err(error) => Finding::fail(ID, SUBJECT, format!("{error:#}"))
            .step("mount a BPF file system, and give --pin a folder of it that the daemon may write to"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use anyhow::anyhow;

    use super::{
        super::finding::Verdict::{Fail, Note, Ok as Fine},
        Kept, pin,
    };

    #[test]
    fn what_is_kept() {
        for (kept, verdict, expected) in [
            (Ok(Kept::Nothing), Fine, "nothing is kept in /sys/fs/bpf/biolat"),
            (Ok(Kept::InUse), Fine, "a running biolat"),
            (Ok(Kept::Left), Note, "without a daemon"),
            (Err(anyhow!("cannot open it")), Fail, "cannot open it"),
        ] {
            let finding = pin(Path::new("/sys/fs/bpf/biolat"), kept);
            assert_eq!((finding.verdict, finding.fix.is_empty()), (verdict, verdict == Fine));
            assert!(finding.text.contains(expected), "{finding:?}");
        }
    }
}
