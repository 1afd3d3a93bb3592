//! Checks human-readable text for phrases listed in `phrases.txt` and for broken links.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use crate::process::{command, output, root};

const PHRASES: &str = include_str!("phrases.txt");
const PHRASES_FILE: &str = "xtask/src/lint/phrases.txt";

/// Extensions of files with human-readable text. Generated JSON is excluded, because its sources are checked.
const ENDINGS: [&str; 12] =
    ["rs", "md", "yml", "yaml", "js", "html", "css", "py", "sh", "tpl", "service", "jsonnet"];

/// Fails and lists every finding.
pub(super) fn check() -> Result<()> {
    let phrases = Phrase::all(PHRASES)?;
    let mut found = Vec::new();
    let mut pages = BTreeMap::new();
    for name in output(&mut command("git", &["ls-files"]))?.lines() {
        let path = Path::new(name);
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if !ENDINGS.contains(&ending) {
            continue;
        }
        // Skip a file whose deletion is not committed yet.
        let Ok(text) = fs::read_to_string(root().join(path)) else { continue };
        found.extend(phrases_in(&text, &phrases).map(|(line, phrase)| {
            format!("{name}:{line}: \"{}\": write: {}", phrase.words.join(" "), phrase.instead)
        }));
        if ending == "md" {
            pages.insert(path.to_path_buf(), text);
        }
    }
    found.extend(broken_links(&pages, |path| root().join(path).exists()));
    if !found.is_empty() {
        bail!("{}\n(the phrases are in {PHRASES_FILE})", found.join("\n"));
    }
    Ok(())
}

struct Phrase {
    words: Vec<String>,
    instead: String,
}

impl Phrase {
    fn all(text: &str) -> Result<Vec<Self>> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let phrase = |line: &str| {
            let (words, instead) =
                line.split_once(" = ").with_context(|| format!("{PHRASES_FILE}: {line}"))?;
            let words = words.split_whitespace().map(str::to_lowercase).collect();
            Ok(Self { words, instead: instead.to_owned() })
        };
        lines.map(phrase).collect()
    }
}

/// Each phrase with the line that it begins on. A phrase can continue on the next line, after a comment marker.
fn phrases_in<'a>(text: &str, phrases: &'a [Phrase]) -> impl Iterator<Item = (usize, &'a Phrase)> {
    let mut words = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let content = line.trim_start().trim_start_matches(['/', '!', '#', '>', '*']);
        // A phrase can end a sentence or a clause, but not continue past it.
        for word in content.split_whitespace() {
            let bare = word.trim_start_matches(['"', '(', '`', '*', '“']);
            let (bare, ends) =
                match bare.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', '"', '`', '*', '”']) {
                    whole if whole.len() == bare.len() => (whole, false),
                    cut => (cut, true),
                };
            words.push((number, bare.to_lowercase(), ends));
        }
    }
    let count = words.len();
    let matches = move |start: usize, phrase: &Phrase| {
        let window = words.get(start..start + phrase.words.len())?;
        let (_, before) = window.split_last()?;
        let is_whole = before.iter().all(|(.., ends)| !ends);
        let is_same = window.iter().map(|(_, word, _)| word).eq(&phrase.words);
        (is_whole && is_same).then_some(window[0].0)
    };
    (0..count)
        .flat_map(move |start| phrases.iter().map(move |phrase| (start, phrase)))
        .filter_map(move |(start, phrase)| Some((matches(start, phrase)?, phrase)))
}

/// Links to files and headings that do not exist.
fn broken_links(pages: &BTreeMap<PathBuf, String>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let headings: BTreeMap<_, BTreeSet<String>> =
        pages.iter().map(|(path, text)| (path, prose(text).filter_map(anchor).collect())).collect();
    let mut broken = Vec::new();
    for (page, text) in pages {
        let targets =
            prose(text).flat_map(|line| line.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
        for target in targets.filter(|target| !target.contains(':') && !target.contains(' ')) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() {
                page.clone()
            } else {
                normal(&page.parent().unwrap_or(Path::new("")).join(path))
            };
            let has_heading =
                headings.get(&path).is_none_or(|known| heading.is_empty() || known.contains(heading));
            if !exists(&path) || !has_heading {
                broken.push(format!("{}: a link to {target}, which does not exist", page.display()));
            }
        }
    }
    broken
}

/// The lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchor that GitHub gives a heading.
fn anchor(line: &str) -> Option<String> {
    let title = line.trim_start_matches('#');
    let title = (title.len() < line.len()).then(|| title.strip_prefix(' '))??;
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
    Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase())
}

/// Removes `..` without accessing the file system, because the path may not exist.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut normal, part| {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
        normal
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::Path};

    use super::{Phrase, anchor, broken_links, phrases_in};

    fn found(text: &str) -> Vec<usize> {
        let phrases = Phrase::all("# comment\nred herring = decoy\nold hat = outdated\n").unwrap();
        phrases_in(text, &phrases).map(|(line, _)| line).collect()
    }

    #[test]
    fn finds_phrases_across_lines_and_comment_marks() {
        assert_eq!(found("a Red herring.\n/// the daemon is old\n/// hat, which"), [1, 2]);
        assert_eq!(found("\"red herring\" (old hat)"), [1, 1]);
    }

    #[test]
    fn ignores_parts_of_words_and_of_other_sentences() {
        assert!(found("bored herring; it is old. Hat\nold hatter").is_empty());
    }

    #[test]
    fn rejects_broken_links() {
        let page =
            "# A *b* `c`\n[x](#a-b-c) [y](other.md#top) [z](https://x)\n```\n[not a link](gone.md)\n```\n";
        let pages = [("docs/a.md".into(), page.to_owned()), ("docs/other.md".into(), "# Top\n".to_owned())];
        let pages = BTreeMap::from(pages);
        assert!(broken_links(&pages, |path| pages.contains_key(path)).is_empty());
        let mut pages = pages;
        pages.insert("docs/b.md".into(), "[1](../gone.md) [2](a.md#d) [3](../docs/a.md)\n".into());
        let broken = broken_links(&pages, |path: &Path| path == Path::new("docs/a.md"));
        assert!(broken.iter().any(|line| line.contains("../gone.md")), "{broken:?}");
        assert!(broken.iter().any(|line| line.contains("a.md#d")), "{broken:?}");
        assert!(!broken.iter().any(|line| line.contains("../docs/a.md")), "{broken:?}");
    }

    #[test]
    fn anchors_match_github() {
        assert_eq!(anchor("## What it can't see"), Some("what-it-cant-see".into()));
        assert_eq!(anchor("### `hist`"), Some("hist".into()));
        assert_eq!(anchor("#include"), None);
    }
}
