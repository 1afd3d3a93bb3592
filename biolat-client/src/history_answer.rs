//! Reads the JSON of `/api/v1/history` one interval at a time, because the response can be larger than memory.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt,
    io::{self, BufReader, Read},
};

use anyhow::{Context as _, Result, anyhow};
use biolat_model::{api::ApiHistory, period::Period};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    document::{Endpoint as _, Versions, malformed},
    intervals::IntervalSink,
    validate,
};

/// An interval of a thousand devices with four ops each takes 9 MiB. In memory it may be ten times as large.
const MAX_INTERVAL: usize = 16 << 20;

/// Reads a response. Everything before the intervals is the head: they are its last field.
pub(super) fn read(answer: &mut dyn Read, sink: &mut IntervalSink<ApiHistory>) -> Result<()> {
    let left = Cell::new(MAX_INTERVAL);
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(Limited { answer, left: &left }));
    let mut reading = Reading { sink, left: &left, has_head: false, failure: None };
    let outcome = (&mut reading).deserialize(&mut json).and_then(|()| json.end());
    let (failure, has_head) = (reading.failure, reading.has_head);
    match (failure, outcome) {
        (Some(error), _) => Err(error),
        (None, Err(error)) if has_head => Err(malformed(error)),
        (None, Err(error)) => Err(anyhow!("the answer is not {}: {error}", ApiHistory::NAME)),
        (None, Ok(())) => Ok(()),
    }
}

/// Fails before a single interval exhausts memory.
struct Limited<'a> {
    answer: &'a mut dyn Read,
    left: &'a Cell<usize>,
}

impl Read for Limited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.answer.read(buffer)?;
        let left = self.left.get().checked_sub(read);
        let too_large = || io::Error::other(format!("an interval is larger than {} MiB", MAX_INTERVAL >> 20));
        self.left.set(left.ok_or_else(too_large)?);
        Ok(read)
    }
}

struct Reading<'a> {
    sink: &'a mut IntervalSink<ApiHistory>,
    left: &'a Cell<usize>,
    has_head: bool,
    /// Why reading failed, unless the JSON was malformed.
    failure: Option<anyhow::Error>,
}

impl Reading<'_> {
    /// Handles everything before the intervals.
    fn head(&mut self, fields: &BTreeMap<String, Box<RawValue>>) -> Result<()> {
        let json = serde_json::to_vec(fields)?;
        // Check the version first: a different version may have different fields.
        let versions: Result<Versions, _> = serde_json::from_slice(&json);
        versions.with_context(|| format!("the answer is not {}", ApiHistory::NAME))?.check()?;
        let head: ApiHistory = serde_json::from_slice(&json).map_err(malformed)?;
        self.has_head = true;
        validate::history(&head)?;
        self.sink.head(head)
    }

    fn interval(&mut self, json: &RawValue) -> Result<()> {
        self.left.set(MAX_INTERVAL);
        let interval: Period = serde_json::from_slice(json.get().as_bytes()).map_err(malformed)?;
        validate::interval(&interval)?;
        self.sink.interval(interval)
    }

    /// Stores the error itself: serde would add a line and a column.
    fn done<E: serde::de::Error>(&mut self, outcome: Result<()>) -> Result<(), E> {
        outcome.map_err(|failure| {
            self.failure = Some(failure);
            E::custom("ended")
        })
    }
}

impl<'de> DeserializeSeed<'de> for &mut Reading<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Reading<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let mut fields = BTreeMap::new();
        while let Some(field) = map.next_key::<String>()? {
            if self.has_head {
                map.next_value::<IgnoredAny>()?;
            } else if field == "intervals" {
                let head = self.head(&fields);
                self.done(head)?;
                map.next_value_seed(IntervalList(self))?;
            } else {
                fields.insert(field, map.next_value()?);
            }
        }
        if !self.has_head {
            // Parse the head first: if this is some other kind of document, the error says what is wrong.
            let head =
                self.head(&fields).and_then(|()| Err(anyhow!("malformed answer: missing field `intervals`")));
            return self.done(head);
        }
        Ok(())
    }
}

struct IntervalList<'a, 'b>(&'a mut Reading<'b>);

impl<'de> DeserializeSeed<'de> for IntervalList<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for IntervalList<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of intervals")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        // Parsing bytes, as everywhere else, keeps the code small.
        while let Some(interval) = list.next_element::<Box<RawValue>>()? {
            let outcome = self.0.interval(&interval);
            self.0.done(outcome)?;
        }
        Ok(())
    }
}
