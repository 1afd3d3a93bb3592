//! Text of drives, other hosts and other programs, which may contain anything, made harmless for terminals and logs.

/// Replaces control characters, which could steer a terminal.
pub(crate) fn text(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(super::text("a\u{1b}[2J\r\n\u{9b}µ"), "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}µ");
    }
}
