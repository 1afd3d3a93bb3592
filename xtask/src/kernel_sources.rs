//! The sources that kernel tests in emulated machines depend on, as a digest. Results that were recorded with the same digest are
//! still valid.

use std::{fs, process::Command};

use anyhow::Result;

use crate::{
    hash::hash,
    process::{output, root},
    static_build::Architecture,
    suites::SUITES,
};

/// The folder of the kernel tests, with a file for each suite.
const TESTS: &str = "biolat-daemon/tests/kernel/";

/// Everything that may behave differently on another kernel, and the tests that would show it.
const SOURCES: [&str; 19] = [
    "Cargo.lock",
    "Cargo.toml",
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
    "deploy/grafana",
    "deploy/prometheus",
    "docs/queries.md",
    "xtask/src/static_build.rs",
    "xtask/src/suites.rs",
    "xtask/src/vm",
];

/// Everything that may behave differently on another architecture, and the tests that would show it.
const OTHER_ARCHITECTURE_SOURCES: [&str; 15] = [
    "Cargo.lock",
    "Cargo.toml",
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
    let mut names: Vec<_> = names.split_terminator('\0').filter(|name| !is_only_for_host(name)).collect();
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

/// Whether a file is a suite that no emulated machine runs.
fn is_only_for_host(name: &str) -> bool {
    let suite = name.strip_prefix(TESTS).and_then(|file| file.strip_suffix(".rs"));
    SUITES.iter().any(|known| suite == Some(known.name) && known.guests.is_empty())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, process::Command};

    use super::{OTHER_ARCHITECTURE_SOURCES, SOURCES, TESTS, is_only_for_host, output, root};
    use crate::suites::{EXACTNESS, SUITES};

    /// The files in the folder of the kernel tests, one per line.
    fn test_files() -> String {
        output(Command::new("git").current_dir(root()).args(["ls-files", "--", TESTS])).unwrap()
    }

    /// Otherwise, a change of that suite might change the results in an emulated machine.
    #[test]
    fn emulated_machines_use_nothing_of_suites_for_host() {
        assert!(
            is_only_for_host(&format!("{TESTS}limits.rs")) && !is_only_for_host(&format!("{TESTS}counts.rs"))
        );
        let files = test_files();
        let hosts: Vec<_> = SUITES.iter().filter(|suite| suite.guests.is_empty()).collect();
        for file in files.lines().filter(|name| name.ends_with(".rs") && !is_only_for_host(name)) {
            let text = fs::read_to_string(root().join(file)).unwrap();
            for suite in &hosts {
                let uses = [format!("crate::{}::", suite.name), format!("\n    {}::", suite.name)];
                assert!(!uses.iter().any(|used| text.contains(used)), "{file} uses {}", suite.name);
            }
        }
    }

    #[test]
    fn sources_exist_and_include_the_tests() {
        for name in SOURCES.into_iter().chain(OTHER_ARCHITECTURE_SOURCES) {
            assert!(root().join(name).exists(), "{name}");
        }
        for suite in EXACTNESS {
            let name = format!("{TESTS}{suite}.rs");
            assert!(OTHER_ARCHITECTURE_SOURCES.contains(&name.as_str()), "{name}");
        }
    }

    #[test]
    fn sources_include_the_files_that_tests_embed() {
        let files = test_files();
        let mut embedded = 0;
        for file in files.lines() {
            let folder = Path::new(file).parent().unwrap();
            let text = fs::read_to_string(root().join(file)).unwrap();
            for rest in text.split("include_str!(\"").skip(1) {
                let path = root().join(folder).join(rest.split('"').next().unwrap()).canonicalize().unwrap();
                let is_source = SOURCES.iter().any(|source| path.starts_with(root().join(source)));
                assert!(is_source, "{file} embeds {}", path.display());
                embedded += 1;
            }
        }
        assert!(embedded > 0, "{TESTS} embeds no file");
    }
}
