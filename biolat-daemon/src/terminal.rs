//! What the terminal below shows, as its variables and the kernel tell, and text that fits it.

use std::env;

use clap::ValueEnum;
use rustix::{stdio::stdout, termios::tcgetwinsize};

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

impl Color {
    /// Whether to use them on what is or is not a terminal, in an environment with these variables.
    pub(crate) fn is_used(self, is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
        let is_wanted =
            || variable("NO_COLOR").is_none() && variable("TERM").is_some_and(|term| term != "dumb");
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => is_terminal && is_wanted(),
        }
    }
}

/// A variable of the environment. One that is empty says nothing.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether more than ASCII is read, by the first of the locale's variables that says something.
pub(crate) fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// How wide standard output is; nothing if it is no terminal, or one that does not know.
pub(crate) fn columns() -> Option<usize> {
    let width = tcgetwinsize(stdout()).ok()?.ws_col;
    (width > 0).then_some(usize::from(width))
}

/// Breaks text between words, so that no line is wider; lines after the first begin with the indent, and the first one stands
/// behind it already. What stands in backquotes is one word.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> String {
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

/// Text in which nothing is an order to a terminal: drives and other hosts may say anything of themselves.
pub(crate) fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::{is_utf8, wrapped};

    #[test]
    fn locales() {
        const NAMES: [&str; 3] = ["LC_ALL", "LC_CTYPE", "LANG"];
        let utf8 = |variables: [&str; 3]| {
            is_utf8(|name| {
                let place = NAMES.iter().position(|known| *known == name);
                place.map(|place| variables[place].to_owned()).filter(|value| !value.is_empty())
            })
        };
        assert!(
            utf8(["", "", "de_DE.UTF-8"]) && utf8(["C.utf8", "C", "C"]) && utf8(["", "de_DE.UTF-8@euro", ""])
        );
        assert!(
            !utf8(["C", "", "de_DE.UTF-8"]) && !utf8(["", "", ""]) && !utf8(["", "POSIX", "en_US.UTF-8"])
        );
    }

    #[test]
    fn lines_are_no_wider() {
        assert_eq!(wrapped("one two three", 9, 2), "one two\n  three");
        assert_eq!(wrapped("incomprehensibilities a", 9, 2), "incomprehensibilities\n  a");
        assert_eq!(wrapped("", 9, 2), "");
    }
}
