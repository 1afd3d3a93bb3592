//! Chromium, driven through `browser.py` by Playwright for Python, which waits for the page after each action, sends real key
//! events, and uses Debian's browser instead of downloading one.

use std::{
    io::{BufRead as _, BufReader, Lines, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use biolat_testing::wait_for;
use serde_json::{Value, json};

/// A browser with one window, closed on drop.
pub(crate) struct Browser {
    child: Child,
    commands: Option<ChildStdin>,
    results: Lines<BufReader<ChildStdout>>,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let python = std::env::var_os("BIOLAT_TEST_PYTHON").unwrap_or_else(|| "python3".into());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../biolat-daemon/tests/kernel/support/browser.py");
        let mut command = Command::new(python);
        command.args([script, "/usr/bin/chromium"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let commands = child.stdin.take();
        let results = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, commands, results }
    }

    /// Executes a `browser.py` command and returns its result.
    fn execute(&mut self, command: &Value) -> Value {
        writeln!(self.commands.as_mut().unwrap(), "{command}").unwrap();
        let line = self.results.next().expect("browser.py exited").unwrap();
        let mut result: Value = serde_json::from_str(&line).unwrap();
        assert!(result.get("error").is_none(), "{command}: {}", result["error"]);
        result["done"].take()
    }

    /// Opens a page in a window with these options. Returns the response headers.
    pub(crate) fn open(&mut self, url: &str, options: &Value) -> Value {
        let mut command = json!({"do": "open", "url": url});
        command.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        self.execute(&command)
    }

    pub(crate) fn evaluate(&mut self, text: &str) -> Value {
        self.execute(&json!({"do": "evaluate", "text": text}))
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&mut self, text: &str) {
        wait_for(text, || self.evaluate(text) == true);
    }

    pub(crate) fn text(&mut self, selector: &str) -> String {
        self.execute(&json!({"do": "text", "selector": selector})).as_str().unwrap().to_owned()
    }

    pub(crate) fn press(&mut self, key: &str) {
        self.execute(&json!({"do": "press", "key": key}));
    }

    pub(crate) fn click(&mut self, selector: &str) {
        self.execute(&json!({"do": "click", "selector": selector}));
    }

    pub(crate) fn select(&mut self, selector: &str, label: &str) {
        self.execute(&json!({"do": "select", "selector": selector, "label": label}));
    }

    /// Overrides the response for a path; status 0 restores the server's own response.
    pub(crate) fn answer(&mut self, path: &str, status: u16, text: &str) {
        self.execute(&json!({"do": "answer", "path": path, "status": status, "text": text}));
    }

    pub(crate) fn hover(&mut self, left: f64, top: f64) {
        self.execute(&json!({"do": "hover", "left": left, "top": top}));
    }

    /// Presses the mouse button at the first point and releases it at the last one; a single point is a click.
    pub(crate) fn drag(&mut self, points: &[[f64; 2]]) {
        self.execute(&json!({"do": "drag", "points": points}));
    }

    pub(crate) fn back(&mut self) {
        self.execute(&json!({"do": "back"}));
    }

    /// Returns the page's faults since it was opened or since the last call.
    pub(crate) fn faults(&mut self) -> Vec<String> {
        serde_json::from_value(self.execute(&json!({"do": "faults"}))).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // `browser.py` closes the browser and exits at the end of its input.
        drop(self.commands.take());
        let _ = self.child.wait();
    }
}
