//! The workloads of the selected row's device, below the table. They include all ops, regardless of which ones the table shows.

use biolat_model::text::format::{short_count, short_number, short_share};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Rect},
    style::{Color, Style},
    text::{Line, Text},
    widgets::{Paragraph, Row, Table, Widget as _, Wrap},
};

use super::{
    layout::gap,
    row::TopRow,
    view::{BARS, BOLD, TopView},
};
use crate::{
    breakdown::NO_WORKLOADS,
    window::{DeviceWindow, Window},
    workloads::WorkloadWindow,
};

/// One of a workload's numbers; the variants are in on-screen order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Number {
    Share,
    Iops,
    Bytes,
    Depth,
    P50,
    P99,
    Errors,
}

/// Numbers by priority. Errors are only shown if there are any.
const BY_PRIORITY: [Number; 7] =
    [Number::Share, Number::Errors, Number::P99, Number::Iops, Number::Depth, Number::P50, Number::Bytes];

/// Width of a number.
const NUMBER: usize = 5;

/// Minimum and maximum useful width for names.
const SHORT_NAME: usize = 12;
const LONG_NAME: usize = 32;

/// Minimum useful length of a bar.
const SHORTEST_BAR: usize = 4;

impl Number {
    fn title(self) -> &'static str {
        match self {
            Self::Share => "SHARE",
            Self::Iops => "IOPS",
            Self::Bytes => "MB/s",
            Self::Depth => "DEPTH",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Errors => "ERR",
        }
    }

    fn of(self, workload: &WorkloadWindow, window: &Window, view: &TopView<'_>) -> String {
        let figures = &workload.all;
        let at = |share| view.numbers().short_bounds(figures.total.percentile(share));
        match self {
            Self::Share => short_share(Some(workload.share)),
            Self::Iops => short_number(window.rate(figures.ios())),
            Self::Bytes => short_number(window.rate(1) * figures.bytes as f64 / 1e6),
            Self::Depth => short_number(window.rate(1) * workload.seconds),
            Self::P50 => at(0.5),
            Self::P99 => at(0.99),
            Self::Errors => short_count(figures.errors),
        }
    }
}

/// The number of lines needed below the title.
pub(super) fn height(row: &TopRow, view: &TopView<'_>) -> usize {
    1 + workloads(row, view).map_or(1, |(_, workloads)| workloads.len().max(1))
}

pub(super) fn title(row: &TopRow, view: &TopView<'_>) -> Vec<String> {
    let mut parts = vec![format!("{} workloads", row.device)];
    if let Some((window, workloads)) = workloads(row, view) {
        let seconds: f64 = workloads.iter().map(|workload| workload.seconds).sum();
        parts.push(format!("depth {}", short_number(window.rate(1) * seconds)));
        parts.push("SHARE of the drive's time".to_owned());
    }
    parts
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, row: &TopRow, view: &TopView<'_>) {
    let Some((window, workloads)) = workloads(row, view) else {
        let why = Paragraph::new(NO_WORKLOADS).style(view.dim());
        why.wrap(Wrap { trim: true }).render(area, buffer);
        return;
    };
    if workloads.is_empty() {
        Line::styled("no I/O completed", view.dim()).render(area, buffer);
        return;
    }
    let width = usize::from(area.width);
    let gap = gap(area.width);
    let numbers = fitting(workloads, width, gap.into());
    let free = width.saturating_sub(numbers.len() * (usize::from(gap) + NUMBER));
    let longest = workloads.iter().map(|workload| workload.name.chars().count()).max().unwrap_or_default();
    let name = longest.clamp(SHORT_NAME, LONG_NAME).min(free);
    let bar = Some(free.saturating_sub(name + usize::from(gap))).filter(|&bar| bar >= SHORTEST_BAR);

    let cells = |name_of: &str, number_of: &dyn Fn(Number) -> String, share: f64| {
        let mut cells = vec![Text::from(view.terminal.cut(name_of, name))];
        cells.extend(numbers.iter().map(|&number| Text::from(number_of(number)).right_aligned()));
        cells.extend(bar.map(|bar| Text::styled(view.bar(share, bar), view.ink(BARS))));
        cells
    };
    let titles = Row::new(cells("WORKLOAD", &|number| number.title().to_owned(), 0.0)).style(BOLD);
    let room = usize::from(area.height.saturating_sub(1));
    let shown = if workloads.len() > room { room.saturating_sub(1) } else { workloads.len() };
    let mut rows: Vec<_> = workloads[..shown]
        .iter()
        .map(|workload| {
            let style = if workload.all.errors > 0 { view.ink(Color::Red) } else { Style::new() };
            Row::new(cells(&workload.name, &|number| number.of(workload, window, view), workload.share))
                .style(style)
        })
        .collect();
    if shown < workloads.len() {
        rows.push(Row::new([format!("and {} more", workloads.len() - shown)]).style(view.dim()));
    }
    let widths = [name].into_iter().chain(numbers.iter().map(|_| NUMBER)).chain(bar);
    let widths = widths.map(|width| Constraint::Length(width as u16));
    Table::new(rows, widths).header(titles).column_spacing(gap).render(area, buffer);
}

/// The numbers that fit next to a name, in on-screen order.
fn fitting(workloads: &[WorkloadWindow], width: usize, gap: usize) -> Vec<Number> {
    let has_errors = workloads.iter().any(|workload| workload.all.errors > 0);
    let wanted = BY_PRIORITY.into_iter().filter(|number| has_errors || *number != Number::Errors);
    let mut numbers: Vec<_> = wanted.take(width.saturating_sub(SHORT_NAME) / (gap + NUMBER)).collect();
    numbers.sort_unstable();
    numbers
}

/// The workloads of the row's device in the last window. `None` if they are not counted.
fn workloads<'a>(row: &TopRow, view: &TopView<'a>) -> Option<(&'a Window, &'a [WorkloadWindow])> {
    let window = view.windows.back()?;
    let is_it = |device: &&DeviceWindow| device.name == row.device;
    let device = window.devices.iter().find(is_it)?;
    Some((window, device.workloads.as_deref()?))
}

#[cfg(test)]
mod tests {
    use biolat_testing::samples::{self, usage};
    use ratatui::crossterm::event::KeyCode::{Down, Enter};

    use crate::{
        top::samples::{TestScreen, window},
        window::Window,
    };

    /// The sample window, with workloads on its slow drive.
    fn with_workloads(failed: u64) -> Window {
        let mut write = usage("sda", "write", 200, 1e-3, 13e-3);
        write.errors = failed;
        let workloads = vec![
            samples::workload("postgresql.service", vec![write]),
            samples::workload("backup.service", vec![usage("sda", "read", 16_000, 0.0, 1.5e-3)]),
        ];
        let mut after = samples::snapshot(3.0, vec![samples::device("sda", 9.0, vec![])]);
        after.workloads = Some(workloads);
        let made = Window::between(&samples::snapshot(1.0, vec![]), &after);
        let mut window = window();
        for device in &mut window.devices {
            device.workloads = Some(Vec::new());
        }
        window.devices[1].workloads.clone_from(&made.devices[0].workloads);
        window
    }

    #[test]
    fn shows_the_selected_devices_workloads() {
        let mut screen = TestScreen::showing(with_workloads(0));
        screen.type_keys("w");
        let expected = "\
sda workloads · depth 13 · SHARE of the drive's time
WORKLOAD            SHARE   IOPS   MB/s  DEPTH    p50    p99
backup.service        90%   8000     33     12  1.6ms  1.6ms  ████████████████▎
postgresql.service    10%    100    0.4    1.3   13ms   13ms  █▊";
        assert_eq!(screen.lines(80, 24)[7..11].join("\n"), expected);
        let expected = "\
sda workloads · depth 13
WORKLOAD         SHARE  IOPS DEPTH   p99
backup.service     90%  8000    12 1.6ms
postgresql.serv…   10%   100   1.3  13ms";
        assert_eq!(screen.lines(40, 12)[7..11].join("\n"), expected);
        // The histogram replaces the workloads, and each key closes what it opened.
        screen.press(Enter);
        assert!(screen.lines(80, 24)[7].starts_with("sda all · 1000 I/Os"));
        screen.type_keys("ww");
        assert_eq!(screen.lines(80, 24)[7], "");
        screen.type_keys("w");
        screen.press(Down);
        assert_eq!(screen.lines(80, 24)[8], "no I/O completed");
    }

    #[test]
    fn fits_errors_and_small_screens() {
        let mut screen = TestScreen::showing(with_workloads(3));
        screen.type_keys("w");
        let lines = screen.lines(40, 12);
        let expected = "\
WORKLOAD         SHARE  IOPS   p99   ERR
backup.service     90%  8000 1.6ms     0
postgresql.serv…   10%   100  13ms     3";
        assert_eq!(lines[8..11].join("\n"), expected);
        screen.windows[0].devices[1].workloads.iter_mut().for_each(|workloads| {
            let one = workloads[0].clone();
            workloads.extend(vec![one; 40]);
        });
        let lines = screen.lines(80, 24);
        assert!(lines[22].starts_with("and ") && lines[22].ends_with(" more"), "{lines:#?}");
        for width in 0..100 {
            for height in 0..30 {
                screen.lines(width, height);
            }
        }
    }

    #[test]
    fn reports_uncounted_workloads() {
        let mut screen = TestScreen::showing(window());
        screen.type_keys("w");
        let lines = screen.lines(80, 24);
        assert_eq!(lines[7], "sda workloads");
        assert!(
            lines[8]
                .starts_with("no workloads are counted there: that biolat-daemon runs with --workloads off"),
            "{lines:#?}"
        );
        assert!(lines[9].ends_with("the cgroup of an I/O"), "{lines:#?}");
    }
}
