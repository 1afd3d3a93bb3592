//! The rows of a window, filtered and sorted.

use std::{cmp::Ordering, slice};

use biolat_common::series::Phase;
use biolat_model::snapshot::Inflight;

use super::{
    columns::Column,
    row::{ALL, TopRow},
    state::{Ops, TopState},
};
use crate::{
    findings::{missing_admission, overdue},
    window::{DeviceWindow, Figures, Window},
};

/// The rows from top to bottom.
pub(super) fn rows(window: &Window, state: &TopState) -> Vec<TopRow> {
    let drives = window.devices.iter().map(|device| (device, Some(device.inflight)));
    let devices = drives.chain(window.volumes.iter().map(|volume| (volume, None)));
    let mut rows: Vec<_> = devices
        .filter(|(device, _)| device.name.contains(&state.filter))
        .flat_map(|(device, inflight)| of_device(device, inflight, window.seconds, state))
        .collect();
    rows.sort_by(|a, b| {
        let order = compare(a, b, state);
        let order = if state.is_reversed { order.reverse() } else { order };
        // A hung device has no latencies to sort by.
        let hung = if state.is_default_order() { oldest_if_hung(a, b) } else { Ordering::Equal };
        hung.then(order).then_with(|| natural(&a.device, &b.device)).then_with(|| a.op.cmp(&b.op))
    });
    rows
}

/// All ops, the most common ones first.
pub(super) fn ops(window: &Window) -> Vec<String> {
    let mut ops: Vec<_> =
        window.devices.iter().flat_map(|device| &device.ops).map(|op| op.name.clone()).collect();
    ops.sort_by_key(|op| (usual(op), op.clone()));
    ops.dedup();
    ops
}

/// Whether the admission phase of any device is recorded.
pub(super) fn has_admission(window: &Window) -> bool {
    window.devices.iter().any(|device| device.has(Phase::Admission))
}

/// The rank of an op: reads and writes come first.
fn usual(op: &str) -> usize {
    ["read", "write", "discard", "flush"].iter().position(|one| *one == op).unwrap_or(usize::MAX)
}

fn of_device(
    device: &DeviceWindow,
    inflight: Option<Inflight>,
    seconds: f64,
    state: &TopState,
) -> Vec<TopRow> {
    let overdue = overdue(device, seconds);
    let row = |op: &str, figures: Figures| TopRow {
        device: device.name.clone(),
        model: device.model.clone(),
        op: op.to_owned(),
        seconds,
        figures,
        inflight,
        overdue: overdue.clone(),
        hint: (!device.has(state.phase)).then(|| match state.phase {
            Phase::Admission => missing_admission(slice::from_ref(device)).unwrap_or_default(),
            _ => device.hint.clone(),
        }),
    };
    match &state.ops {
        Ops::Merged => vec![row(ALL, device.all())],
        Ops::Each => device.ops.iter().map(|op| row(&op.name, op.figures.clone())).collect(),
        Ops::Only(only) => {
            let op = device.ops.iter().find(|op| op.name == *only);
            vec![row(only, op.map(|op| op.figures.clone()).unwrap_or_default())]
        }
    }
}

/// The worst first; names in ascending order.
fn compare(a: &TopRow, b: &TopRow, state: &TopState) -> Ordering {
    let figure = |row: &TopRow| {
        let latencies = row.figures.of(state.phase);
        match state.sort {
            Column::Iops => Some(row.ios()),
            Column::Bytes => Some(row.bytes()),
            Column::Queue => row.figures.queue_share(),
            Column::Errors => Some(row.figures.failed() as f64),
            Column::Inflight => row.inflight.map(|inflight| inflight.dispatched() as f64),
            Column::Oldest => row.oldest(),
            column => column.share().and_then(|share| latencies.percentile(share)).map(|bounds| bounds.upper),
        }
    };
    match state.sort {
        Column::Device => natural(&a.device, &b.device),
        Column::Model => a.model.cmp(&b.model),
        Column::Op => usual(&a.op).cmp(&usual(&b.op)).then_with(|| a.op.cmp(&b.op)),
        _ => figure(b).unwrap_or(-1.0).total_cmp(&figure(a).unwrap_or(-1.0)),
    }
}

/// Hung devices first, by age.
fn oldest_if_hung(a: &TopRow, b: &TopRow) -> Ordering {
    let age = |row: &TopRow| if row.is_hung() { row.oldest().unwrap_or_default() } else { 0.0 };
    age(b).total_cmp(&age(a))
}

/// Compares numbers in names by value: loop9 before loop10.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (word_a, rest_a) = word(a);
        let (word_b, rest_b) = word(b);
        let order = match (word_a.parse::<u64>(), word_b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            _ => word_a.cmp(word_b),
        };
        if order.is_ne() || word_a.is_empty() {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
}

/// Splits off the leading digits or non-digits.
fn word(text: &str) -> (&str, &str) {
    let is_digit = |char: char| char.is_ascii_digit();
    let begins = text.starts_with(is_digit);
    text.split_at(text.find(|char| is_digit(char) != begins).unwrap_or(text.len()))
}
