//! The histogram or the workloads of the selected row, below the table.

use biolat_common::bucket::{SCHEMA, TOP_EXPONENT, ZERO_EXPONENT};
use biolat_model::{
    histogram::upper_bound,
    text::format::{short_count, short_share},
};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::Color,
    text::{Line, Span, Text},
    widgets::{Row, Table, Widget as _},
};

use super::{
    layout::{gap, is_roomy},
    row::TopRow,
    state::Details,
    view::{BARS, BOLD, TopView, fitting},
    who,
};

/// A line of the histogram: latencies above one bound and up to another, as native indices. Without `lower` it is the zero
/// bucket, without `upper` the overflow.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bin {
    lower: Option<i32>,
    upper: Option<i32>,
    count: u64,
}

/// Widths of a histogram's columns, and of the percentile names after a bar.
const RANGE: u16 = 13;
const COUNT: u16 = 5;
const SHARE: u16 = 4;
const MARKS: u16 = 12;

/// More lines are not useful.
const MAX_LINES: usize = 16;

const LOWEST_INDEX: i32 = ZERO_EXPONENT * PER_OCTAVE;
const HIGHEST_INDEX: i32 = TOP_EXPONENT * PER_OCTAVE;
const PER_OCTAVE: i32 = 1 << SCHEMA;

/// Number of lines for the table: all of them unless details are shown.
pub(super) fn room_above(view: &TopView<'_>, available: u16) -> u16 {
    let Some((row, details)) = open(view) else { return available };
    let rows = view.rows.len().min(usize::from(u16::MAX) - 1) as u16 + 1;
    let lines = match details {
        Details::Histogram => bins(row, view, MAX_LINES).len().max(1),
        Details::Who => who::height(row, view).min(MAX_LINES),
    };
    let wanted = 2 + u16::from(row.overdue.is_some()) + lines as u16;
    // Each gets half of the lines, plus any that the other does not need.
    rows.min(available - wanted.min(available / 2))
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, view: &TopView<'_>) {
    let Some((row, details)) = open(view) else { return };
    if area.height < 2 {
        return;
    }
    let title = match details {
        Details::Histogram => title(row, view),
        Details::Who => who::title(row, view),
    };
    let title = fitting(&title, view.numbers().separator(), area.width);
    let mut lines = vec![Line::styled(title, BOLD)];
    let overdue = row.overdue.iter();
    lines.extend(overdue.map(|overdue| Line::styled(overdue, view.ink(Color::Red).patch(BOLD))));
    // A blank line above, if there is space.
    let blank = u16::from(area.height > 4);
    let heights = [Constraint::Length(blank), Constraint::Length(lines.len() as u16), Constraint::Fill(1)];
    let [_, above, below] = Layout::vertical(heights).areas(area);
    Text::from(lines).render(above, buffer);
    match details {
        Details::Histogram => histogram(buffer, below, row, view),
        Details::Who => who::draw(buffer, below, row, view),
    }
}

fn histogram(buffer: &mut Buffer, area: Rect, row: &TopRow, view: &TopView<'_>) {
    let latencies = row.figures.of(view.state.phase);
    let all = latencies.count();
    if all == 0 {
        let why = match &row.hint {
            Some(hint) if !hint.is_empty() => hint,
            Some(_) => "the latency of this phase is not recorded for this device",
            None => "no I/O completed",
        };
        Line::styled(why, view.dim()).render(area, buffer);
        return;
    }
    let share = if is_roomy(area.width) { SHARE } else { 0 };
    let mut widths = vec![RANGE, COUNT, share];
    widths.retain(|&width| width > 0);
    let gap = gap(area.width);
    let room = widths.iter().fold(area.width, |room, width| room.saturating_sub(width + gap));
    let bins = bins(row, view, usize::from(area.height).min(MAX_LINES));
    let highest = bins.iter().map(|bin| bin.count).max().unwrap_or(1).max(1) as f64;
    let longest = [0.5, 0.99, 1.0].map(|share| latencies.percentile(share).map_or(0.0, |b| b.upper));
    let rows = bins.iter().map(|bin| {
        let numbers =
            [range(*bin, view), short_count(bin.count), short_share(Some(bin.count as f64 / all as f64))];
        let numbers = numbers.into_iter().take(widths.len()).map(|number| Text::from(number).right_aligned());
        let marks = ["p50", "p99", "max"].into_iter().zip(longest);
        let marks = marks.filter(|(_, upper)| bin.holds(*upper)).map(|(name, _)| format!(" {name}"));
        let bar = view.bar(bin.count as f64 / highest, room.saturating_sub(MARKS).into());
        let bar = Line::from(vec![Span::styled(bar, view.ink(BARS)), Span::from(marks.collect::<String>())]);
        Row::new(numbers.chain([bar.into()]))
    });
    let widths = widths.iter().map(|&width| Constraint::Length(width)).chain([Constraint::Length(room)]);
    Table::new(rows, widths).column_spacing(gap).render(area, buffer);
}

fn open<'a>(view: &TopView<'a>) -> Option<(&'a TopRow, Details)> {
    let details = view.state.details?;
    Some((view.rows.get(view.state.place(view.rows)?)?, details))
}

fn title(row: &TopRow, view: &TopView<'_>) -> Vec<String> {
    let figures = &row.figures;
    let latencies = figures.of(view.state.phase);
    let mut parts =
        vec![format!("{} {}", row.device, row.op), format!("{} I/Os", short_count(latencies.count()))];
    parts.extend(latencies.mean().map(|mean| format!("mean {}", view.numbers().short_latency(mean))));
    let inflight = row.inflight.map(|inflight| inflight.dispatched()).filter(|ios| *ios > 0);
    parts.extend(inflight.map(|ios| format!("{} in flight", short_count(ios))));
    parts.extend(
        figures.errors.iter().map(|(status, failed)| format!("{} {status} errors", short_count(*failed))),
    );
    parts
}

fn range(bin: Bin, view: &TopView<'_>) -> String {
    let edge = |index: i32| view.numbers().short_latency(upper_bound(index));
    match (bin.lower, bin.upper) {
        (Some(lower), Some(upper)) => format!("{} - {}", edge(lower), edge(upper)),
        (None, upper) => format!("up to {}", edge(upper.unwrap_or(LOWEST_INDEX))),
        (Some(lower), None) => format!("over {}", edge(lower)),
    }
}

impl Bin {
    fn holds(self, seconds: f64) -> bool {
        self.lower.is_none_or(|lower| seconds > upper_bound(lower))
            && self.upper.is_none_or(|upper| seconds <= upper_bound(upper))
    }
}

/// Divides the row's latencies into at most `most` bins, as fine as possible and without gaps.
fn bins(row: &TopRow, view: &TopView<'_>, most: usize) -> Vec<Bin> {
    let latencies = row.figures.of(view.state.phase);
    let buckets = &latencies.buckets;
    let others = usize::from(latencies.zero > 0) + usize::from(latencies.overflow > 0);
    let room = most.saturating_sub(others).max(1);
    let mut bins = Vec::new();
    if latencies.zero > 0 {
        bins.push(Bin { lower: None, upper: Some(LOWEST_INDEX), count: latencies.zero });
    }
    if let Some((&(first, _), &(last, _))) = buckets.first().zip(buckets.last()) {
        // Bins end at powers of two, unless they are finer.
        let end = |index: i32, width: i32| (index + width - 1).div_euclid(width) * width;
        let number = |width: i32| ((end(last, width) - end(first, width)) / width + 1) as usize;
        let width = (0..12).map(|power| 1 << power).find(|&width| number(width) <= room).unwrap_or(1 << 12);
        for upper in (end(first, width)..=end(last, width)).step_by(width as usize) {
            let count = latencies.count_in(upper - width + 1..=upper);
            bins.push(Bin { lower: Some(upper - width), upper: Some(upper), count });
        }
    }
    if latencies.overflow > 0 {
        bins.push(Bin { lower: Some(HIGHEST_INDEX), upper: None, count: latencies.overflow });
    }
    bins
}
