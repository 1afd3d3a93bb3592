//! The release binary of the daemon: one statically linked, stripped, position-independent file.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::ReleaseInfo;
use crate::{
    host::tool,
    process::{cargo, command, find, root, run},
};

/// An architecture to build for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Architecture {
    /// The name in images and packages.
    pub(crate) name: &'static str,
    pub(crate) target: &'static str,
    /// The largest allowed binary, in bytes. Raising it is a deliberate decision.
    pub(super) max_bytes: u64,
    /// For a cross build: the linker, and the C library, whose presence is checked.
    cross: Option<(&'static str, &'static str)>,
}

impl Architecture {
    pub(crate) const ALL: [Self; 2] = [
        Self { name: "amd64", target: "x86_64-unknown-linux-gnu", max_bytes: 15 << 19, cross: None },
        Self {
            name: "arm64",
            target: "aarch64-unknown-linux-gnu",
            max_bytes: 13 << 19,
            cross: Some(("aarch64-linux-gnu-gcc", "/usr/aarch64-linux-gnu/lib/libc.a")),
        },
    ];

    /// Why nothing can be built for this architecture here; `None` if it can.
    pub(super) fn missing(self) -> Option<String> {
        let (linker, library) = self.cross?;
        if find(linker).is_none() || !Path::new(library).is_file() {
            let package = format!("gcc-aarch64-linux-gnu libc6-dev-{}-cross", self.name);
            return Some(format!("no {linker} with {library}: apt-get install {package}"));
        }
        self.cross_cargo().err().map(|error| format!("{error:#}"))
    }

    /// A cargo whose compiler has this architecture's standard library: rustup's, or Debian's as set up by `.ci/install`.
    fn cross_cargo(self) -> Result<Command> {
        let debian = tool(&format!("rust-{}/rustc", self.name));
        if has_library(Path::new("rustc"), self.target) {
            return Ok(cargo(&[]));
        }
        if !has_library(&debian, self.target) {
            bail!(
                "no standard library for {0}: rustup target add {0}, or on Debian run .ci/install",
                self.target
            );
        }
        let mut cargo = command("/usr/bin/cargo", &[]);
        // Debian's cargo must not inherit rustup's environment.
        for (name, _) in std::env::vars().filter(|(name, _)| {
            name.starts_with("CARGO_") && name != "CARGO_HOME" || name.starts_with("RUSTUP_TOOLCHAIN")
        }) {
            cargo.env_remove(name);
        }
        cargo.env("RUSTC", debian);
        Ok(cargo)
    }
}

/// Whether a compiler has the standard library for this target.
fn has_library(rustc: &Path, target: &str) -> bool {
    let Ok(printed) = command(rustc, &["--print", "sysroot"]).output() else { return false };
    let sysroot = PathBuf::from(String::from_utf8_lossy(&printed.stdout).trim());
    printed.status.success() && sysroot.join("lib/rustlib").join(target).join("lib").is_dir()
}

/// The target directory of release builds: their flags differ from those of other builds.
pub(super) fn target_dir() -> PathBuf {
    root().join("target/static")
}

/// Profile for a small binary, all of whose code stays in memory: fat LTO, optimized for size.
const SMALL: [&str; 4] = [
    "profile.release.lto='fat'",
    "profile.release.codegen-units=1",
    "profile.release.package.\"*\".opt-level='s'",
    "profile.release.package.biolat-daemon.opt-level='s'",
];

/// Dependencies that collections, scrapes and password checks spend their time in: optimized for speed.
const HOT: [&str; 8] =
    ["bcrypt", "blowfish", "flate2", "miniz_oxide", "prometheus-client", "prost", "ring", "serde_json"];

/// Builds the daemon and returns the binary's path.
pub(super) fn build(architecture: Architecture, info: &ReleaseInfo) -> Result<PathBuf> {
    let mut flags = flags()?;
    let mut command = match architecture.cross {
        None => cargo(&[]),
        Some((linker, _)) => {
            flags.push(format!("-Clinker={linker}"));
            architecture.cross_cargo()?
        }
    };
    command.args(["build", "--release", "--locked", "--package", "biolat-daemon"]);
    // With an explicit target, the flags do not apply to build scripts, which run on the host.
    command.args(["--target", architecture.target, "--target-dir"]).arg(target_dir());
    command.args(SMALL.iter().flat_map(|setting| ["--config", setting]));
    command.args(HOT.iter().flat_map(|package| {
        ["--config".to_owned(), format!("profile.release.package.{package}.opt-level=3")]
    }));
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")).env_remove("RUSTFLAGS");
    command.env("BIOLAT_REVISION", &info.revision);
    run(&mut command)?;
    Ok(target_dir().join(architecture.target).join("release/biolat-daemon"))
}

/// Links statically, and removes this machine's paths from panic messages.
fn flags() -> Result<Vec<String>> {
    let mut flags = vec![
        "-Ctarget-feature=+crt-static".to_owned(),
        format!("--remap-path-prefix={}=biolat", root().display()),
    ];
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let sources = home.context("neither CARGO_HOME nor HOME is set")?.join("registry/src");
    // One directory for each registry, with a hash of its URL in the name.
    for registry in fs::read_dir(&sources).with_context(|| format!("cannot list {}", sources.display()))? {
        flags.push(format!("--remap-path-prefix={}=cargo", registry?.path().display()));
    }
    Ok(flags)
}
