//! Files of `biolat save`: a history as lines of JSON. `docs/history.md` describes them.

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

/// What the first line begins with.
const FORMAT: &str = "biolat history";
const FORMAT_VERSION: u32 = 1;

/// Stands for standard input and output.
pub(super) const STANDARD_STREAM: &str = "-";

/// The first line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SavedHead {
    /// When it was saved, in seconds since the epoch.
    pub(super) saved: f64,
    /// Without intervals.
    pub(super) history: ApiHistory,
    /// What the daemon had counted then; none before its first collection.
    pub(super) snapshot: Option<Snapshot>,
    pub(super) slow: Option<ApiSlowLog>,
}

/// The first line as it is written, and as it is read by this version.
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

/// What every version of the first line has.
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
