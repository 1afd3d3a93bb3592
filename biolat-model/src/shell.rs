//! Quotes words in commands that users copy, because device and file names can contain anything.

use std::borrow::Cow;

/// Quotes a word for a POSIX shell if necessary. The result is also safe in interactive shells.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''")).into()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::quoted;

    #[test]
    fn quotes_words_for_the_shell() {
        assert_eq!(quoted("/usr/bin/biolat-daemon"), "/usr/bin/biolat-daemon");
        for word in ["/a b'c", "", "etherd!e1.1", "$(id);`id`", "\"\n\\"] {
            let script = format!("printf %s {}", quoted(word));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(output.stdout, word.as_bytes());
        }
    }
}
