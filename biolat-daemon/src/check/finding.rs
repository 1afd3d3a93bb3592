//! The result of one check, as plain data.

use serde::{Serialize, Serializer, ser::SerializeMap as _};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    /// Stable identifier of the check, for programs: `kernel.btf`.
    pub(super) id: &'static str,
    /// Name of the checked object, for people: `vda`.
    pub(super) subject: String,
    pub(super) verdict: Verdict,
    pub(super) text: String,
    /// Alternative fixes; any one of them is enough.
    pub(super) fix: Vec<Fix>,
}

/// Whether something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// It works.
    Ok,
    /// It works, with a caveat.
    Note,
    /// It does not work.
    Fail,
}

/// A way to fix the problem.
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

    /// Adds a shell command as a fix.
    pub(super) fn command(mut self, command: impl Into<String>) -> Self {
        self.fix.push(Fix::Command(command.into()));
        self
    }

    /// Adds instructions as a fix.
    pub(super) fn step(mut self, step: impl Into<String>) -> Self {
        self.fix.push(Fix::Step(step.into()));
        self
    }
}

/// Counts the findings with this verdict.
pub(super) fn count(findings: &[Finding], verdict: Verdict) -> usize {
    findings.iter().filter(|finding| finding.verdict == verdict).count()
}
