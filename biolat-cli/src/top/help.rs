//! The help: a line for each key and column.

use ratatui::{buffer::Buffer, layout::Rect, text::Text, widgets::Widget as _};

const HELP: &[&str] = &[
    "s S < >  sort by the next, previous column",
    "r        reverse the order",
    "p        phase: total, admission, queue, device",
    "o        ops: together, each, one only",
    "f /      filter devices by name",
    "up down  select a row (also j k PgUp PgDn)",
    "Enter w  histogram, workloads of the row",
    "space    pause",
    "+ -      longer, shorter window",
    "q Esc    quit",
    "",
    "total     from allocation to completion",
    "admission from submission to allocation",
    "queue     from allocation to dispatch",
    "device    from dispatch to completion",
    "QUEUE     share of the queue in the total",
    "ERR       failed I/Os",
    "INFL      I/Os in flight, of all ops",
    "OLDEST    age of the oldest, > at least",
    "",
    "p50 to max ±4.4 %, of workloads ±19 %.",
];

pub(super) fn draw(buffer: &mut Buffer, area: Rect) {
    Text::from_iter(HELP.iter().copied()).render(area, buffer);
}
