//! The table: titles and rows.

use biolat_model::{
    saturating::add,
    text::format::{short_count, short_number, short_share},
};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Offset, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Text},
    widgets::{Cell, Row, StatefulWidget, Table, TableState, Widget as _},
};

use super::{
    columns::Column,
    layout::{columns, gap},
    row::TopRow,
    state::{Ops, TopState},
    view::{BARS, BOLD, REVERSED, TopView},
};
use crate::window::{Figures, Window};

/// Latencies that are high for any drive, in yellow and in red.
const SLOW: f64 = 0.02;
const BAD: f64 = 0.2;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, view: &TopView<'_>) {
    let columns = columns(area.width, view.state, view.rows);
    let octaves = Octaves::of(view);
    let rows = view.rows.iter().map(|row| {
        let cells = columns.iter().map(|&(column, width)| cell(row, column, width, octaves, view));
        Row::new(cells).style(if row.is_idle() { view.dim() } else { Style::new() })
    });
    let widths = columns.iter().map(|&(_, width)| Constraint::Length(width));
    let table = Table::new(rows, widths)
        .header(titles(&columns, octaves, view))
        .column_spacing(gap(area.width))
        .row_highlight_style(REVERSED);
    // Scrolls to the selected row.
    let mut selected = TableState::new().with_selected(view.state.place(view.rows));
    StatefulWidget::render(table, area, buffer, &mut selected);
    if view.rows.is_empty() {
        Line::styled(nothing(view), view.dim())
            .render(area.offset(Offset::new(0, 1)).intersection(area), buffer);
    }
}

fn nothing(view: &TopView<'_>) -> &'static str {
    match view.windows.back() {
        None => "waiting for the first figures",
        Some(_) if view.state.filter.is_empty() => "no devices",
        Some(_) => "no device name contains this (f: filter)",
    }
}

fn titles(columns: &[(Column, u16)], octaves: Octaves, view: &TopView<'_>) -> Row<'static> {
    let titles = columns.iter().map(|&(column, width)| {
        let title = match column {
            Column::Shape => octaves.title(usize::from(width), view),
            column => column.title().to_owned(),
        };
        let is_sorted = column == view.state.sort;
        aligned(
            column,
            title,
            if is_sorted { BOLD.patch(view.ink(Color::Cyan)).patch(REVERSED) } else { BOLD },
        )
    });
    Row::new(titles).style(Style::new().add_modifier(Modifier::UNDERLINED))
}

fn aligned(column: Column, text: String, style: Style) -> Cell<'static> {
    let text = Text::styled(text, style);
    Cell::new(if column.is_number() { text.right_aligned() } else { text })
}

fn cell(row: &TopRow, column: Column, width: u16, octaves: Octaves, view: &TopView<'_>) -> Cell<'static> {
    let state = view.state;
    let width = usize::from(width);
    let plain = Style::new();
    let hung = if row.is_hung() { view.ink(Color::Red).patch(BOLD) } else { plain };
    let (text, style) = match column {
        Column::Device => (row.device.clone(), hung),
        Column::Model => (row.model.clone(), plain),
        Column::Op => (row.op.clone(), plain),
        Column::Iops => (short_number(row.ios()), plain),
        Column::Bytes => (short_number(row.bytes() / 1e6), plain),
        Column::P50 | Column::P99 | Column::P999 | Column::Max => {
            let share = column.share().unwrap_or_default();
            let bounds = row.figures.of(state.phase).percentile(share);
            let style = match bounds.map(|bounds| bounds.lower) {
                Some(lower) if lower >= BAD => view.ink(Color::Red),
                Some(lower) if lower >= SLOW => view.ink(Color::Yellow),
                _ => plain,
            };
            (view.numbers().short_bounds(bounds), style)
        }
        Column::Queue => {
            let share = row.figures.queue_share();
            let words = short_share(share);
            let bar = width.checked_sub(6).map(|width| view.bar(share.unwrap_or_default(), width));
            let padding = width.saturating_sub(6);
            let style = if bar.is_some() { view.ink(BARS) } else { plain };
            (bar.map_or(words.clone(), |bar| format!("{bar:<padding$} {words:>5}")), style)
        }
        Column::Errors => {
            let failed = row.figures.failed();
            (short_count(failed), if failed > 0 { view.ink(Color::Red).patch(BOLD) } else { plain })
        }
        Column::Inflight => {
            let text = row.inflight.map(|inflight| short_count(inflight.dispatched()));
            (text.unwrap_or_else(|| "-".to_owned()), hung)
        }
        Column::Oldest => (oldest(row, view), hung),
        Column::Shape => (octaves.shape(row, width, view), view.ink(BARS)),
        Column::History => (history(row, width, view), view.ink(BARS)),
    };
    aligned(column, text, style)
}

/// `16s`, or `>16s` for a lower bound.
fn oldest(row: &TopRow, view: &TopView<'_>) -> String {
    let Some(age) = row.oldest() else { return "-".to_owned() };
    format!(
        "{}{}",
        if row.inflight.is_some_and(|inflight| inflight.is_exact) { "" } else { ">" },
        view.numbers().short_latency(age)
    )
}

/// The range of octaves of all rows' latencies, so that their shapes can be compared.
#[derive(Clone, Copy)]
struct Octaves {
    first: i32,
    last: i32,
}

impl Octaves {
    fn of(view: &TopView<'_>) -> Self {
        let all = view.rows.iter().flat_map(|row| &row.figures.of(view.state.phase).buckets);
        let (first, last) = all.fold((i32::MAX, i32::MIN), |(first, last), &(index, _)| {
            (first.min((index + 7) >> 3), last.max((index + 7) >> 3))
        });
        if first > last { Self { first: 0, last: -1 } } else { Self { first, last } }
    }

    /// Cells per octave, and octaves per cell.
    fn scale(self, width: usize) -> (usize, usize) {
        let octaves = (self.last - self.first + 1).max(1) as usize;
        ([4, 2].into_iter().find(|&fine| octaves * fine <= width).unwrap_or(1), octaves.div_ceil(width))
    }

    fn cells(self, width: usize) -> usize {
        let (fine, coarse) = self.scale(width);
        (((self.last - self.first + 1).max(0) as usize) * fine).div_ceil(coarse).min(width)
    }

    fn title(self, width: usize, view: &TopView<'_>) -> String {
        if self.first > self.last {
            return "LATENCIES".to_owned();
        }
        let ends =
            [self.first - 1, self.last].map(|octave| view.numbers().short_latency(f64::from(octave).exp2()));
        let between = self.cells(width).saturating_sub(ends[0].chars().count() + ends[1].chars().count());
        format!("{}{}{}", ends[0], " ".repeat(between.max(1)), ends[1])
    }

    /// The distribution of the latencies, shortest on the left.
    fn shape(self, row: &TopRow, width: usize, view: &TopView<'_>) -> String {
        let (fine, coarse) = self.scale(width);
        let mut cells = vec![0_u64; self.cells(width)];
        let start = (self.first - 1) * 8 + 1;
        for &(index, count) in &row.figures.of(view.state.phase).buckets {
            let place = (index - start).max(0) as usize * fine / 8 / coarse;
            if let Some(cell) = cells.get_mut(place) {
                add(cell, count);
            }
        }
        let highest = cells.iter().copied().max().unwrap_or_default().max(1) as f64;
        cells.iter().map(|&count| view.terminal.height(Some(count as f64 / highest))).collect()
    }
}

/// The 99th percentile of each window, latest on the right.
fn history(row: &TopRow, width: usize, view: &TopView<'_>) -> String {
    let windows = view.windows.iter().skip(view.windows.len().saturating_sub(width));
    let past: Vec<_> = windows.map(|window| past(row, window, view.state)).collect();
    let highest = past.iter().flatten().copied().fold(0.0, f64::max);
    let blank = " ".repeat(width - past.len());
    blank + &past.iter().map(|p99| view.terminal.height(p99.map(|p99| p99 / highest))).collect::<String>()
}

fn past(row: &TopRow, window: &Window, state: &TopState) -> Option<f64> {
    let device = window.devices.iter().chain(&window.volumes).find(|device| device.name == row.device)?;
    let upper =
        |figures: &Figures| figures.of(state.phase).percentile(0.99).map(|bounds| bounds.upper.min(1100.0));
    match state.ops {
        Ops::Merged => upper(&device.all()),
        _ => upper(&device.ops.iter().find(|op| op.name == row.op)?.figures),
    }
}
