//! The contents of the records: names, intervals, totals.

use std::{fs::File, iter, sync::Arc, time::Duration};

use biolat_model::epoch;
use serde::{Deserialize, Serialize};

use super::{
    Origin, PIECE,
    log::{self, Kind, Records},
};
use crate::{
    interval::Interval,
    names::Names,
    part::{OriginMatch, Part, Restoring, Totals},
};

/// The line of JSON before the block of the totals.
#[derive(Serialize, Deserialize)]
struct TotalsHead {
    boot: String,
    devices: String,
    started_ns: u64,
    clock_shift_ns: u64,
}

/// Encodes the new part in pieces. `written` holds the names that are already in the file.
pub(super) fn add(
    mut records: Records,
    part: &Part,
    written: &Names,
    origin: &Origin,
) -> impl Iterator<Item = Vec<u8>> {
    for names in part.names.since(written).pieces() {
        records.add(Kind::Names, |bytes| write_json(bytes, &names));
    }
    let mut intervals = part.intervals.iter();
    let mut totals = part.totals.as_ref();
    iter::from_fn(move || {
        while records.bytes.len() < PIECE {
            if let Some(interval) = intervals.next() {
                records.add(Kind::Interval, |bytes| write_interval(bytes, interval, part.slow_number));
            } else if let Some(totals) = totals.take() {
                records.add(Kind::Totals, |bytes| write_totals(bytes, totals, origin));
            } else {
                break;
            }
        }
        let piece = std::mem::take(&mut records.bytes);
        (!piece.is_empty()).then_some(piece)
    })
}

/// Reads a file up to the first corrupt record. Returns whether that was all of it.
pub(super) fn read(file: &File, generation: u64, origin: &Origin, restoring: &mut Restoring) -> bool {
    log::read(file, generation, |kind, bytes| {
        match kind {
            Kind::Names => restoring.add_names(serde_json::from_slice(bytes).ok()?),
            Kind::Interval => {
                let (interval, slow_number) = interval(bytes)?;
                restoring.add(interval, slow_number);
            }
            Kind::Totals => {
                let (totals, same) = totals(bytes, origin)?;
                restoring.set_totals(totals, same);
            }
        }
        Some(())
    })
    // Data that the drive cannot read is as good as lost.
    .unwrap_or(false)
}

fn write_json(bytes: &mut Vec<u8>, value: &impl Serialize) {
    // Writing to memory does not fail, and all keys are strings.
    let _ = serde_json::to_writer(bytes, value);
}

fn write_totals(bytes: &mut Vec<u8>, totals: &Totals, origin: &Origin) {
    let head = TotalsHead {
        boot: origin.boot.clone(),
        devices: origin.devices.clone(),
        started_ns: epoch::nanoseconds(totals.started),
        clock_shift_ns: nanoseconds(totals.clock_shift),
    };
    write_json(bytes, &head);
    bytes.push(b'\n');
    bytes.extend(&*totals.block);
}

fn totals(bytes: &[u8], origin: &Origin) -> Option<(Totals, OriginMatch)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let head: TotalsHead = serde_json::from_slice(&bytes[..end]).ok()?;
    let totals = Totals {
        started: epoch::time(head.started_ns),
        clock_shift: Duration::from_nanos(head.clock_shift_ns),
        block: bytes[end + 1..].into(),
    };
    Some((totals, OriginMatch { boot: head.boot == origin.boot, devices: head.devices == origin.devices }))
}

fn write_interval(bytes: &mut Vec<u8>, interval: &Interval, slow_number: u64) {
    bytes.extend(nanoseconds(interval.began).to_le_bytes());
    bytes.extend(nanoseconds(interval.ended).to_le_bytes());
    bytes.extend(interval.ended_us.to_le_bytes());
    bytes.extend(slow_number.to_le_bytes());
    bytes.push(interval.breakdown.is_some().into());
    bytes.extend((interval.block.len() as u32).to_le_bytes());
    bytes.extend(&*interval.block);
    bytes.extend(interval.breakdown.iter().flat_map(|breakdown| breakdown.iter()));
}

/// Returns the interval, and the number of the latest slow I/O when it was written.
fn interval(mut bytes: &[u8]) -> Option<(Interval, u64)> {
    let mut number = || Some(u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?));
    let (began, ended, ended_us, slow_number) = (number()?, number()?, number()?, number()?);
    let has_breakdown = *bytes.split_off_first()? == 1;
    let length = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
    let block = bytes.split_off(..length as usize)?;
    let interval = Interval {
        began: Duration::from_nanos(began),
        ended: Duration::from_nanos(ended),
        ended_us,
        block: Arc::from(block),
        breakdown: has_breakdown.then(|| bytes.into()),
    };
    Some((interval, slow_number))
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
