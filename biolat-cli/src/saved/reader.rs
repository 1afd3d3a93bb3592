//! Reads the lines. Each can contain anything, because a file can come from another host.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use anyhow::{Context as _, Result, anyhow, bail};
use biolat_client::{Document, IntervalSink, Intervals, Versions, validate};
use biolat_model::{
    api::{ApiHistory, ApiSlowLog},
    device::Selection,
    period::Period,
    snapshot::Snapshot,
    text::sanitize,
    version,
};
use biolat_system::rights::{self, Role};
use flate2::read::MultiGzDecoder;

use super::{EndLine, FORMAT, FORMAT_VERSION, FormatLine, HeadLine, STANDARD_STREAM, SavedHead};

/// A snapshot or an interval of a thousand devices with four ops each takes 9 MiB. In memory it may be ten times as large.
const MAX_LINE: usize = 32 << 20;

/// The magic number of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Starts reading a file. The reading thread opens it, because it may be a pipe.
pub(crate) async fn open(path: &Path, selection: Option<Selection>) -> Result<Intervals<SavedHead>> {
    let path = path.to_owned();
    Intervals::begin(selection, move |sink| {
        let name = name_of(&path);
        let mut input: Box<dyn Read> = if path.as_os_str() == STANDARD_STREAM {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(&path).with_context(|| format!("cannot open {name}"))?)
        };
        // Opening the file may require root, but reading it does not.
        rights::drop_privileges(Role::Serving, false)?;
        read(&mut input, sink).context(name)
    })
    .await
}

/// The display name of a file.
pub(crate) fn name_of(path: &Path) -> String {
    if path.as_os_str() == STANDARD_STREAM {
        return "standard input".to_owned();
    }
    sanitize::text(&path.to_string_lossy())
}

fn read(mut input: &mut dyn Read, sink: &mut IntervalSink<SavedHead>) -> Result<()> {
    let mut begin = Vec::new();
    Read::by_ref(&mut input).take(GZIP.len() as u64).read_to_end(&mut begin).context("cannot read it")?;
    if begin.is_empty() {
        bail!("it is empty");
    }
    let is_gzip = begin == GZIP;
    let mut input = io::Cursor::new(begin).chain(input);
    if is_gzip {
        read_lines(Lines::of(&mut MultiGzDecoder::new(BufReader::new(input))), sink)
    } else {
        read_lines(Lines::of(&mut input), sink)
    }
}

fn read_lines(mut lines: Lines<'_>, sink: &mut IntervalSink<SavedHead>) -> Result<()> {
    const INCOMPLETE: &str = "it is incomplete: its end is missing";
    let head = lines.next()?;
    let head = head_of(head.unwrap_or_default())?;
    sink.head(head)?;
    let mut intervals = 0;
    loop {
        let line = lines.next()?.context(INCOMPLETE)?;
        if let Ok(EndLine { end }) = serde_json::from_slice(line) {
            if end.intervals != intervals {
                bail!("it is incomplete: it has {intervals} of {} intervals", end.intervals);
            }
            break;
        }
        let interval: Period = serde_json::from_slice(line).map_err(|error| {
            anyhow!("it is damaged: interval {}: {}", intervals + 1, sanitize::text(&error.to_string()))
        })?;
        validate::interval(&interval)?;
        sink.interval(interval)?;
        intervals += 1;
    }
    if lines.next()?.is_some() {
        bail!("it is damaged: it has data after its end");
    }
    Ok(())
}

fn head_of(line: &[u8]) -> Result<SavedHead> {
    let format: Option<FormatLine> = serde_json::from_slice(line).ok();
    let format = format.filter(|line| line.format == FORMAT);
    let FormatLine { format_version, .. } = format.context("it is not a history that `biolat save` wrote")?;
    if format_version != FORMAT_VERSION {
        bail!(
            "it has version {format_version} of the format, and biolat {} reads version {FORMAT_VERSION}: use a newer biolat",
            version::VERSION
        );
    }
    let damaged = |error: serde_json::Error| {
        anyhow!("it is damaged: its first line: {}", sanitize::text(&error.to_string()))
    };
    let HeadLine { saved, history, snapshot, slow, .. }: HeadLine<Option<Snapshot>, Option<ApiSlowLog>> =
        serde_json::from_slice(line).map_err(damaged)?;
    let history = history.get().as_bytes();
    let versions: Versions = serde_json::from_slice(history).map_err(damaged)?;
    versions.check()?;
    let history: ApiHistory = serde_json::from_slice(history).map_err(damaged)?;
    validate::history(&history)?;
    snapshot.as_ref().map_or(Ok(()), Document::validate)?;
    slow.as_ref().map_or(Ok(()), Document::validate)?;
    Ok(SavedHead { saved, history, snapshot, slow })
}

/// Lines of limited length.
struct Lines<'a> {
    input: BufReader<&'a mut dyn Read>,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    fn of(input: &'a mut dyn Read) -> Self {
        Self { input: BufReader::new(input), line: Vec::new() }
    }

    /// The next line without its newline. `None` at the end, or if the last line is truncated.
    fn next(&mut self) -> Result<Option<&[u8]>> {
        self.line.clear();
        let read = self.input.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut self.line);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => anyhow!("it is incomplete: its end is missing"),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => anyhow!("it is damaged: {error}"),
            _ => anyhow!("cannot read it: {error}"),
        })?;
        if self.line.len() == MAX_LINE {
            bail!("it is damaged: a line is longer than {} MiB", MAX_LINE >> 20);
        }
        Ok(self.line.strip_suffix(b"\n"))
    }
}
