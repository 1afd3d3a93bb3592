//! A program in a terminal emulated by `terminal.py`.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::daemon::wait_for;

/// A terminal; its program is killed on drop.
pub(crate) struct Terminal {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// State of the terminal.
#[derive(Debug, Deserialize)]
pub(crate) struct Screen {
    /// Lines without trailing blanks.
    pub(crate) lines: Vec<String>,
    /// Whether this is the alternate screen.
    pub(crate) alternate: bool,
    /// Whether the cursor is visible.
    pub(crate) cursor: bool,
    /// Whether the terminal modes are back to their initial values.
    pub(crate) restored: bool,
    /// `runs`, `stopped` or `ended`.
    pub(crate) state: String,
    /// Exit status, negative if the program was killed by a signal.
    pub(crate) status: Option<i32>,
}

impl Screen {
    pub(crate) fn shows(&self, text: &str) -> bool {
        self.lines.iter().any(|line| line.contains(text))
    }

    /// Whether the screen, cursor and modes are in their initial state.
    pub(crate) fn is_restored(&self) -> bool {
        !self.alternate && self.cursor && self.restored
    }
}

impl Terminal {
    /// Runs a program in an 80x24 terminal.
    pub(crate) fn run(program: &OsStr, arguments: &[&str]) -> Self {
        let python = std::env::var_os("BIOLAT_TEST_PYTHON").unwrap_or_else(|| "python3".into());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/support/terminal.py");
        let mut command = Command::new(python);
        command.arg(script).arg(program).args(arguments);
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, commands, answers }
    }

    pub(crate) fn look(&mut self) -> Screen {
        self.execute(&json!({}))
    }

    pub(crate) fn press(&mut self, keys: &str) -> Screen {
        self.execute(&json!({ "keys": keys }))
    }

    pub(crate) fn resize(&mut self, columns: u16, lines: u16) -> Screen {
        self.execute(&json!({ "size": [columns, lines] }))
    }

    pub(crate) fn signal(&mut self, signal: i32) -> Screen {
        self.execute(&json!({ "signal": signal }))
    }

    /// Polls until the screen satisfies the condition, and returns that screen.
    pub(crate) fn wait_for(&mut self, what: &str, mut condition: impl FnMut(&Screen) -> bool) -> Screen {
        let mut screen = self.look();
        let mut holds = condition(&screen);
        wait_for(what, || {
            if !holds {
                screen = self.look();
                holds = condition(&screen);
                println!("{}", screen.lines.join("\n"));
            }
            holds
        });
        screen
    }

    fn execute(&mut self, command: &Value) -> Screen {
        writeln!(self.commands.as_mut().unwrap(), "{command}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.child.wait();
    }
}
