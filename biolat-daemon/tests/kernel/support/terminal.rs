//! A terminal with a program in it, and what somebody who sits before it sees: `terminal.py` draws it.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::daemon::wait_for;

/// Ended with its program when it is dropped.
pub(crate) struct Terminal {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// What there is to see at a time.
#[derive(Debug, Deserialize)]
pub(crate) struct Screen {
    /// Without blanks at their ends.
    pub(crate) lines: Vec<String>,
    /// Whether it is the one that hides what was there before.
    pub(crate) alternate: bool,
    /// Whether the cursor is shown.
    pub(crate) cursor: bool,
    /// Whether the terminal's modes are those of the start.
    pub(crate) restored: bool,
    /// `runs`, `stopped` or `ended`.
    pub(crate) state: String,
    /// The exit status, negative if it was a signal.
    pub(crate) status: Option<i32>,
}

impl Screen {
    pub(crate) fn shows(&self, text: &str) -> bool {
        self.lines.iter().any(|line| line.contains(text))
    }

    /// Nothing reminds of what ran in it.
    pub(crate) fn is_as_before(&self) -> bool {
        !self.alternate && self.cursor && self.restored
    }
}

impl Terminal {
    /// One of 80 columns and 24 lines.
    pub(crate) fn run(program: &OsStr, arguments: &[&str]) -> Self {
        let python = std::env::var_os("BIOLAT_TEST_PYTHON").unwrap_or_else(|| "python3".into());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/support/terminal.py");
        let mut command = Command::new(python);
        command.arg(script).arg(program).args(arguments);
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, orders, answers }
    }

    pub(crate) fn look(&mut self) -> Screen {
        self.order(&json!({}))
    }

    pub(crate) fn press(&mut self, keys: &str) -> Screen {
        self.order(&json!({ "keys": keys }))
    }

    pub(crate) fn resize(&mut self, columns: u16, lines: u16) -> Screen {
        self.order(&json!({ "size": [columns, lines] }))
    }

    pub(crate) fn signal(&mut self, signal: i32) -> Screen {
        self.order(&json!({ "signal": signal }))
    }

    /// Looks until it is so.
    pub(crate) fn wait_for(&mut self, what: &str, mut condition: impl FnMut(&Screen) -> bool) -> Screen {
        let mut screen = self.look();
        let mut is_so = condition(&screen);
        wait_for(what, || {
            if !is_so {
                screen = self.look();
                is_so = condition(&screen);
                println!("{}", screen.lines.join("\n"));
            }
            is_so
        });
        screen
    }

    fn order(&mut self, order: &Value) -> Screen {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}
