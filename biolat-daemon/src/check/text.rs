//! Findings as text, for people: symbols and colours on a terminal, words and unwrapped lines in a pipe.

use biolat_model::text::sanitize;
use biolat_system::terminal::{Highlight, Terminal, wrapped};

use super::finding::{Finding, Fix, Verdict, count};

/// Maximum line width that is still easy to read.
const MAX_WIDTH: usize = 100;

/// Minimum width of the text next to a long subject.
const MIN_TEXT_WIDTH: usize = 20;

fn verdict(terminal: Terminal, verdict: Verdict) -> String {
    let (mark, word, highlight) = match verdict {
        Verdict::Ok => ("✓", "ok", Highlight::Good),
        Verdict::Note => ("!", "note", Highlight::Note),
        Verdict::Fail => ("✗", "FAIL", Highlight::Bad),
    };
    let shown = if terminal.unicode { mark.to_owned() } else { format!("{word:4}") };
    terminal.paint(highlight, &shown)
}

pub(super) fn report(findings: &[Finding], terminal: Terminal, width: usize) -> String {
    let subjects = findings.iter().map(|finding| finding.subject.chars().count()).max().unwrap_or(0);
    let indent = if terminal.unicode { 1 } else { 4 } + 1 + subjects + 2;
    let width =
        if terminal.is_terminal { width.min(MAX_WIDTH).max(indent + MIN_TEXT_WIDTH) } else { usize::MAX };
    let mut report = String::new();
    for finding in findings {
        let subject = sanitize::text(&finding.subject);
        let text = wrapped(&sanitize::text(&finding.text), width, indent);
        report += &format!("{} {subject:subjects$}  {text}\n", verdict(terminal, finding.verdict));
        for (index, fix) in finding.fix.iter().enumerate() {
            let or = if index == 0 { "" } else { "or " };
            let fix = match fix {
                // Not wrapped, so that it can be copied.
                Fix::Command(command) => {
                    format!("{or}run: {}", terminal.paint(Highlight::Strong, &sanitize::text(command)))
                }
                Fix::Step(step) => wrapped(&format!("{or}{}", sanitize::text(step)), width, indent),
            };
            report += &format!("{:indent$}{fix}\n", "");
        }
    }
    report + "\n" + &terminal.paint(Highlight::Strong, &summary(findings)) + "\n"
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
        0 => format!("Everything works{notes}."),
        failures => format!("{}{notes}.", plural(failures, "failure", "failures")),
    }
}

#[cfg(test)]
mod tests {
    use biolat_system::terminal::Terminal;

    use super::{Finding, report};

    const PIPE: Terminal = Terminal { color: false, unicode: false, is_terminal: false };
    const TERMINAL: Terminal = Terminal { color: false, unicode: true, is_terminal: true };

    fn findings() -> [Finding; 3] {
        [
            Finding::ok("a", "kernel", "Linux 6.12"),
            Finding::note("b", "vda", "a model\x1b[2J with some more words than there is room for in a line")
                .step("x"),
            Finding::fail("c", "port 9976", "taken")
                .command("a command that is longer than a line stays in one piece")
                .step("or so"),
        ]
    }

    #[test]
    fn formats_for_a_pipe() {
        let expected = "\
ok   kernel     Linux 6.12
note vda        a model�[2J with some more words than there is room for in a line
                x
FAIL port 9976  taken
                run: a command that is longer than a line stays in one piece
                or or so

1 failure, 1 note.
";
        assert_eq!(report(&findings(), PIPE, 80), expected);
    }

    #[test]
    fn formats_for_a_terminal() {
        let expected = "\
✓ kernel     Linux 6.12
! vda        a model�[2J with some more words than
             there is room for in a line
             x
✗ port 9976  taken
             run: a command that is longer than a line stays in one piece
             or or so

1 failure, 1 note.
";
        assert_eq!(report(&findings(), TERMINAL, 50), expected);
        let finding = Finding::ok("a", "b", "which contains some `text in backticks` here");
        let expected = "✓ b  which contains some\n     `text in backticks` here\n\nEverything works.\n";
        assert_eq!(report(&[finding], TERMINAL, 40), expected);
        let coloured = report(&findings()[..1], Terminal { color: true, ..TERMINAL }, 50);
        assert_eq!(coloured, "\x1b[32m✓\x1b[0m kernel  Linux 6.12\n\n\x1b[1mEverything works.\x1b[0m\n");
        assert!(report(&findings()[..2], TERMINAL, 50).ends_with("\nEverything works, 1 note.\n"));
    }
}
