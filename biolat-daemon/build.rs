//! Finds the git revision for `--version`. It builds nothing and fails never: without git it is `unknown`.

use std::{path::Path, process::Command};

fn main() {
    println!("cargo:rustc-env=BIOLAT_REVISION={}", revision().unwrap_or_else(|| "unknown".to_owned()));
    println!("cargo:rerun-if-env-changed=BIOLAT_REVISION");
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

fn revision() -> Option<String> {
    let given = std::env::var("BIOLAT_REVISION").ok().filter(|revision| !revision.is_empty());
    given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
