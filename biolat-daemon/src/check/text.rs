//! Findings for people: marks and colours on a terminal that has them, words elsewhere; a line for each in a pipe.

use super::finding::{Finding, Fix, Verdict, count};
use crate::terminal::{Color, columns, is_utf8, variable, wrapped};

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    colours: bool,
    /// Whether marks can be shown in place of words.
    marks: bool,
    /// Where lines end, if they do.
    width: Option<usize>,
}

/// Nobody reads longer lines with ease, nor shorter ones.
const WIDTHS: (usize, usize) = (40, 100);
/// What stands behind a long subject has room for some words.
const NARROWEST: usize = 20;
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

impl Style {
    /// What the environment asks for.
    pub(super) fn of_environment(color: Color, is_terminal: bool) -> Self {
        Self::of(color, is_terminal, columns(), variable)
    }

    fn of(
        color: Color,
        is_terminal: bool,
        columns: Option<usize>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        Self {
            colours: color.is_used(is_terminal, &variable),
            marks: is_terminal && is_utf8(variable),
            width: is_terminal.then(|| columns.unwrap_or(80).clamp(WIDTHS.0, WIDTHS.1)),
        }
    }

    fn verdict(self, verdict: Verdict) -> String {
        let (mark, word, colour) = match verdict {
            Verdict::Ok => ("✓", "ok", "\x1b[32m"),
            Verdict::Note => ("!", "note", "\x1b[33m"),
            Verdict::Fail => ("✗", "FAIL", "\x1b[31m"),
        };
        let shown = if self.marks { mark.to_owned() } else { format!("{word:4}") };
        if self.colours { format!("{colour}{shown}{PLAIN}") } else { shown }
    }

    fn strong(self, text: &str) -> String {
        if self.colours { format!("{BOLD}{text}{PLAIN}") } else { text.to_owned() }
    }
}

pub(super) fn report(findings: &[Finding], style: Style) -> String {
    let subjects = findings.iter().map(|finding| finding.subject.chars().count()).max().unwrap_or(0);
    let indent = if style.marks { 1 } else { 4 } + 1 + subjects + 2;
    let width = style.width.map_or(usize::MAX, |width| width.max(indent + NARROWEST));
    let mut report = String::new();
    for finding in findings {
        let subject = printable(&finding.subject);
        let text = wrapped(&printable(&finding.text), width, indent);
        report += &format!("{} {subject:subjects$}  {text}\n", style.verdict(finding.verdict));
        for (index, fix) in finding.fix.iter().enumerate() {
            let or = if index == 0 { "" } else { "or " };
            let fix = match fix {
                // A command is copied whole.
                Fix::Command(command) => format!("{or}run: {}", style.strong(&printable(command))),
                Fix::Step(step) => wrapped(&format!("{or}{}", printable(step)), width, indent),
            };
            report += &format!("{:indent$}{fix}\n", "");
        }
    }
    report + "\n" + &style.strong(&summary(findings)) + "\n"
}

fn summary(findings: &[Finding]) -> String {
    let plural = |count: usize, one: &str, more: &str| {
        if count == 1 { format!("1 {one}") } else { format!("{count} {more}") }
    };
    let notes = match count(findings, Verdict::Note) {
        0 => String::new(),
        notes => format!(", {}", plural(notes, "note", "notes")),
    };
    match count(findings, Verdict::Fail) {
        0 => format!("All works{notes}."),
        failures => format!("{} not work{notes}.", plural(failures, "thing will", "things will")),
    }
}

/// What drives and other programs say of themselves may hold anything.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::{Finding, Style, report};
    use crate::terminal::Color::{self, Always, Auto, Never};

    fn style(color: Color, is_terminal: bool, variables: &[(&str, &str)]) -> Style {
        Style::of(color, is_terminal, Some(60), |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn what_the_environment_asks_for() {
        let utf8 = [("LANG", "en_GB.UTF-8"), ("TERM", "xterm")];
        let at_home = style(Auto, true, &utf8);
        assert_eq!(at_home, Style { colours: true, marks: true, width: Some(60) });
        assert_eq!(style(Auto, false, &utf8), Style { colours: false, marks: false, width: None });
        assert!(!style(Auto, true, &[("NO_COLOR", "1"), ("TERM", "xterm")]).colours);
        assert!(!style(Auto, true, &[("TERM", "dumb")]).colours && !style(Never, true, &utf8).colours);
        assert!(style(Always, false, &[("NO_COLOR", "1")]).colours);
        assert!(!style(Auto, true, &[("LC_ALL", "C"), ("LANG", "en_GB.UTF-8")]).marks);
        assert!(style(Auto, true, &[("LC_CTYPE", "C.utf8")]).marks);
    }

    fn findings() -> [Finding; 3] {
        [
            Finding::ok("a", "kernel", "Linux 6.12"),
            Finding::note("b", "vda", "a model\x1b[2J with some more words than there is room for in a line")
                .step("x"),
            Finding::fail("c", "port 9976", "taken")
                .command("a command that is longer than a line is all the same whole")
                .step("or so"),
        ]
    }

    #[test]
    fn in_a_pipe() {
        let style = Style { colours: false, marks: false, width: None };
        let expected = "\
ok   kernel     Linux 6.12
note vda        a model?[2J with some more words than there is room for in a line
                x
FAIL port 9976  taken
                run: a command that is longer than a line is all the same whole
                or or so

1 thing will not work, 1 note.
";
        assert_eq!(report(&findings(), style), expected);
    }

    #[test]
    fn on_a_terminal() {
        let style = Style { colours: false, marks: true, width: Some(50) };
        let expected = "\
✓ kernel     Linux 6.12
! vda        a model?[2J with some more words than
             there is room for in a line
             x
✗ port 9976  taken
             run: a command that is longer than a line is all the same whole
             or or so

1 thing will not work, 1 note.
";
        assert_eq!(report(&findings(), style), expected);
        let finding = Finding::ok("a", "b", "which is said by `what is never broken` here");
        let expected = "✓ b  which is said by\n     `what is never broken` here\n\nAll works.\n";
        assert_eq!(report(&[finding], Style { width: Some(40), ..style }), expected);
        let coloured = report(&findings()[..1], Style { colours: true, ..style });
        assert_eq!(coloured, "\x1b[32m✓\x1b[0m kernel  Linux 6.12\n\n\x1b[1mAll works.\x1b[0m\n");
        assert!(report(&findings()[..2], style).ends_with("\nAll works, 1 note.\n"));
    }
}
