//! The sources that kernel tests in emulated machines depend on, as a digest. Results that were recorded with the same digest are
//! still valid.

use std::{fs, process::Command};

use anyhow::Result;

use crate::{
    hash::hash,
    process::{output, root},
    static_build::Architecture,
};

/// Everything that may behave differently on another kernel, and the tests that would show it.
const SOURCES: [&str; 16] = [
    "Cargo.lock",
    "biolat-cli",
    "biolat-client",
    "biolat-collect",
    "biolat-common",
    "biolat-daemon",
    "biolat-ebpf",
    "biolat-history",
    "biolat-model",
    "biolat-probe",
    "biolat-system",
    "biolat-testing",
    "deploy/prometheus",
    "xtask/src/static_build.rs",
    "xtask/src/suites.rs",
    "xtask/src/vm",
];

/// Everything that may behave differently on another architecture, and the tests that would show it.
const OTHER_ARCHITECTURE_SOURCES: [&str; 14] = [
    "Cargo.lock",
    "biolat-collect",
    "biolat-common",
    "biolat-ebpf",
    "biolat-probe",
    "biolat-system",
    "biolat-daemon/tests/kernel/drives.rs",
    "biolat-daemon/tests/kernel/known_latency.rs",
    "biolat-daemon/tests/kernel/requests.rs",
    "biolat-daemon/tests/kernel/rights.rs",
    "biolat-daemon/tests/kernel/support",
    "xtask/src/static_build.rs",
    "xtask/src/suites.rs",
    "xtask/src/vm",
];

/// Returns the digest of the sources of an architecture's tests, with changes that are not committed.
pub(crate) fn digest(architecture: Architecture) -> Result<String> {
    let sources: &[&str] = if architecture.is_host() { &SOURCES } else { &OTHER_ARCHITECTURE_SOURCES };
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"];
    let names = output(Command::new("git").current_dir(root()).args(list).args(sources))?;
    let mut names: Vec<_> = names.split_terminator('\0').collect();
    names.sort_unstable();
    let mut all = Vec::new();
    for name in names {
        // A deleted file is still listed.
        let Ok(bytes) = fs::read(root().join(name)) else { continue };
        all.extend(format!("{name} {}\n", bytes.len()).into_bytes());
        all.extend(bytes);
    }
    Ok(hash(&all))
}

#[cfg(test)]
mod tests {
    use super::{OTHER_ARCHITECTURE_SOURCES, SOURCES, root};
    use crate::suites::EXACTNESS;

    #[test]
    fn sources_exist_and_include_the_tests() {
        for name in SOURCES.into_iter().chain(OTHER_ARCHITECTURE_SOURCES) {
            assert!(root().join(name).exists(), "{name}");
        }
        for suite in EXACTNESS {
            let name = format!("biolat-daemon/tests/kernel/{suite}.rs");
            assert!(OTHER_ARCHITECTURE_SOURCES.contains(&name.as_str()), "{name}");
        }
    }
}
