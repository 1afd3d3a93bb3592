//! The screen: status at the top, then the table, the details of a row, alerts and keys.

use std::time::Duration;

use biolat_model::{
    saturating::sum,
    text::format::{rounded_duration, short_count},
};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier},
    text::{Line, Text},
    widgets::Widget as _,
};

use super::{
    details, help,
    state::Ops,
    table,
    view::{BOLD, TopView, fitting},
};

/// Minimum number of lines that alerts leave for everything else.
const MIN_HEIGHT: u16 = 6;

/// Fills an empty screen.
pub(super) fn draw(buffer: &mut Buffer, view: &TopView<'_>) {
    let area = buffer.area;
    if area.width < 20 || area.height < 4 {
        Line::from("too small").render(area, buffer);
        return;
    }
    let mut alerts = alerts(view);
    alerts.truncate(area.height.saturating_sub(MIN_HEIGHT).into());
    // Alerts are at the bottom, so that rows do not move when one appears or disappears.
    let heights = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(alerts.len() as u16),
        Constraint::Length(1),
    ];
    let [top, second, middle, above_keys, bottom] = Layout::vertical(heights).areas(area);
    status(buffer, top, view);
    Line::from(fitting(&selection(view), view.numbers().separator(), area.width)).render(second, buffer);
    Text::from_iter(alerts.into_iter().rev()).render(above_keys, buffer);
    footer(buffer, bottom, view);
    if view.state.is_help {
        help::draw(buffer, middle);
        return;
    }
    let above = Constraint::Length(details::room_above(view, middle.height));
    let [above, below] = Layout::vertical([above, Constraint::Fill(1)]).areas(middle);
    table::draw(buffer, above, view);
    details::draw(buffer, below, view);
}

/// The host, the age of the figures, their source, and the state.
fn status(buffer: &mut Buffer, area: Rect, view: &TopView<'_>) {
    let (state, color) = match view.trouble {
        Some(_) => ("LOST", Color::Red),
        None if view.state.is_paused => ("PAUSED", Color::Yellow),
        None if view.age.is_none() => ("WAITING", Color::Yellow),
        None => ("LIVE", Color::Green),
    };
    let length = view.windows.back().map_or(view.interval.as_secs_f64(), |window| window.seconds);
    let length = rounded_duration(Duration::try_from_secs_f64(length).unwrap_or_default());
    let age = match view.age {
        Some(age) => format!("{length} window, {} old", rounded_duration(Duration::from_secs(age.as_secs()))),
        None => "no figures yet".to_owned(),
    };
    let parts = [view.host.to_owned(), age, view.source.to_owned()];
    let widths = [Constraint::Fill(1), Constraint::Length(state.len() as u16)];
    let [left, right] = Layout::horizontal(widths).spacing(1).areas(area);
    Line::styled(fitting(&parts, view.numbers().separator(), left.width), BOLD).render(left, buffer);
    let style = view.ink(color).add_modifier(Modifier::BOLD | Modifier::REVERSED);
    Line::styled(state, style).render(right, buffer);
}

/// The user's choice of what the table shows.
fn selection(view: &TopView<'_>) -> Vec<String> {
    let state = view.state;
    let ops = match &state.ops {
        Ops::Merged => "all ops".to_owned(),
        Ops::Each => "each op".to_owned(),
        Ops::Only(op) => format!("{op} only"),
    };
    let order = if state.is_reversed { ", reversed" } else { "" };
    let mut parts =
        vec![format!("{} latency", state.phase.name()), ops, format!("by {}{order}", state.sort.title())];
    if !state.filter.is_empty() {
        parts.insert(0, format!("devices with '{}'", state.filter));
    }
    parts
}

/// Warnings about missing or lost data, the most important one first.
fn alerts(view: &TopView<'_>) -> Vec<Line<'static>> {
    let mut alerts = Vec::new();
    if let Some(trouble) = view.trouble {
        alerts.push(Line::styled(trouble.to_owned(), view.ink(Color::Red)));
    }
    if let Some(window) = view.windows.back() {
        let mut lost: Vec<_> =
            window.lost.iter().map(|(reason, lost)| format!("{} {reason}", short_count(*lost))).collect();
        let unseen = sum(window.devices.iter().flat_map(|device| device.unseen.values()));
        if unseen > 0 {
            lost.push(format!("{} missed by the probe", short_count(unseen)));
        }
        if !lost.is_empty() {
            alerts.push(Line::styled(format!("not measured: {}", lost.join(", ")), view.ink(Color::Yellow)));
        }
        if window.failures > 0 {
            let collections = if window.failures == 1 { "collection" } else { "collections" };
            let failed = format!("{} {collections} failed", short_count(window.failures));
            alerts.push(Line::styled(failed, view.ink(Color::Yellow)));
        }
    }
    if let Some(logged) = view.logged {
        alerts.push(Line::styled(logged.to_owned(), view.ink(Color::Yellow)));
    }
    alerts
}

fn footer(buffer: &mut Buffer, area: Rect, view: &TopView<'_>) {
    let state = view.state;
    if state.is_typing {
        let cursor = if view.terminal.unicode { '▏' } else { '_' };
        let text = format!("filter: {}{cursor} Enter applies, Esc clears", state.filter);
        Line::styled(text, BOLD).render(area, buffer);
        return;
    }
    let keys = if state.is_help {
        vec!["any key closes the help", "q quit"]
    } else {
        let mut keys = vec!["q quit", "? help", "s sort", "p phase", "o ops", "f filter", "Enter histogram"];
        keys.extend(["w workloads", "r reverse", "space pause", "+/- window"]);
        keys
    };
    let keys: Vec<_> = keys.into_iter().map(str::to_owned).collect();
    Line::styled(fitting(&keys, "  ", area.width), view.dim()).render(area, buffer);
}
