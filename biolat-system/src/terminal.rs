//! Detects what standard output supports (colours, width, character set), and formats text to fit it: bars, line breaks.

use std::{
    env,
    io::{self, IsTerminal as _},
    ops::RangeInclusive,
};

use biolat_model::text::format::NumberFormat;
use clap::ValueEnum;

/// Width assumed for a pipe, or for a terminal that does not report its width.
const DEFAULT_WIDTH: usize = 80;

/// Nothing fits in fewer columns, and longer lines are hard to read.
const WIDTHS: RangeInclusive<usize> = 40..=200;

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Capabilities of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Whether to use colours.
    pub color: bool,
    /// Whether it can display non-ASCII characters.
    pub unicode: bool,
    /// Whether it is a terminal, as opposed to a file or a pipe.
    pub is_terminal: bool,
}

/// How to highlight a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Highlight {
    /// A heading, or something to copy.
    Strong,
    /// A bar of a histogram.
    Bar,
    /// A success.
    Good,
    /// A failure.
    Bad,
    /// Something worth knowing.
    Note,
}

impl Terminal {
    /// Detects the capabilities of standard output, using the environment of this process.
    pub fn of_stdout(color: Color) -> Self {
        // An empty variable counts as unset.
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        Self::detect(color, io::stdout().is_terminal(), variable)
    }

    /// Detects the capabilities, looking up environment variables with `variable`.
    pub fn detect(color: Color, is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Self {
        let term = variable("TERM");
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                is_terminal
                    && variable("NO_COLOR").is_none()
                    && term.as_deref().is_some_and(|term| term != "dumb")
            }
        };
        // The kernel console's font has no block elements.
        let unicode = is_terminal && term.is_none_or(|term| term != "linux") && is_utf8(variable);
        Self { color, unicode, is_terminal }
    }

    /// Returns the current width. It is not cached, because a window can be resized at any time.
    pub fn width(self) -> usize {
        let given = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let width = given.or_else(|| self.is_terminal.then(columns).flatten()).filter(|width| *width > 0);
        width.unwrap_or(DEFAULT_WIDTH).clamp(*WIDTHS.start(), *WIDTHS.end())
    }

    /// Returns the maximum length of a line, which is unlimited in a file or a pipe.
    pub fn line_width(self) -> usize {
        if self.is_terminal { self.width() } else { usize::MAX }
    }

    /// Returns the number format.
    pub fn numbers(self, milliseconds: bool) -> NumberFormat {
        NumberFormat { unicode: self.unicode, milliseconds }
    }

    /// Colours text according to its highlighting.
    pub fn paint(self, highlight: Highlight, text: &str) -> String {
        let code = match highlight {
            Highlight::Strong => "1",
            Highlight::Bar => "36",
            Highlight::Good => "32",
            Highlight::Bad => "1;31",
            Highlight::Note => "33",
        };
        if self.color && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Draws a bar that covers the given share of `width`, padded with spaces if `padded` is set. Any share above zero is
    /// visible.
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
        format!("{}{:pad$}", self.paint(Highlight::Bar, &bar), "")
    }

    /// Truncates text to `width` characters, and marks the cut.
    pub fn cut(self, text: &str, width: usize) -> String {
        if text.chars().count() <= width {
            return text.to_owned();
        }
        let begin: String = text.chars().take(width.saturating_sub(1)).collect();
        begin + if self.unicode { "…" } else { "~" }
    }

    /// Truncates text to `width` characters at its beginning, and marks the cut.
    pub fn cut_beginning(self, text: &str, width: usize) -> String {
        let length = text.chars().count();
        if length <= width {
            return text.to_owned();
        }
        let end: String = text.chars().skip(length + 1 - width.max(1)).collect();
        if self.unicode { "…" } else { "~" }.to_owned() + &end
    }

    /// Draws a character whose height is the given share. Any share above zero is visible.
    pub fn height(self, share: Option<f64>) -> char {
        const UNICODE: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const ASCII: [char; 8] = ['.', ':', '-', '=', '+', '*', '#', '@'];
        match share {
            Some(share) if share > 0.0 => {
                let level = ((share * 8.0).ceil() as usize).clamp(1, 8) - 1;
                if self.unicode { UNICODE[level] } else { ASCII[level] }
            }
            _ => ' ',
        }
    }
}

/// Whether the locale's character set is UTF-8, according to the first locale variable that is set.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Returns the width of standard output, if it is a terminal that reports its width.
fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Wraps text between words to lines of at most `width`. All lines but the first are indented; the first is assumed to follow
/// text as wide as `indent`. A passage in backquotes counts as one word.
pub fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut lines = vec![String::new()];
    let mut wide = indent;
    let mut is_quoted = false;
    let is_gap = |c: char| {
        is_quoted ^= c == '`';
        c.is_whitespace() && !is_quoted
    };
    for word in text.split(is_gap).filter(|word| !word.is_empty()) {
        let chars = word.chars().count();
        let is_first = lines.last().is_none_or(String::is_empty);
        if !is_first && wide + 1 + chars > width {
            lines.push(String::new());
            wide = indent;
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
                wide += 1;
            }
            line.push_str(word);
            wide += chars;
        }
    }
    lines.join(&format!("\n{:indent$}", ""))
}

#[cfg(test)]
mod tests {
    use super::{
        Color::{self, Always, Auto, Never},
        Highlight, Terminal, wrapped,
    };

    const PLAIN: Terminal = Terminal { color: false, unicode: false, is_terminal: false };
    const RICH: Terminal = Terminal { color: true, unicode: true, is_terminal: true };

    fn detect(color: Color, is_terminal: bool, variables: &[(&str, &str)]) -> Terminal {
        Terminal::detect(color, is_terminal, |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn detects_colours_and_unicode() {
        let utf8 = [("LANG", "en_GB.UTF-8"), ("TERM", "xterm")];
        assert_eq!(detect(Auto, true, &utf8), RICH);
        assert_eq!(detect(Auto, false, &utf8), PLAIN);
        assert!(!detect(Auto, true, &[("NO_COLOR", "1"), ("TERM", "xterm")]).color);
        assert!(!detect(Auto, true, &[("TERM", "dumb")]).color && !detect(Never, true, &utf8).color);
        assert!(detect(Always, false, &[("NO_COLOR", "1")]).color);
    }

    #[test]
    fn detects_utf8_locales() {
        let utf8 = |variables: &[(&str, &str)]| detect(Auto, true, variables).unicode;
        assert!(utf8(&[("LANG", "de_DE.UTF-8")]) && utf8(&[("LANG", "de_DE.UTF-8@euro")]));
        assert!(utf8(&[("LC_ALL", "C.utf8"), ("LC_CTYPE", "C"), ("LANG", "C")]));
        assert!(!utf8(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]) && !utf8(&[]));
        assert!(!utf8(&[("LC_CTYPE", "POSIX"), ("LANG", "en_US.UTF-8")]));
        assert!(!utf8(&[("LANG", "C.UTF-8"), ("TERM", "linux")]));
    }

    #[test]
    fn draws_bars_and_heights() {
        let unicode = Terminal { color: false, ..RICH };
        assert_eq!(unicode.bar(1.0, 4, false), "████");
        assert_eq!(unicode.bar(0.5, 3, false), "█▌");
        assert_eq!(unicode.bar(0.5, 3, true), "█▌ ");
        assert_eq!((unicode.bar(1e-9, 4, false), unicode.bar(0.0, 4, false)), ("▏".into(), String::new()));
        assert_eq!((PLAIN.bar(1.0, 4, false), PLAIN.bar(1e-9, 4, true)), ("****".into(), "*   ".into()));
        assert_eq!(RICH.bar(1.0, 2, false), "\x1b[36m██\x1b[0m");
        let heights = [None, Some(0.0), Some(1e-9), Some(0.5), Some(1.0)].map(|share| RICH.height(share));
        assert_eq!(heights, [' ', ' ', '▁', '▄', '█']);
    }

    #[test]
    fn paints_only_with_colours() {
        assert_eq!(PLAIN.paint(Highlight::Bad, "x"), "x");
        assert_eq!(RICH.paint(Highlight::Bad, "x"), "\x1b[1;31mx\x1b[0m");
    }

    #[test]
    fn cuts_text_to_width() {
        let cuts = |terminal: Terminal, width| {
            [terminal.cut("/srv/µ.db", width), terminal.cut_beginning("/srv/µ.db", width)]
        };
        assert_eq!(cuts(RICH, 9), ["/srv/µ.db", "/srv/µ.db"]);
        assert_eq!(cuts(RICH, 8), ["/srv/µ.…", "…rv/µ.db"]);
        assert_eq!(cuts(PLAIN, 4), ["/sr~", "~.db"]);
        assert_eq!(
            (cuts(RICH, 1), cuts(RICH, 0)),
            (["…", "…"].map(str::to_owned), ["…", "…"].map(str::to_owned))
        );
    }

    #[test]
    fn wraps_lines_to_width() {
        assert_eq!(wrapped("one two three", 9, 2), "one two\n  three");
        assert_eq!(wrapped("incomprehensibilities a", 9, 2), "incomprehensibilities\n  a");
        assert_eq!(wrapped("run `a b c` now", 9, 2), "run\n  `a b c`\n  now");
        assert_eq!(wrapped("", 9, 2), "");
    }
}
