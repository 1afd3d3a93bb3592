//! Builds statically linked release binaries: the released programs, the tests for guests, the benchmarks and `biolat-fleet`. All
//! have the same profile, flags and target directory, so their dependencies are built once. Only the tests' own crate is
//! optimized less.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{
    host::tool,
    process::{cargo, command, find, output, root, run},
};

/// A program of the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The package that builds it.
    pub(crate) package: &'static str,
}

pub(crate) const DAEMON: Program = Program { name: "biolat-daemon", package: "biolat-daemon" };
pub(crate) const TOOL: Program = Program { name: "biolat", package: "biolat-cli" };
pub(crate) const PROGRAMS: [Program; 2] = [DAEMON, TOOL];

/// An architecture to build for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Architecture {
    /// The name in images and packages.
    pub(crate) name: &'static str,
    pub(crate) target: &'static str,
    /// Maximum size of each of [`PROGRAMS`], in bytes. Raising it is a deliberate decision.
    pub(crate) max_bytes: [u64; PROGRAMS.len()],
    /// For a cross build: the linker, and the C library that must be present.
    cross: Option<(&'static str, &'static str)>,
    /// QEMU's user-mode emulator and its Debian package.
    pub(crate) user_emulator: (&'static str, &'static str),
}

impl Architecture {
    pub(crate) const AMD64: Self = Self {
        name: "amd64",
        target: "x86_64-unknown-linux-gnu",
        max_bytes: [25 << 18, 32 << 18],
        cross: None,
        user_emulator: ("qemu-x86_64-static", "qemu-user-static"),
    };
    pub(crate) const ARM64: Self = Self {
        name: "arm64",
        target: "aarch64-unknown-linux-gnu",
        max_bytes: [11 << 19, 28 << 18],
        cross: Some(("aarch64-linux-gnu-gcc", "/usr/aarch64-linux-gnu/lib/libc.a")),
        user_emulator: ("qemu-aarch64-static", "qemu-user-static"),
    };
    pub(crate) const ALL: [Self; 2] = [Self::AMD64, Self::ARM64];

    pub(crate) fn of_host() -> Result<Self> {
        let own = Self::ALL.into_iter().find(|each| each.is_host());
        own.context("nothing is built for this machine's architecture")
    }

    /// Parses the value of a command line option.
    pub(crate) fn named(option: &str, name: &str) -> Result<Self> {
        let known = || Self::ALL.map(|each| each.name).join(", ");
        let found = Self::ALL.into_iter().find(|each| each.name == name);
        found.with_context(|| format!("{option} {name}: expected one of {}", known()))
    }

    pub(crate) fn is_host(self) -> bool {
        self.target.starts_with(std::env::consts::ARCH)
    }

    /// Returns a command for QEMU's user-mode emulator of this architecture.
    pub(crate) fn user_emulator(self) -> Command {
        Command::new(self.user_emulator.0)
    }

    /// Returns a command that runs a program of this architecture, emulated if necessary.
    pub(crate) fn runner(self, program: &Path) -> Command {
        if self.is_host() {
            return Command::new(program);
        }
        let mut command = self.user_emulator();
        command.arg(program);
        command
    }

    /// Returns why nothing can be built for this architecture here, or `None` if it can.
    pub(crate) fn missing(self) -> Option<String> {
        let (linker, library) = self.cross?;
        if find(linker).is_none() || !Path::new(library).is_file() {
            let package = format!("gcc-aarch64-linux-gnu libc6-dev-{}-cross", self.name);
            return Some(format!("no {linker} with {library}: apt-get install {package}"));
        }
        self.cross_cargo().err().map(|error| format!("{error:#}"))
    }

    /// Returns a compiler with this architecture's standard library: rustup's, or Debian's as set up by `.ci/install`.
    fn rustc(self) -> Result<PathBuf> {
        let candidates = ["rustc".into(), tool(&format!("rust-{}/rustc", self.name))];
        candidates.into_iter().find(|rustc| has_library(rustc, self.target)).with_context(|| {
            format!(
                "no standard library for {0}: rustup target add {0}, or on Debian run .ci/install",
                self.target
            )
        })
    }

    /// Returns a command for a cargo that uses this compiler.
    fn cross_cargo(self) -> Result<Command> {
        let rustc = self.rustc()?;
        if rustc == Path::new("rustc") {
            return Ok(cargo(&[]));
        }
        let mut cargo = command("/usr/bin/cargo", &[]);
        // Debian's cargo must not inherit rustup's environment.
        for (name, _) in std::env::vars().filter(|(name, _)| {
            name.starts_with("CARGO_") && name != "CARGO_HOME" || name.starts_with("RUSTUP_TOOLCHAIN")
        }) {
            cargo.env_remove(name);
        }
        cargo.env("RUSTC", rustc);
        Ok(cargo)
    }

    /// Returns the statically linked libraries that are not crates.
    pub(crate) fn libraries(self) -> Result<[Library; 2]> {
        let version = output(command(self.rustc()?, &["--version"]).env_remove("RUSTUP_TOOLCHAIN"))?;
        let version = version.split(' ').nth(1).context("rustc has no version")?.to_owned();
        let linker = self.cross.map_or("cc", |(linker, _)| linker);
        let archive = output(&mut command(linker, &["-print-file-name=libc.a"]))?;
        let archive = archive.trim();
        let bytes = fs::read(archive).with_context(|| format!("cannot read {archive}"))?;
        let glibc = glibc_version(&bytes).with_context(|| format!("{archive} is not the GNU C Library"))?;
        Ok([
            Library { name: "rust-std", product: "rust-lang:rust", version, license: "MIT OR Apache-2.0" },
            Library { name: "glibc", product: "gnu:glibc", version: glibc, license: "LGPL-2.1-or-later" },
        ])
    }
}

/// A statically linked library that is not a crate.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    /// Vendor and product in vulnerability databases.
    pub(crate) product: &'static str,
    pub(crate) version: String,
    pub(crate) license: &'static str,
}

/// Returns the version in the banner of the GNU C Library.
fn glibc_version(archive: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b" release version ";
    let start = archive.windows(BANNER.len()).position(|bytes| bytes == BANNER)? + BANNER.len();
    let version = archive[start..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.');
    let version: String = version.map(|&byte| char::from(byte)).collect();
    Some(version.trim_end_matches('.').to_owned()).filter(|version| !version.is_empty())
}

/// Whether a compiler has the standard library for this target.
fn has_library(rustc: &Path, target: &str) -> bool {
    let Ok(printed) = command(rustc, &["--print", "sysroot"]).output() else { return false };
    let sysroot = PathBuf::from(String::from_utf8_lossy(&printed.stdout).trim());
    printed.status.success() && sysroot.join("lib/rustlib").join(target).join("lib").is_dir()
}

/// Returns the target directory of static builds, which have different flags than other builds. Each architecture has its own,
/// because cargo locks a target directory while building and the compilers may differ.
pub(crate) fn target_dir(architecture: Architecture) -> PathBuf {
    root().join("target/static").join(architecture.name)
}

/// Returns the directory where static builds for an architecture put their programs.
pub(crate) fn folder(architecture: Architecture) -> PathBuf {
    target_dir(architecture).join(architecture.target).join("release")
}

/// Builds the released programs for an architecture in one go, so that they share their dependencies.
pub(crate) fn build_programs(architecture: Architecture) -> Result<()> {
    let mut command = static_cargo("build", DAEMON.package, architecture)?;
    run(command.args(["--package", TOOL.package, "--bins", "--release"]))
}

/// Returns a cargo command that builds, runs, tests or benchmarks a package the way the released binaries are built.
pub(crate) fn static_cargo(verb: &str, package: &str, architecture: Architecture) -> Result<Command> {
    let mut flags = flags()?;
    let mut command = match architecture.cross {
        None => {
            // Saves half a megabyte: most relocations then take one bit each.
            flags.push("-Clink-arg=-Wl,-z,pack-relative-relocs".to_owned());
            cargo(&[])
        }
        Some((linker, _)) => {
            flags.push(format!("-Clinker={linker}"));
            architecture.cross_cargo()?
        }
    };
    command.args([verb, "--locked", "--package", package]);
    // An explicit target keeps the flags away from build scripts, which run on the host.
    command.args(["--target", architecture.target, "--target-dir"]).arg(target_dir(architecture));
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")).env_remove("RUSTFLAGS");
    command.env("BIOLAT_REVISION", revision()?);
    Ok(command)
}

/// Returns the commit from the environment, otherwise from git.
pub(crate) fn revision() -> Result<String> {
    Ok(from_env_or_git("BIOLAT_REVISION", &["rev-parse", "--short=12", "HEAD"])?.trim().to_owned())
}

/// Returns a property of the last commit: the environment variable or, if it is unset, the output of git.
pub(crate) fn from_env_or_git(variable: &str, arguments: &[&str]) -> Result<String> {
    let given = std::env::var(variable).ok().filter(|text| !text.is_empty());
    let from_git = || output(Command::new("git").args(arguments).current_dir(root()));
    let text = given.map_or_else(from_git, Ok);
    text.with_context(|| format!("cannot get the last commit from git: set {variable}"))
}

/// Returns flags that link statically and remove this machine's paths from panic messages.
fn flags() -> Result<Vec<String>> {
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    // Each registry has a directory, with a hash of its URL in the name.
    let sources = cargo_home()?.join("registry/src");
    for registry in fs::read_dir(&sources).with_context(|| format!("cannot list {}", sources.display()))? {
        flags.push(format!("--remap-path-prefix={}=cargo", registry?.path().display()));
    }
    Ok(flags)
}

/// Returns path prefixes of this machine that must not appear in an artifact.
pub(crate) fn local_paths() -> Result<[PathBuf; 2]> {
    Ok([original(), cargo_home()?])
}

/// Environment variable that names the original of a copied workspace.
pub(crate) const COPY_OF: &str = "BIOLAT_COPY_OF";

/// Returns the directory where `cargo xtask dist --check` builds a copy of the sources.
pub(crate) fn copy() -> PathBuf {
    original().join("target/copy")
}

fn original() -> PathBuf {
    std::env::var_os(COPY_OF).map_or_else(root, PathBuf::from)
}

fn cargo_home() -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    home.context("neither CARGO_HOME nor HOME is set")
}
