//! Whether the kernel takes the probe: tried where this process may, and thrown away.

use anyhow::Result;

use super::finding::Finding;
use crate::probe::{ProgramCounts, load_error::LoadError};

const ID: &str = "probe.load";
const SUBJECT: &str = "probe";

pub(super) fn tried(outcome: Result<ProgramCounts>) -> Finding {
    match outcome {
        Ok(counts) => {
            let walked = match counts.verified_instructions {
                // Kernels before 5.16 do not tell.
                0 => String::new(),
                walked => format!(": the verifier walked {walked} instructions"),
            };
            Finding::ok(ID, SUBJECT, format!("the kernel takes it{walked}"))
        }
        Err(error) => match error.downcast::<LoadError>() {
            Ok(refusal) => {
                let finding = Finding::fail(ID, SUBJECT, refusal.what);
                match refusal.remedy {
                    Some(remedy) => finding.step(remedy),
                    None => finding.step("report it, with this line and the output of `uname -r`"),
                }
            }
            Err(error) => Finding::fail(ID, SUBJECT, format!("{error:#}")),
        },
    }
}

/// Why it was not tried.
pub(super) enum Untried {
    /// This process may not.
    Rights,
    /// There is nothing to load it by.
    Kernel,
    /// The kernel would end this process on the way.
    Memory,
}

pub(super) fn untried(why: &Untried) -> Finding {
    let why = match why {
        Untried::Rights => "for want of rights",
        Untried::Kernel => "as the kernel is not what it takes",
        Untried::Memory => "for want of memory",
    };
    Finding::note(ID, SUBJECT, format!("not tried, {why}"))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::{
        super::finding::{
            Fix,
            Verdict::{Fail, Note, Ok as Fine},
        },
        Untried, tried, untried,
    };
    use crate::probe::{ProgramCounts, load_error::LoadError};

    #[test]
    fn outcomes() {
        let counts = |verified_instructions| ProgramCounts { verified_instructions, ..Default::default() };
        let finding = tried(Ok(counts(4900)));
        assert_eq!(finding.verdict, Fine);
        assert_eq!(finding.text, "the kernel takes it: the verifier walked 4900 instructions");
        assert_eq!(tried(Ok(counts(0))).text, "the kernel takes it");
        for (remedy, expected) in [(Some("do that"), "do that"), (None, "report it")] {
            let refusal = LoadError { what: "cannot load".into(), remedy: remedy.map(str::to_owned) };
            let finding = tried(Err(refusal.into()));
            assert_eq!((finding.verdict, finding.text.as_str()), (Fail, "cannot load"));
            assert!(
                matches!(&finding.fix[..], [Fix::Step(step)] if step.starts_with(expected)),
                "{finding:?}"
            );
        }
        assert_eq!(tried(Err(anyhow!("else"))).text, "else");
        assert_eq!(untried(&Untried::Rights).verdict, Note);
        assert_eq!(untried(&Untried::Memory).text, "not tried, for want of memory");
        assert_eq!(untried(&Untried::Kernel).text, "not tried, as the kernel is not what it takes");
    }
}
