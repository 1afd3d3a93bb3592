//! The keys, one a line.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::draw::line;

const HELP: &[&str] = &[
    "s S < >  the column to sort by",
    "r        the other way round",
    "p        latency: total, queue, device",
    "o        ops: all in one, each, one only",
    "f /      devices with this in their names",
    "up down  mark a row (j k, PgUp PgDn too)",
    "Enter    the marked row's histogram",
    "space    pause",
    "+ -      figures of a longer, shorter time",
    "q Esc    quit",
    "",
    "total    from its making to its completion",
    "queue    before the driver has it",
    "device   after that",
    "QUEUE    the queue's share of the total",
    "ERR      failed I/Os",
    "",
    "Percentiles and max are right to 4.4 %.",
];

pub(super) fn draw(buffer: &mut Buffer, area: Rect) {
    for (row, text) in (0..area.height).zip(HELP) {
        line(buffer, area, row, text, Style::new());
    }
}
