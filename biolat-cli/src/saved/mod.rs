//! Files written by `biolat save`: a history as JSON lines, described in `docs/history.md`.

mod reader;
mod writer;

use biolat_model::{
    api::{ApiHistory, ApiSlowLog},
    snapshot::Snapshot,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub(super) use reader::{name_of, open};
pub(super) use writer::SavedWriter;

/// The value of `format` in the first line.
const FORMAT: &str = "biolat history";
const FORMAT_VERSION: u32 = 1;

/// Stands for standard input and output.
pub(super) const STANDARD_STREAM: &str = "-";

/// The first line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SavedHead {
    /// Time of saving, in seconds since the epoch.
    pub(super) saved: f64,
    /// Without intervals.
    pub(super) history: ApiHistory,
    /// The daemon's counters at that time. `None` before its first collection.
    pub(super) snapshot: Option<Snapshot>,
    pub(super) slow: Option<ApiSlowLog>,
}

/// The first line as this version writes and reads it.
#[derive(Serialize, Deserialize)]
struct HeadLine<S, L> {
    format: String,
    format_version: u32,
    saved: f64,
    /// An [`ApiHistory`] without the field `intervals`.
    history: Box<RawValue>,
    snapshot: S,
    slow: L,
}

/// The fields that every version of the first line has.
#[derive(Deserialize)]
struct FormatLine {
    format: String,
    format_version: u32,
}

/// The last line.
#[derive(Serialize, Deserialize)]
struct EndLine {
    end: End,
}

#[derive(Serialize, Deserialize)]
struct End {
    intervals: u64,
}
