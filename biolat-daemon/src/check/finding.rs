//! A finding: plain data.

use serde::{Serialize, Serializer, ser::SerializeMap as _};

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    /// The kind of thing, for programs: `kernel.btf`. Stable.
    pub(super) id: &'static str,
    /// The thing, for people: `vda`.
    pub(super) subject: String,
    /// Whether it works.
    pub(super) verdict: Verdict,
    /// What was found.
    pub(super) text: String,
    /// Fixes, any one of which is enough.
    pub(super) fix: Vec<Fix>,
}

/// Whether something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// It works.
    Ok,
    /// It works, with something to know about it.
    Note,
    /// It does not work.
    Fail,
}

/// How to fix something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fix {
    /// A shell command.
    Command(String),
    /// Instructions.
    Step(String),
}

impl Serialize for Fix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self {
            Self::Command(command) => map.serialize_entry("command", command)?,
            Self::Step(step) => map.serialize_entry("step", step)?,
        }
        map.end()
    }
}

impl Finding {
    pub(super) fn ok(id: &'static str, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { id, subject: subject.into(), verdict: Verdict::Ok, text: text.into(), fix: Vec::new() }
    }

    pub(super) fn note(id: &'static str, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Note, ..Self::ok(id, subject, text) }
    }

    pub(super) fn fail(id: &'static str, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fail, ..Self::ok(id, subject, text) }
    }

    /// Adds a fix.
    pub(super) fn command(mut self, command: impl Into<String>) -> Self {
        self.fix.push(Fix::Command(command.into()));
        self
    }

    /// Adds a fix.
    pub(super) fn step(mut self, step: impl Into<String>) -> Self {
        self.fix.push(Fix::Step(step.into()));
        self
    }
}

/// How many findings have this verdict.
pub(super) fn count(findings: &[Finding], verdict: Verdict) -> usize {
    findings.iter().filter(|finding| finding.verdict == verdict).count()
}
