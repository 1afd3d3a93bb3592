//! Sanitizes text from drives, other hosts and other programs for terminals, logs and the page, because it can contain anything.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::name::Name;

/// Characters without a glyph: format characters, line and paragraph separators, and default ignorables. Some reorder the
/// surrounding text (U+202E), others hide that two names differ (U+200B).
const INVISIBLE: [(char, char); 25] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{13438}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Replaces control characters, which could control a terminal, and invisible characters.
pub fn text(text: &str) -> String {
    text.replace(is_replaced, "\u{fffd}")
}

/// Deserializes a value and sanitizes its text.
pub fn deserialize<'de, D: Deserializer<'de>, T: Foreign + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    T::deserialize(deserializer).map(Foreign::sanitized)
}

/// Text from another program, or a value that contains such text.
pub trait Foreign {
    fn sanitized(self) -> Self;
}

impl Foreign for String {
    fn sanitized(self) -> Self {
        if self.contains(is_replaced) { text(&self) } else { self }
    }
}

impl Foreign for Option<String> {
    fn sanitized(self) -> Self {
        self.map(Foreign::sanitized)
    }
}

impl Foreign for Vec<String> {
    fn sanitized(self) -> Self {
        self.into_iter().map(Foreign::sanitized).collect()
    }
}

impl Foreign for Name {
    fn sanitized(self) -> Self {
        self.into_owned().sanitized().into()
    }
}

impl Foreign for Option<Name> {
    fn sanitized(self) -> Self {
        self.map(Foreign::sanitized)
    }
}

impl Foreign for BTreeMap<Name, u64> {
    fn sanitized(self) -> Self {
        self.into_iter().map(|(name, count)| (name.sanitized(), count)).collect()
    }
}

/// Whether sanitizing replaces this character.
pub fn is_replaced(c: char) -> bool {
    c.is_control() || INVISIBLE.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

#[cfg(test)]
mod tests {
    use super::{INVISIBLE, is_replaced, text};

    #[test]
    fn replaces_control_characters() {
        assert_eq!(text("a\u{1b}[2J\r\n\u{9b}µ"), "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}µ");
    }

    #[test]
    fn replaces_invisible_characters() {
        let reordering =
            "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
        assert!(reordering.chars().all(is_replaced));
        assert_eq!(
            text("sda\u{202e}1\u{200b}\u{2028}\u{feff}\u{e0041}"),
            "sda\u{fffd}1\u{fffd}\u{fffd}\u{fffd}\u{fffd}"
        );
        let shown = "/система.slice/データ-é€🦀 عربي";
        assert_eq!(text(shown), shown);
        assert!(INVISIBLE.is_sorted());
    }
}
