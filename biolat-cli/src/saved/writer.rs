//! Writes the lines.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use biolat_model::period::Period;
use flate2::{Compression, write::GzEncoder};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{End, EndLine, FORMAT, FORMAT_VERSION, HeadLine, SavedHead};

/// A history that is being written.
pub(crate) struct SavedWriter<'a> {
    output: GzEncoder<&'a mut dyn Write>,
    intervals: u64,
}

impl<'a> SavedWriter<'a> {
    /// Writes the head.
    pub(crate) fn begin(output: &'a mut dyn Write, head: &SavedHead) -> io::Result<Self> {
        let history = serde_json::to_vec(&head.history)?;
        let mut history: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&history)?;
        history.remove("intervals");
        let head: HeadLine<_, _> = HeadLine {
            format: FORMAT.to_owned(),
            format_version: FORMAT_VERSION,
            saved: head.saved,
            history: to_raw_value(&history)?,
            snapshot: &head.snapshot,
            slow: &head.slow,
        };
        let mut writer = Self { output: GzEncoder::new(output, Compression::default()), intervals: 0 };
        writer.line(&head)?;
        Ok(writer)
    }

    pub(crate) fn interval(&mut self, interval: &Period) -> io::Result<()> {
        self.intervals += 1;
        self.line(interval)
    }

    /// Writes the end. Returns the number of intervals.
    pub(crate) fn end(mut self) -> io::Result<u64> {
        let intervals = self.intervals;
        self.line(&EndLine { end: End { intervals } })?;
        self.output.finish()?;
        Ok(intervals)
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut json = serde_json::to_vec(line)?;
        json.push(b'\n');
        self.output.write_all(&json)
    }
}
