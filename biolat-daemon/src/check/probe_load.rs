//! Checks whether the kernel accepts the probe, by loading and discarding it.

use anyhow::Result;
use biolat_probe::{ProgramCounts, load_error::LoadError};

use super::finding::Finding;

const ID: &str = "probe.load";
const SUBJECT: &str = "probe";

pub(super) fn tried(outcome: Result<ProgramCounts>) -> Finding {
    match outcome {
        Ok(counts) => {
            let verified = match counts.verified_instructions {
                // Not reported before Linux 5.16.
                0 => String::new(),
                verified => format!(": the verifier processed {verified} instructions"),
            };
            Finding::ok(ID, SUBJECT, format!("the kernel accepts it{verified}"))
        }
        Err(error) => match error.downcast::<LoadError>() {
            Ok(rejection) => {
                let finding = Finding::fail(ID, SUBJECT, rejection.what);
                match rejection.remedy {
                    Some(remedy) => finding.step(remedy),
                    None => finding.step("report this with the line above and the output of `uname -r`"),
                }
            }
            Err(error) => Finding::fail(ID, SUBJECT, format!("{error:#}")),
        },
    }
}

/// Why the probe was not loaded.
pub(super) enum Skipped {
    /// Capabilities are missing.
    Rights,
    /// The kernel is not supported.
    Kernel,
    /// The memory limit is too low; the kernel would kill this process.
    Memory,
}

pub(super) fn skipped(why: &Skipped) -> Finding {
    let why = match why {
        Skipped::Rights => "missing capabilities",
        Skipped::Kernel => "unsupported kernel",
        Skipped::Memory => "too little memory",
    };
    Finding::note(ID, SUBJECT, format!("skipped: {why}"))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use biolat_probe::{ProgramCounts, load_error::LoadError};

    use super::{
        super::finding::{
            Fix,
            Verdict::{Fail, Note, Ok as Fine},
        },
        Skipped, skipped, tried,
    };

    #[test]
    fn reports_outcome() {
        let counts = |verified_instructions| ProgramCounts { verified_instructions, ..Default::default() };
        let finding = tried(Ok(counts(4900)));
        assert_eq!(finding.verdict, Fine);
        assert_eq!(finding.text, "the kernel accepts it: the verifier processed 4900 instructions");
        assert_eq!(tried(Ok(counts(0))).text, "the kernel accepts it");
        for (remedy, expected) in [(Some("do that"), "do that"), (None, "report this")] {
            let rejection = LoadError { what: "cannot load".into(), remedy: remedy.map(str::to_owned) };
            let finding = tried(Err(rejection.into()));
            assert_eq!((finding.verdict, finding.text.as_str()), (Fail, "cannot load"));
            assert!(
                matches!(&finding.fix[..], [Fix::Step(step)] if step.starts_with(expected)),
                "{finding:?}"
            );
        }
        assert_eq!(tried(Err(anyhow!("else"))).text, "else");
        assert_eq!(skipped(&Skipped::Rights).verdict, Note);
        assert_eq!(skipped(&Skipped::Memory).text, "skipped: too little memory");
        assert_eq!(skipped(&Skipped::Kernel).text, "skipped: unsupported kernel");
    }
}
