//! Sets the git revision that `--version` prints (`unknown` without git), and strips indentation and comments from the web page's
//! files.

use std::{fs, io, path::Path, process::Command};

/// The page's scripts, concatenated in this order.
const SCRIPT: [&str; 14] = [
    "figures.js",
    "saved.js",
    "history.js",
    "inflight.js",
    "connection.js",
    "heatmap.js",
    "past.js",
    "day.js",
    "sizes.js",
    "workloads.js",
    "cpus.js",
    "slow.js",
    "cell.js",
    "page.js",
];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=src/http/page");
    embed("page.js", &SCRIPT)?;
    embed("page.css", &["page.css"])?;
    embed("page.html", &["page.html"])?;
    println!("cargo:rustc-env=BIOLAT_REVISION={}", revision().unwrap_or_else(|| "unknown".to_owned()));
    println!("cargo:rerun-if-env-changed=BIOLAT_REVISION");
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    Ok(())
}

/// Joins files into one, without indentation, empty lines or comments. Comments must be whole lines that begin with `//` or
/// `/**`.
fn embed(name: &str, files: &[&str]) -> io::Result<()> {
    let mut embedded = String::new();
    for file in files {
        let text = fs::read_to_string(Path::new("src/http/page").join(file))?;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if !line.starts_with("//") && !line.starts_with("/**") {
                embedded.push_str(line);
                embedded.push('\n');
            }
        }
    }
    let folder = std::env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&folder).join(name), embedded)
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
