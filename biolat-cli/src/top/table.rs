//! The table: titles and rows.

use biolat_model::{
    saturating::add,
    text::format::{short_count, short_number, short_share},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
};

use super::{
    columns::Column,
    layout::{Placed, place},
    row::TopRow,
    state::{Ops, TopState},
    view::{BARS, BOLD, REVERSED, TopView, line},
};
use crate::window::{Figures, Window};

/// Latencies that are high on any drive: in yellow, and in red.
const SLOW: f64 = 0.02;
const BAD: f64 = 0.2;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, view: &TopView<'_>) {
    let columns = place(area.width, view.state, view.rows);
    let octaves = Octaves::of(view);
    titles(buffer, area, &columns, octaves, view);
    let height = usize::from(area.height.saturating_sub(1));
    if view.rows.is_empty() {
        line(buffer, area, 1, nothing(view), view.dim());
        return;
    }
    // Scrolls to the selected row.
    let marked = view.state.place(view.rows);
    let first = marked.map_or(0, |place| (place + 1).saturating_sub(height));
    for (y, (place, row)) in (1..area.height).zip(view.rows.iter().enumerate().skip(first)) {
        let base = if row.is_idle() { view.dim() } else { Style::new() };
        for &placed in &columns {
            let (text, style) = cell(row, placed, octaves, view);
            put(buffer, area, y, placed, &text, base.patch(style));
        }
        if marked == Some(place) {
            let whole = Rect { y: area.y + y, height: 1, ..area };
            buffer.set_style(whole, REVERSED);
        }
    }
}

fn nothing(view: &TopView<'_>) -> &'static str {
    match view.windows.back() {
        None => "waiting for the first figures",
        Some(_) if view.state.filter.is_empty() => "no devices",
        Some(_) => "no device with this in its name (f: filter)",
    }
}

fn titles(buffer: &mut Buffer, area: Rect, columns: &[Placed], octaves: Octaves, view: &TopView<'_>) {
    let whole = Rect { height: 1, ..area };
    buffer.set_style(whole, Style::new().add_modifier(Modifier::UNDERLINED));
    for &placed in columns {
        let is_sorted = placed.column == view.state.sort;
        let title = match placed.column {
            Column::Shape => octaves.title(usize::from(placed.width), view),
            column => column.title().to_owned(),
        };
        let style = if is_sorted { BOLD.patch(view.ink(Color::Cyan)).patch(REVERSED) } else { BOLD };
        put(buffer, area, 0, placed, &title, style);
    }
}

/// Draws a cell.
fn put(buffer: &mut Buffer, area: Rect, row: u16, placed: Placed, text: &str, style: Style) {
    let width = usize::from(placed.width);
    let indent = if placed.column.is_number() { width.saturating_sub(text.chars().count()) } else { 0 };
    buffer.set_stringn(area.x + placed.x + indent as u16, area.y + row, text, width - indent, style);
}

fn cell(row: &TopRow, placed: Placed, octaves: Octaves, view: &TopView<'_>) -> (String, Style) {
    let state = view.state;
    let width = usize::from(placed.width);
    let plain = Style::new();
    let hung = if row.is_hung() { view.ink(Color::Red).patch(BOLD) } else { plain };
    match placed.column {
        Column::Device => (row.device.clone(), hung),
        Column::Model => (row.model.clone(), plain),
        Column::Op => (row.op.clone(), plain),
        Column::Iops => (short_number(row.ios()), plain),
        Column::Bytes => (short_number(row.bytes() / 1e6), plain),
        Column::P50 | Column::P99 | Column::P999 | Column::Max => {
            let share = placed.column.share().unwrap_or_default();
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
        Column::Inflight => (short_count(row.inflight.dispatched()), hung),
        Column::Oldest => (oldest(row, view), hung),
        Column::Shape => (octaves.shape(row, width, view), view.ink(BARS)),
        Column::History => (history(row, width, view), view.ink(BARS)),
    }
}

/// `16s`, `>16s` if that is a lower bound.
fn oldest(row: &TopRow, view: &TopView<'_>) -> String {
    let Some(age) = row.oldest() else { return "-".to_owned() };
    format!("{}{}", if row.inflight.is_exact { "" } else { ">" }, view.numbers().short_latency(age))
}

/// The powers of two of all rows' latencies, so that their shapes can be compared.
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

    /// The distribution of the latencies, the shortest at the left.
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

/// The 99th percentile of each window, the latest at the right.
fn history(row: &TopRow, width: usize, view: &TopView<'_>) -> String {
    let windows = view.windows.iter().skip(view.windows.len().saturating_sub(width));
    let past: Vec<_> = windows.map(|window| past(row, window, view.state)).collect();
    let highest = past.iter().flatten().copied().fold(0.0, f64::max);
    let blank = " ".repeat(width - past.len());
    blank + &past.iter().map(|p99| view.terminal.height(p99.map(|p99| p99 / highest))).collect::<String>()
}

fn past(row: &TopRow, window: &Window, state: &TopState) -> Option<f64> {
    let device = window.devices.iter().find(|device| device.name == row.device)?;
    let upper =
        |figures: &Figures| figures.of(state.phase).percentile(0.99).map(|bounds| bounds.upper.min(1100.0));
    match state.ops {
        Ops::Merged => upper(&device.all()),
        _ => upper(&device.ops.iter().find(|op| op.name == row.op)?.figures),
    }
}
