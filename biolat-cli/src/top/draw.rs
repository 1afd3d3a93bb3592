//! The screen: status at the top, then the table, the histogram of a row, alerts and keys.

use std::time::Duration;

use biolat_model::{
    saturating::sum,
    text::format::{rounded_duration, short_count},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
};

use super::{
    details, help,
    state::Ops,
    table,
    view::{BOLD, TopView, fitting, line},
};

/// Fills an empty screen.
pub(super) fn draw(buffer: &mut Buffer, view: &TopView<'_>) {
    let area = buffer.area;
    if area.width < 20 || area.height < 4 {
        line(buffer, area, 0, "too small", Style::new());
        return;
    }
    status(buffer, area, view);
    line(buffer, area, 1, &fitting(&selection(view), view.numbers().separator(), area.width), Style::new());
    let top = 2;
    let mut bottom = area.height - 1;
    footer(buffer, area, bottom, view);
    // At the bottom, so that rows do not move when an alert appears or disappears.
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

/// The host, the age of the figures, their source, and whether there will be more.
fn status(buffer: &mut Buffer, area: Rect, view: &TopView<'_>) {
    let (state, color) = match view.trouble {
        Some(_) => ("LOST", Color::Red),
        None if view.state.is_paused => ("PAUSED", Color::Yellow),
        None if view.age.is_none() => ("WAITING", Color::Yellow),
        None => ("LIVE", Color::Green),
    };
    let width = state.len() as u16;
    let style = view.ink(color).add_modifier(Modifier::BOLD | Modifier::REVERSED);
    buffer.set_stringn(area.right() - width, area.y, state, usize::from(width), style);
    let length = view.windows.back().map_or(view.interval.as_secs_f64(), |window| window.seconds);
    let length = rounded_duration(Duration::try_from_secs_f64(length).unwrap_or_default());
    let age = match view.age {
        Some(age) => format!("{length} window, {} old", rounded_duration(Duration::from_secs(age.as_secs()))),
        None => "no figures yet".to_owned(),
    };
    let parts = [view.host.to_owned(), age, view.source.to_owned()];
    let text = fitting(&parts, view.numbers().separator(), area.width - width - 1);
    buffer.set_stringn(area.x, area.y, text, usize::from(area.width - width - 1), BOLD);
}

/// What the table shows, by the user's choice.
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

/// Warnings about missing or lost data.
fn alerts(view: &TopView<'_>) -> Vec<(String, Style)> {
    let mut alerts = Vec::new();
    if let Some(trouble) = view.trouble {
        alerts.push((trouble.to_owned(), view.ink(Color::Red)));
    }
    if let Some(window) = view.windows.back() {
        let mut lost: Vec<_> =
            window.lost.iter().map(|(reason, lost)| format!("{} {reason}", short_count(*lost))).collect();
        let unseen = sum(window.devices.iter().flat_map(|device| device.unseen.values()));
        if unseen > 0 {
            lost.push(format!("{} missed by the probe", short_count(unseen)));
        }
        if !lost.is_empty() {
            alerts.push((format!("not measured: {}", lost.join(", ")), view.ink(Color::Yellow)));
        }
        if window.failures > 0 {
            let collections = if window.failures == 1 { "collection" } else { "collections" };
            let failed = format!("{} {collections} failed", short_count(window.failures));
            alerts.push((failed, view.ink(Color::Yellow)));
        }
    }
    if let Some(logged) = view.logged {
        alerts.push((logged.to_owned(), view.ink(Color::Yellow)));
    }
    alerts
}

fn footer(buffer: &mut Buffer, area: Rect, row: u16, view: &TopView<'_>) {
    let state = view.state;
    if state.is_typing {
        let cursor = if view.terminal.unicode { '▏' } else { '_' };
        let text = format!("filter: {}{cursor} Enter applies, Esc clears", state.filter);
        line(buffer, area, row, &text, BOLD);
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
    line(buffer, area, row, &fitting(&keys, "  ", area.width), view.dim());
}
