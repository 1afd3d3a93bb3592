//! What a check finds: plain data.

use serde::{Serialize, Serializer, ser::SerializeMap as _};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    /// What kind of thing, for programs: `kernel.btf`. It does not change.
    pub(super) id: &'static str,
    /// Which of them, for people: `vda`.
    pub(super) subject: String,
    /// Whether it will do.
    pub(super) verdict: Verdict,
    /// What was found.
    pub(super) text: String,
    /// What mends it: any one of these.
    pub(super) fix: Vec<Fix>,
}

/// Whether something will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// It will.
    Ok,
    /// It will, and there is something to know about it.
    Note,
    /// It will not.
    Fail,
}

/// What mends something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fix {
    /// A command, as a shell takes it.
    Command(String),
    /// Something that is to be done otherwise.
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

    /// Mended by this command, or by another fix.
    pub(super) fn command(mut self, command: impl Into<String>) -> Self {
        self.fix.push(Fix::Command(command.into()));
        self
    }

    /// Mended by this step, or by another fix.
    pub(super) fn step(mut self, step: impl Into<String>) -> Self {
        self.fix.push(Fix::Step(step.into()));
        self
    }
}

/// How many findings have this verdict.
pub(super) fn count(findings: &[Finding], verdict: Verdict) -> usize {
    findings.iter().filter(|finding| finding.verdict == verdict).count()
}

/// Bytes, for people.
pub(super) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}
