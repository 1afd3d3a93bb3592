//! The contents of the screen, and its styles.

use std::{collections::VecDeque, time::Duration};

use biolat_model::text::format::NumberFormat;
use biolat_system::terminal::Terminal;
use ratatui::style::{Color, Modifier, Style};

use super::{row::TopRow, state::TopState};
use crate::window::Window;

/// Everything that the screen shows.
pub(super) struct TopView<'a> {
    pub(super) state: &'a TopState,
    /// The latest windows. The table shows the last one.
    pub(super) windows: &'a VecDeque<Window>,
    /// Rows of the last window.
    pub(super) rows: &'a [TopRow],
    pub(super) host: &'a str,
    /// Source of the figures.
    pub(super) source: &'a str,
    /// Interval between collections.
    pub(super) interval: Duration,
    /// Age of the last window.
    pub(super) age: Option<Duration>,
    /// Why there are no new figures.
    pub(super) trouble: Option<&'a str>,
    /// Last line of the log.
    pub(super) logged: Option<&'a str>,
    pub(super) terminal: Terminal,
}

impl TopView<'_> {
    pub(super) fn numbers(&self) -> NumberFormat {
        self.terminal.numbers(false)
    }

    /// This colour, if colours are enabled.
    pub(super) fn ink(&self, color: Color) -> Style {
        if self.terminal.color { Style::new().fg(color) } else { Style::new() }
    }

    pub(super) fn dim(&self) -> Style {
        if self.terminal.color { self.ink(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }

    /// A bar without colour codes.
    pub(super) fn bar(&self, share: f64, width: usize) -> String {
        Terminal { color: false, ..self.terminal }.bar(share, width, false)
    }
}

/// Colour of bars and sparklines.
pub(super) const BARS: Color = Color::Cyan;
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Joins as many parts as fit, starting with the first.
pub(super) fn fitting(parts: &[String], separator: &str, width: u16) -> String {
    let mut text = String::new();
    for part in parts {
        let next = if text.is_empty() { part.clone() } else { format!("{text}{separator}{part}") };
        if next.chars().count() > usize::from(width) && !text.is_empty() {
            break;
        }
        text = next;
    }
    text
}
