//! Checks the `--pin` directory: whether a probe can be kept there, and whether one already is.

use std::path::Path;

use biolat_collect::{
    collector::Kept,
    pins::{Pins, is_missing},
};
use biolat_model::shell;

use super::finding::Finding;

/// The contents of the directory.
pub(super) enum Contents {
    Nothing,
    /// The directory does not exist; the daemon creates it.
    Missing,
    /// The probe of a running daemon.
    InUse,
    /// A probe without a daemon.
    Probe,
    /// A probe that the daemon cannot resume, and the reason.
    NotContinuable(String),
    /// A probe that cannot be opened, and the error.
    NotOpened(String),
}

/// Returns the contents of the directory, as a daemon with these options would find them.
pub(super) fn read(folder: &Path, sizes: bool, workloads: u32) -> anyhow::Result<Contents> {
    if is_missing(folder)? {
        return Ok(Contents::Missing);
    }
    let Some(pins) = Pins::open_unless_used(folder)? else { return Ok(Contents::InUse) };
    Ok(match Kept::in_folder(pins).map(|kept| kept.can_be_continued(sizes, workloads)) {
        Err(error) => Contents::NotOpened(format!("{error:#}")),
        Ok(None) => Contents::Nothing,
        Ok(Some(Ok(()))) => Contents::Probe,
        Ok(Some(Err(reason))) => Contents::NotContinuable(format!("{reason:#}")),
    })
}

pub(super) fn pin(folder: &Path, contents: anyhow::Result<Contents>) -> Finding {
    const ID: &str = "pin";
    const SUBJECT: &str = "kept probe";
    let shown = folder.display();
    let unpin = format!("biolat-daemon unpin {}", shell::quoted(&shown.to_string()));
    let note = |text| Finding::note(ID, SUBJECT, text).command(unpin.clone());
    match contents {
        Ok(Contents::Nothing) => Finding::ok(ID, SUBJECT, format!("nothing is kept in {shown} yet")),
        Ok(Contents::Missing) => {
            Finding::ok(ID, SUBJECT, format!("{shown} does not exist yet: biolat will create it"))
        }
        Ok(Contents::InUse) => {
            Finding::ok(ID, SUBJECT, format!("a running biolat keeps its probe in {shown}"))
        }
        Ok(Contents::Probe) => note(format!(
            "a probe without a daemon is kept in {shown} and still counts: the next daemon will continue with it"
        )),
        Ok(Contents::NotContinuable(reason)) => note(format!(
            "the probe kept in {shown} cannot be continued, {reason}: the next daemon will remove it and start at zero"
        )),
        Ok(Contents::NotOpened(error)) => Finding::fail(ID, SUBJECT, error).command(unpin),
        Err(error) => Finding::fail(ID, SUBJECT, format!("{error:#}"))
            .step("mount a BPF file system, and give --pin a directory on it that the daemon can write to"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use anyhow::anyhow;

    use super::{
        super::finding::Verdict::{Fail, Note, Ok as Fine},
        Contents, pin,
    };

    #[test]
    fn reports_contents() {
        for (contents, verdict, expected) in [
            (Ok(Contents::Nothing), Fine, "nothing is kept in /sys/fs/bpf/biolat"),
            (Ok(Contents::Missing), Fine, "biolat will create it"),
            (Ok(Contents::InUse), Fine, "a running biolat"),
            (Ok(Contents::Probe), Note, "without a daemon"),
            (
                Ok(Contents::NotContinuable("its state is missing".to_owned())),
                Note,
                "cannot be continued, its state is missing: the next",
            ),
            (Ok(Contents::NotOpened("cannot open it".to_owned())), Fail, "cannot open it"),
            (Err(anyhow!("cannot open it")), Fail, "cannot open it"),
        ] {
            let finding = pin(Path::new("/sys/fs/bpf/biolat"), contents);
            assert_eq!((finding.verdict, finding.fix.is_empty()), (verdict, verdict == Fine));
            assert!(finding.text.contains(expected), "{finding:?}");
        }
    }
}
