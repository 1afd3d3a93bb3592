//! The screen: a pure function of what there is to show and of the size.

use std::{collections::VecDeque, time::Duration};

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
};

use super::{
    details, help,
    rows::Row,
    state::{Ops, State},
    table,
    words::{Look, count, time},
};
use crate::report::window::Window;

/// Everything that is shown.
pub(super) struct View<'a> {
    pub(super) state: &'a State,
    /// The latest windows; the last one is the table's.
    pub(super) windows: &'a VecDeque<Window>,
    /// Of the last window.
    pub(super) rows: &'a [Row],
    pub(super) host: &'a str,
    /// Where the figures are from.
    pub(super) source: &'a str,
    /// Between passes.
    pub(super) interval: Duration,
    /// Of the last window.
    pub(super) age: Option<Duration>,
    /// Why there are no new figures.
    pub(super) trouble: Option<&'a str>,
    /// What was last written to the log.
    pub(super) logged: Option<&'a str>,
    pub(super) look: Look,
}

/// Ink, where colour is wanted.
impl Look {
    pub(super) fn ink(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    pub(super) fn dim(self) -> Style {
        if self.color { Style::new().fg(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }
}

/// Of whatever is a picture.
pub(super) const BARS: Color = Color::Cyan;
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Fills a screen that is empty.
pub(super) fn draw(buffer: &mut Buffer, view: &View<'_>) {
    let area = buffer.area;
    if area.width < 20 || area.height < 4 {
        line(buffer, area, 0, "too small", Style::new());
        return;
    }
    status(buffer, area, view);
    line(buffer, area, 1, &fitting(&chosen(view), view.look.dot(), area.width), Style::new());
    let top = 2;
    let mut bottom = area.height - 1;
    footer(buffer, area, bottom, view);
    // At the bottom, so that rows stay where they are when something comes up, and goes.
    for (text, style) in alerts(view) {
        if top + 3 < bottom {
            bottom -= 1;
            line(buffer, area, bottom, &text, style);
        }
    }
    let middle = Rect { y: area.y + top, height: bottom - top, ..area };
    if view.state.is_help {
        help::draw(buffer, middle);
        return;
    }
    let above = details::room_above(view, middle.height);
    table::draw(buffer, Rect { height: above, ..middle }, view);
    let below = Rect { y: middle.y + above, height: middle.height - above, ..middle };
    details::draw(buffer, below, view);
}

/// One line of an area; what is too long is cut.
pub(super) fn line(buffer: &mut Buffer, area: Rect, row: u16, text: &str, style: Style) {
    if row < area.height {
        buffer.set_stringn(area.x, area.y + row, text, usize::from(area.width), style);
    }
}

/// As many of these as there is room for, the first ones first.
pub(super) fn fitting(parts: &[String], between: &str, width: u16) -> String {
    let mut text = String::new();
    for part in parts {
        let next = if text.is_empty() { part.clone() } else { format!("{text}{between}{part}") };
        if next.chars().count() > usize::from(width) && !text.is_empty() {
            break;
        }
        text = next;
    }
    text
}

/// Whose figures, how old, and whether more come.
fn status(buffer: &mut Buffer, area: Rect, view: &View<'_>) {
    let look = view.look;
    let (state, color) = match view.trouble {
        Some(_) => ("LOST", Color::Red),
        None if view.state.is_paused => ("PAUSED", Color::Yellow),
        None if view.age.is_none() => ("WAITING", Color::Yellow),
        None => ("LIVE", Color::Green),
    };
    let width = state.len() as u16;
    let style = look.ink(color).add_modifier(Modifier::BOLD | Modifier::REVERSED);
    buffer.set_stringn(area.right() - width, area.y, state, usize::from(width), style);
    let length = view.windows.back().map_or(view.interval.as_secs_f64(), |window| window.seconds);
    let length = time(Duration::try_from_secs_f64(length).unwrap_or_default());
    let age = match view.age {
        Some(age) => format!("{length} window, {} old", time(Duration::from_secs(age.as_secs()))),
        None => "no figures yet".to_owned(),
    };
    let parts = [view.host.to_owned(), age, view.source.to_owned()];
    let text = fitting(&parts, look.dot(), area.width - width - 1);
    buffer.set_stringn(area.x, area.y, text, usize::from(area.width - width - 1), BOLD);
}

/// What the table shows.
fn chosen(view: &View<'_>) -> Vec<String> {
    let state = view.state;
    let ops = match &state.ops {
        Ops::Merged => "all ops".to_owned(),
        Ops::Each => "each op".to_owned(),
        Ops::Only(op) => format!("{op} only"),
    };
    let order = if state.is_reversed { ", reversed" } else { "" };
    let mut parts = vec![
        format!("{} latency", state.phase.name()),
        ops,
        format!("by {}{order}", super::columns::Column::title(state.sort)),
    ];
    if !state.filter.is_empty() {
        parts.insert(0, format!("devices with '{}'", state.filter));
    }
    parts
}

/// What must not be overlooked.
fn alerts(view: &View<'_>) -> Vec<(String, Style)> {
    let look = view.look;
    let mut alerts = Vec::new();
    if let Some(trouble) = view.trouble {
        alerts.push((trouble.to_owned(), look.ink(Color::Red)));
    }
    if let Some(window) = view.windows.back() {
        let mut lost: Vec<_> =
            window.lost.iter().map(|(reason, lost)| format!("{} {reason}", count(*lost))).collect();
        let unseen: u64 = window.devices.iter().flat_map(|device| device.unseen.values()).sum();
        if unseen > 0 {
            lost.push(format!("{} unseen", count(unseen)));
        }
        if !lost.is_empty() {
            alerts.push((format!("not measured: {}", lost.join(", ")), look.ink(Color::Yellow)));
        }
        if window.failures > 0 {
            alerts.push((format!("{} failed passes", count(window.failures)), look.ink(Color::Yellow)));
        }
    }
    if let Some(logged) = view.logged {
        alerts.push((logged.to_owned(), look.ink(Color::Yellow)));
    }
    alerts
}

fn footer(buffer: &mut Buffer, area: Rect, row: u16, view: &View<'_>) {
    let state = view.state;
    if state.is_typing {
        let cursor = if view.look.unicode { '▏' } else { '_' };
        let text = format!("filter: {}{cursor} Enter keeps, Esc clears it", state.filter);
        line(buffer, area, row, &text, BOLD);
        return;
    }
    let keys = if state.is_help {
        vec!["any key goes back", "q quit"]
    } else {
        let mut keys = vec!["q quit", "? help", "s sort", "p phase", "o ops", "f filter", "Enter histogram"];
        keys.extend(["r reverse", "space pause", "+/- longer, shorter"]);
        keys
    };
    let keys: Vec<_> = keys.into_iter().map(str::to_owned).collect();
    line(buffer, area, row, &fitting(&keys, "  ", area.width), view.look.dim());
}
