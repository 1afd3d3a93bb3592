//! What the terminal can show: how wide it is, whether it knows colours and more than ASCII.

use std::{
    env,
    io::{self, IsTerminal as _},
};

use super::{options::Options, units::Units};
use crate::terminal::{columns, is_utf8, variable};

/// As wide as a terminal is that nobody has told of.
const WIDTH: usize = 80;

/// Narrower than that nothing fits, and wider no eye follows.
const SANE: std::ops::RangeInclusive<usize> = 40..=200;

/// What standard output shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Whether colours are used.
    pub color: bool,
    /// Whether it shows more than ASCII.
    pub unicode: bool,
    /// Whether somebody may be looking, and it has a width of its own.
    pub is_terminal: bool,
}

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// What a block is about.
    Title,
    /// A bar.
    Bar,
    /// Something that failed.
    Bad,
    /// Something to know.
    Note,
}

impl Terminal {
    /// Standard output's.
    #[must_use]
    pub fn of_output(options: &Options) -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self {
            color: options.color.is_used(is_terminal, variable),
            // The kernel's own console has no font for parts of a block.
            unicode: is_terminal && variable("TERM").is_none_or(|name| name != "linux") && is_utf8(variable),
            is_terminal,
        }
    }

    /// How wide it is now: a window may be made wider at any time.
    #[must_use]
    pub fn width(self) -> usize {
        let told = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let width = told.or_else(|| self.is_terminal.then(columns).flatten()).filter(|width| *width > 0);
        width.unwrap_or(WIDTH).clamp(*SANE.start(), *SANE.end())
    }

    /// How numbers are written on it.
    #[must_use]
    pub fn units(self, milliseconds: bool) -> Units {
        Units { unicode: self.unicode, milliseconds }
    }

    /// Text that looks like what it is.
    #[must_use]
    pub fn paint(self, look: Look, text: &str) -> String {
        let code = match look {
            Look::Title => "1",
            Look::Bar => "36",
            Look::Bad => "1;31",
            Look::Note => "33",
        };
        if self.color && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A bar that takes this share of a width, and fills it up with spaces if `padded`. What is not nothing is seen.
    #[must_use]
    pub fn bar(self, share: f64, width: usize, padded: bool) -> String {
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        let (whole, part) = if self.unicode {
            let eighths = (share * width as f64 * 8.0).round() as usize;
            let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
            (eighths / 8, EIGHTHS[eighths % 8])
        } else {
            let stars = (share * width as f64).round() as usize;
            (if share > 0.0 { stars.max(1) } else { 0 }, "")
        };
        let bar = format!("{}{part}", if self.unicode { "█" } else { "*" }.repeat(whole));
        let pad = if padded { width.saturating_sub(bar.chars().count()) } else { 0 };
        format!("{}{:pad$}", self.paint(Look::Bar, &bar), "")
    }
}

#[cfg(test)]
mod tests {
    use super::{Look, Terminal};

    const PLAIN: Terminal = Terminal { color: false, unicode: false, is_terminal: false };
    const RICH: Terminal = Terminal { color: true, unicode: true, is_terminal: true };

    #[test]
    fn bars() {
        let unicode = Terminal { color: false, ..RICH };
        assert_eq!(unicode.bar(1.0, 4, false), "████");
        assert_eq!(unicode.bar(0.5, 3, false), "█▌");
        assert_eq!(unicode.bar(0.5, 3, true), "█▌ ");
        assert_eq!((unicode.bar(1e-9, 4, false), unicode.bar(0.0, 4, false)), ("▏".into(), String::new()));
        assert_eq!((PLAIN.bar(1.0, 4, false), PLAIN.bar(1e-9, 4, true)), ("****".into(), "*   ".into()));
        assert_eq!(RICH.bar(1.0, 2, false), "\x1b[36m██\x1b[0m");
    }

    #[test]
    fn colours_where_they_are_wanted() {
        assert_eq!(PLAIN.paint(Look::Bad, "x"), "x");
        assert_eq!(RICH.paint(Look::Bad, "x"), "\x1b[1;31mx\x1b[0m");
    }
}
