//! `biolat save`: writes a daemon's history to a file.

use std::{
    fs::Permissions,
    io::{self, IsTerminal as _, Write},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::SystemTime,
};

use anyhow::{Result, anyhow, bail};
use biolat_client::{Document, Intervals, fetch, history, select_workloads};
use biolat_model::{
    api::{ApiHistory, ApiSlowLog},
    device::Selection,
    snapshot::Snapshot,
    text::{format, time::unix_seconds},
};
use biolat_system::{clock, log_lines};
use serde::Serialize;
use tempfile::NamedTempFile;

use super::{PastRange, missing};
use crate::{
    cli::SaveCommand,
    output,
    saved::{STANDARD_STREAM, SavedHead, SavedWriter, name_of},
};

/// Saves the selected range and reports what was saved. Does not drop privileges, so that root can write to any directory.
pub(super) async fn run(command: &SaveCommand) -> Result<()> {
    let file = &command.to;
    if file.as_os_str() == STANDARD_STREAM {
        if io::stdout().is_terminal() {
            bail!("standard output is a terminal: give a file, or redirect it");
        }
        let folder = std::env::temp_dir();
        let saved = save(command, &folder, &mut io::stdout().lock(), "standard output").await?;
        log_lines::write_text(&saved.shown(command.common.json)?);
        return Ok(());
    }
    let name = name_of(file);
    let unwritable = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => anyhow!("{name} exists: give another name, or remove it"),
        io::ErrorKind::NotFound => anyhow!("cannot write {name}: its folder does not exist"),
        _ => anyhow!("cannot write {name}: {error}"),
    };
    if file.symlink_metadata().is_ok() {
        return Err(unwritable(io::ErrorKind::AlreadyExists.into()));
    }
    // Write to a temporary file, and rename it once it is complete. It is removed if saving fails.
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new_file = || {
        file.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let permissions = Permissions::from_mode(0o666);
        tempfile::Builder::new().prefix(".biolat-").permissions(permissions).tempfile_in(folder)
    };
    let mut output = new_file().map_err(|error| unwritable(error.kind().into()))?;
    let saved = save(command, folder, &mut output, &name).await?;
    publish(output, file).map_err(unwritable)?;
    super::write(saved.shown(command.common.json)?).await
}

fn publish(output: NamedTempFile, file: &Path) -> io::Result<()> {
    output.as_file().sync_all()?;
    output.persist_noclobber(file).map_err(|error| error.error)?;
    Ok(())
}

/// The report of what was saved.
#[derive(Serialize)]
struct Saved<'a> {
    file: &'a str,
    host: String,
    intervals: u64,
    /// Start of the first interval.
    began: Option<f64>,
    /// End of the last interval.
    ended: Option<f64>,
    /// The part of the requested range that the daemon does not have, in words.
    missing: Option<String>,
}

impl Saved<'_> {
    fn shown(&self, json: bool) -> Result<String> {
        if json {
            return output::json_line(self);
        }
        let host = format::host(&self.host);
        let mut text =
            format!("saved {} intervals of {host} to {}", format::count(self.intervals), self.file);
        if let Some((began, ended)) = self.began.zip(self.ended) {
            text += &format!(", from {} to {}", clock::local_with_date(began), clock::local_with_date(ended));
        }
        Ok(output::lines([Some(text.as_str()), self.missing.as_deref()].into_iter().flatten()))
    }
}

/// Writes the file. A response that does not fit in memory is kept in `folder`.
async fn save<'a>(
    command: &SaveCommand,
    folder: &Path,
    output: &mut dyn Write,
    name: &'a str,
) -> Result<Saved<'a>> {
    let options = &command.common;
    let target = super::daemon(&options.source);
    let now = SystemTime::now();
    let range = PastRange::of(&command.range, false, now)?;
    let (credentials, selection) = (options.source.credentials(), options.devices.selection()?);
    let mut snapshot: Option<Snapshot> = fetch(target.clone(), &credentials)
        .await
        .map_err(|error| super::with_next_step(error, &options.source))?;
    let mut slow: Option<ApiSlowLog> = fetch(target.clone(), &credentials).await?;
    if let Some(selection) = &selection {
        snapshot.iter_mut().for_each(|snapshot| select(snapshot, selection));
        if let Some(log) = &mut slow {
            log.ios = log.ios.iter().filter(|io| selection.shows(&io.device)).cloned().collect();
        }
    }
    let intervals = history(target, range.query(""), &credentials, selection, folder).await?;
    let Intervals { head, .. } = &intervals;
    let mut history = head.clone();
    if range.is_everything() {
        history.to = unix_seconds(now);
        history.from = history.complete_from.unwrap_or(history.to);
    }
    let head = SavedHead { saved: unix_seconds(now), history, snapshot, slow };
    write(&head, intervals, output, range, name).await
}

/// Removes other devices, including from the workloads.
fn select(snapshot: &mut Snapshot, selection: &Selection) {
    Document::select(snapshot, selection);
    snapshot.workloads.iter_mut().for_each(|workloads| select_workloads(workloads, selection));
}

async fn write<'a>(
    head: &SavedHead,
    mut intervals: Intervals<ApiHistory>,
    output: &mut dyn Write,
    range: PastRange,
    name: &'a str,
) -> Result<Saved<'a>> {
    let unwritable = |error: io::Error| anyhow!("cannot write {name}: {error}");
    let mut output = SavedWriter::begin(output, head).map_err(unwritable)?;
    let (mut began, mut ended) = (None, None);
    while let Some(interval) = intervals.next().await? {
        began.get_or_insert(unix_seconds(interval.began));
        ended = Some(unix_seconds(interval.ended));
        output.interval(&interval).map_err(unwritable)?;
    }
    Ok(Saved {
        file: name,
        host: head.history.host.clone(),
        intervals: output.end().map_err(unwritable)?,
        began,
        ended,
        missing: missing(&head.history, range, began.is_some()),
    })
}
