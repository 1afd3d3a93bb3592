//! Finds the imports of a Rust file with a minimal tokenizer.

use std::collections::BTreeSet;

/// Paths and imports in a file.
#[derive(Default)]
pub(super) struct Source {
    /// Each path of at least two names and each `use`, with its line number. Excludes re-exports from children that are not used
    /// in this file.
    pub(super) paths: Vec<(usize, Vec<String>)>,
    /// Each `use` that does not begin with `crate`, `super` or `self`: it names a child or another crate.
    pub(super) imports: Vec<Vec<String>>,
    /// Test-only modules.
    pub(super) test_modules: Vec<String>,
}

/// A name, or one character of anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    line: usize,
    text: String,
}

impl Source {
    pub(super) fn parse(text: &str) -> Self {
        let mut source = Self::default();
        let tokens = source.without_tests(&tokens(text));
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
        // Names in code, and re-exports from children.
        let (mut names, mut re_exports) = (BTreeSet::new(), Vec::new());
        let mut at = 0;
        while at < tokens.len() {
            let line = tokens[at].line;
            let is_use = text(at) == "use";
            let is_path = text(at).starts_with(is_name_start)
                && (text(at + 1), text(at + 2)) == (":", ":")
                && !(at > 0 && text(at - 1) == "in")
                && !(at > 1 && (text(at - 2), text(at - 1)) == (":", ":"));
            if is_path || is_use {
                // After `pub` or `pub(crate)`.
                let is_public = at > 0 && matches!(text(at - 1), "pub" | ")");
                let mut found = Vec::new();
                at = paths(&tokens, at + usize::from(is_use), &[], &mut found);
                for (path_line, path) in found {
                    let is_own =
                        path.first().is_some_and(|name| matches!(&name[..], "crate" | "super" | "self"));
                    if !is_use {
                        names.extend(path.first().cloned());
                    } else if !is_own {
                        source.imports.push(path.clone());
                    }
                    let is_re_export = is_use && is_public && !is_own;
                    let paths = if is_re_export { &mut re_exports } else { &mut source.paths };
                    paths.push((path_line.max(line), path));
                }
            } else {
                names.insert(text(at).to_owned());
                at += 1;
            }
        }
        // A re-export alone is not a use.
        re_exports.retain(|(_, path)| path.last().is_some_and(|name| names.contains(name)));
        source.paths.append(&mut re_exports);
        source
    }

    /// Returns the tokens without test-only items.
    fn without_tests(&mut self, tokens: &[Token]) -> Vec<Token> {
        const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
        let mut kept = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            if !ATTRIBUTE
                .iter()
                .enumerate()
                .all(|(i, text)| tokens.get(at + i).is_some_and(|t| t.text == *text))
            {
                kept.push(tokens[at].clone());
                at += 1;
                continue;
            }
            let item = at + ATTRIBUTE.len();
            let (mut depth, mut end) = (0, item);
            while let Some(token) = tokens.get(end) {
                end += 1;
                match token.text.as_str() {
                    "{" => depth += 1,
                    "}" => depth -= 1,
                    ";" if depth == 0 => break,
                    _ => {}
                }
                let is_use = tokens[item].text == "use";
                if token.text == "}" && depth == 0 && !is_use {
                    break;
                }
            }
            let words: Vec<_> = tokens[item..end].iter().map(|token| token.text.as_str()).collect();
            if let [.., "mod", name, ";"] = words[..] {
                self.test_modules.push(name.to_owned());
            }
            at = end;
        }
        kept
    }
}

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Reads the path at `at`, including groups, and returns its end.
fn paths(tokens: &[Token], mut at: usize, prefix: &[String], found: &mut Vec<(usize, Vec<String>)>) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let is_name = |at: usize| text(at).starts_with(is_name_start);
    let mut path = prefix.to_vec();
    let line = tokens.get(at).map_or(0, |token| token.line);
    loop {
        if text(at) == "{" {
            at += 1;
            while at < tokens.len() && text(at) != "}" {
                let begin = at;
                at = paths(tokens, at, &path, found);
                if text(at) == "as" {
                    at += 2;
                }
                if text(at) == "," || at == begin {
                    at += 1;
                }
            }
            return at + 1;
        }
        if !is_name(at) {
            // A glob, or the end of the path.
            break;
        }
        // `self` in a group is the group's prefix.
        if text(at) != "self" || path.is_empty() {
            path.push(text(at).to_owned());
        }
        at += 1;
        if (text(at), text(at + 1)) != (":", ":") {
            break;
        }
        at += 2;
    }
    if path.len() > 1 || prefix.is_empty() {
        found.push((line, path));
    }
    at
}

/// Splits text into names and single characters, dropping comments, string and character literals, and lifetimes.
fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let char_at = |at: usize| chars.get(at).copied().unwrap_or('\0');
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let begin = at;
        let mut token = None;
        match char_at(at) {
            '/' if char_at(at + 1) == '/' => {
                while at < chars.len() && char_at(at) != '\n' {
                    at += 1;
                }
            }
            '/' if char_at(at + 1) == '*' => {
                let mut depth = 0;
                loop {
                    match (char_at(at), char_at(at + 1)) {
                        ('/', '*') => (depth, at) = (depth + 1, at + 2),
                        ('*', '/') => (depth, at) = (depth - 1, at + 2),
                        _ => at += 1,
                    }
                    if depth == 0 || at >= chars.len() {
                        break;
                    }
                }
            }
            'r' if raw_hashes(&chars[at + 1..]).is_some() => {
                let hashes = raw_hashes(&chars[at + 1..]).unwrap_or(0);
                at += hashes + 2;
                let end = [vec!['"'], vec!['#'; hashes]].concat();
                while at < chars.len() && !chars[at..].starts_with(&end) {
                    at += 1;
                }
                at += end.len();
            }
            '"' => at = end_of_quoted(&chars, at, '"'),
            '\'' if char_at(at + 1) == '\\' || char_at(at + 2) == '\'' => {
                at = end_of_quoted(&chars, at, '\'')
            }
            // A lifetime or a label.
            '\'' => {
                at += 1;
                while is_name(char_at(at)) {
                    at += 1;
                }
            }
            c if is_name(c) => {
                while is_name(char_at(at)) {
                    at += 1;
                }
                token = Some(chars[begin..at].iter().collect());
            }
            c => {
                at += 1;
                token = (!c.is_whitespace()).then(|| c.to_string());
            }
        }
        at = at.min(chars.len());
        tokens.extend(token.map(|text| Token { line, text }));
        line += chars[begin..at].iter().filter(|c| **c == '\n').count();
    }
    tokens
}

/// Returns the number of `#` that open a raw string, if `after_r` starts one.
fn raw_hashes(after_r: &[char]) -> Option<usize> {
    let hashes = after_r.iter().take_while(|c| **c == '#').count();
    (after_r.get(hashes) == Some(&'"')).then_some(hashes)
}

fn end_of_quoted(chars: &[char], begin: usize, quote: char) -> usize {
    let mut at = begin + 1;
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}
