//! The kernel's statistics of loaded BPF programs.

use std::{collections::BTreeSet, io::ErrorKind, time::Duration};

use anyhow::{Context as _, Result};
use aya::programs::{ProgramError, ProgramInfo, loaded_programs};
use serde_json::{Value, json};

/// IDs of all loaded programs.
pub(crate) fn ids() -> Result<BTreeSet<u32>> {
    Ok(all()?.iter().map(ProgramInfo::id).collect())
}

/// The programs with these IDs that are still loaded.
pub(crate) fn of(ids: &BTreeSet<u32>) -> Result<Vec<Program>> {
    let all = all()?;
    Ok(all.iter().filter(|info| ids.contains(&info.id())).map(Program::from_info).collect())
}

fn all() -> Result<Vec<ProgramInfo>> {
    loaded_programs()
        .filter(|program| !program.as_ref().is_err_and(is_gone))
        .collect::<Result<_, _>>()
        .context("cannot list the kernel's BPF programs: requires root")
}

/// Whether the program was unloaded after the kernel had returned its ID: the previous subject's programs outlive its process
/// briefly.
fn is_gone(error: &ProgramError) -> bool {
    matches!(error, ProgramError::SyscallError(error) if error.io_error.kind() == ErrorKind::NotFound)
}

/// A loaded program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    id: u32,
    pub(crate) name: String,
    runs: u64,
    run_time: Duration,
    /// Size after translation and size as machine code in bytes, and the number of instructions that the verifier processed.
    translated: u32,
    jited: u32,
    verified: u32,
}

impl Program {
    fn from_info(info: &ProgramInfo) -> Self {
        Self {
            id: info.id(),
            name: info.name_as_str().unwrap_or_default().to_owned(),
            runs: info.run_count(),
            run_time: info.run_time(),
            translated: info.size_translated().unwrap_or_default(),
            jited: info.size_jitted(),
            verified: info.verified_instruction_count().unwrap_or_default(),
        }
    }

    pub(crate) fn sizes(&self) -> [u32; 3] {
        [self.translated, self.jited, self.verified]
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "xlated_bytes": self.translated,
            "jited_bytes": self.jited,
            "verified_instructions": self.verified,
        })
    }
}

/// Cost per I/O of the given programs since `before`. Assumes that the program with the most runs ran once per I/O.
pub(crate) fn cost(before: &[Program], after: &[Program]) -> Option<Cost> {
    let (mut time, mut runs, mut ios) = (Duration::ZERO, 0, 0);
    for now in after {
        let then = before.iter().find(|then| then.id == now.id)?;
        time += now.run_time - then.run_time;
        runs += now.runs - then.runs;
        ios = ios.max(now.runs - then.runs);
    }
    let each = |sum: f64| sum / ios as f64;
    (ios > 0).then(|| Cost { ns: each(time.as_nanos() as f64), runs: each(runs as f64) })
}

/// Cost per I/O.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) ns: f64,
    /// Runs of all programs.
    pub(crate) runs: f64,
}
