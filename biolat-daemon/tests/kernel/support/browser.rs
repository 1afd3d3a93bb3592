//! Chromium, by way of Playwright for Python: it waits until a page has done what it was told, types as a keyboard does, and
//! takes Debian's own browser, so that none is fetched from elsewhere. `browser.py` has what can be done with it.

use std::{
    io::{BufRead as _, BufReader, Lines, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use super::daemon::wait_for;

/// A browser with one window; gone when it is dropped.
pub(crate) struct Browser {
    child: Child,
    orders: Option<ChildStdin>,
    outcomes: Lines<BufReader<ChildStdout>>,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let python = std::env::var_os("BIOLAT_TEST_PYTHON").unwrap_or_else(|| "python3".into());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/support/browser.py");
        let mut command = Command::new(python);
        command.args([script, "/usr/bin/chromium"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let orders = child.stdin.take();
        let outcomes = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, orders, outcomes }
    }

    /// Has it do something, and gives what came of it.
    fn tell(&mut self, order: &Value) -> Value {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        let line = self.outcomes.next().expect("the browser goes on").unwrap();
        let mut outcome: Value = serde_json::from_str(&line).unwrap();
        assert!(outcome.get("error").is_none(), "{order}: {}", outcome["error"]);
        outcome["done"].take()
    }

    /// Opens a page in a window with these options; its headers.
    pub(crate) fn open(&mut self, url: &str, options: &Value) -> Value {
        let mut order = json!({"do": "open", "url": url});
        order.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        self.tell(&order)
    }

    pub(crate) fn evaluate(&mut self, text: &str) -> Value {
        self.tell(&json!({"do": "evaluate", "text": text}))
    }

    /// Waits until an expression holds.
    pub(crate) fn wait_for(&mut self, text: &str) {
        wait_for(text, || self.evaluate(text) == true);
    }

    pub(crate) fn text(&mut self, selector: &str) -> String {
        self.tell(&json!({"do": "text", "selector": selector})).as_str().unwrap().to_owned()
    }

    pub(crate) fn press(&mut self, key: &str) {
        self.tell(&json!({"do": "press", "key": key}));
    }

    pub(crate) fn click(&mut self, selector: &str) {
        self.tell(&json!({"do": "click", "selector": selector}));
    }

    pub(crate) fn select(&mut self, selector: &str, label: &str) {
        self.tell(&json!({"do": "select", "selector": selector, "label": label}));
    }

    pub(crate) fn hover(&mut self, left: f64, top: f64) {
        self.tell(&json!({"do": "hover", "left": left, "top": top}));
    }

    /// What the page has done wrong since it was opened, or since this was last asked for.
    pub(crate) fn faults(&mut self) -> Vec<String> {
        serde_json::from_value(self.tell(&json!({"do": "faults"}))).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Without orders it ends, and its browser with it.
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}
