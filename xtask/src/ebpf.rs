//! `cargo xtask ebpf`: builds the committed eBPF objects and checks that they match their sources.
//!
//! The objects are committed so that building the daemon needs only stable Rust. An object's manifest records the hashes of its sources,
//! the versions of its dependencies, the compiler and the flags. `--check` compares them with the workspace. If the recorded
//! compiler is installed, it also rebuilds the object for every architecture and compares the bytes: one object serves them all.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    hash::hash,
    process::{cargo, find, output, root, run},
};

/// A committed object.
struct Committed {
    /// The binary of `biolat-ebpf`.
    binary: &'static str,
    object: &'static str,
    manifest: &'static str,
    /// Its sources in the workspace, in addition to [`SOURCES`].
    sources: &'static [&'static str],
}

/// The probe, the programs of `biolat processes`, and those that measure volumes.
const COMMITTED: [Committed; 3] = [
    Committed {
        binary: "biolat-ebpf",
        object: OBJECT,
        manifest: "biolat-probe/object/biolat.bpf.manifest",
        sources: &[],
    },
    Committed {
        binary: "processes",
        object: "biolat-probe/object/processes.bpf.o",
        manifest: "biolat-probe/object/processes.bpf.manifest",
        sources: &["biolat-ebpf/processes"],
    },
    Committed {
        binary: "volumes",
        object: "biolat-probe/object/volumes.bpf.o",
        manifest: "biolat-probe/object/volumes.bpf.manifest",
        sources: &["biolat-ebpf/volumes"],
    },
];

/// Binaries that are not committed: the probe's bucket test, and the benchmark's minimal probe.
const CELLS: &str = "cells";
const FLOOR: &str = "floor";

pub(crate) const OBJECT: &str = "biolat-probe/object/biolat.bpf.o";
const TARGET: &str = "bpfel-unknown-none";
const LINKER: &str = "bpf-linker 0.13.0";

/// Sources in the workspace. The manifest lists external dependencies by version.
const SOURCES: [&str; 4] =
    ["biolat-common/Cargo.toml", "biolat-common/src", "biolat-ebpf/Cargo.toml", "biolat-ebpf/src"];

/// The complete build profile. The workspace's profile is meant for the daemon.
const PROFILE: [&str; 6] = [
    "profile.release.opt-level=3",
    "profile.release.codegen-units=1",
    "profile.release.debug=2",
    "profile.release.strip=false",
    "profile.release.panic='abort'",
    "profile.release.lto='off'",
];

/// The kernel architecture in the flags. It matters only to code that reads registers.
const ARCHITECTURE: &str = "x86_64";
/// Other architectures that the same object serves.
const OTHER_ARCHITECTURES: [&str; 1] = ["aarch64"];

/// `v3` has 32-bit arithmetic and needs Linux 5.1. The linker generates BTF from the debug information.
const RUSTFLAGS: [&str; 5] =
    ["--cfg", "bpf_target_arch=\"x86_64\"", "-Cdebuginfo=2", "-Ctarget-cpu=v3", "-Clink-arg=--btf"];

/// A compiler with the sources of `core`, and the tools that go with it.
struct Toolchain {
    cargo: PathBuf,
    rustc: PathBuf,
    /// `rustc --version` and LLVM's version.
    version: String,
    linker: PathBuf,
    strip: PathBuf,
}

/// Rebuilds the committed objects and their manifests.
pub(crate) fn rebuild() -> Result<()> {
    let toolchain = Toolchain::find(None)?;
    for committed in &COMMITTED {
        let object = toolchain.build(committed.binary)?;
        let (path, manifest) = (root().join(committed.object), root().join(committed.manifest));
        fs::create_dir_all(path.parent().context("no parent directory")?)?;
        fs::write(path, &object)?;
        fs::write(manifest, write_manifest(committed, &expected(committed, &object, &toolchain.version)?))?;
        println!("{}: {} bytes, {}", committed.object, object.len(), toolchain.version);
    }
    Ok(())
}

/// Compares the committed objects with their sources and, if the recorded compiler is installed, with a rebuild.
pub(crate) fn check(strict: bool) -> Result<()> {
    let checked = COMMITTED.iter().map(|committed| Ok((committed, check_object(committed, strict)?)));
    // After all builds for this architecture, because a build with other flags compiles `core` again.
    for (committed, toolchain) in checked.collect::<Result<Vec<_>>>()? {
        if let Some(toolchain) = toolchain {
            toolchain.check_other_architectures(committed)?;
        }
    }
    Ok(())
}

/// Returns the compiler that rebuilt the object, if it is installed.
fn check_object(committed: &Committed, strict: bool) -> Result<Option<Toolchain>> {
    const REMEDY: &str = "rebuild it with: cargo xtask ebpf";
    let (path, manifest) = (committed.object, committed.manifest);
    let object = fs::read(root().join(path)).with_context(|| format!("cannot read {path}: {REMEDY}"))?;
    let text = fs::read_to_string(root().join(manifest))
        .with_context(|| format!("cannot read {manifest}: {REMEDY}"))?;
    let recorded = read_manifest(&text);
    let compiler = recorded.get("compiler").cloned().unwrap_or_default();
    let expected = expected(committed, &object, &compiler)?;
    let keys: BTreeSet<_> = recorded.keys().chain(expected.keys()).collect();
    let differing: Vec<_> = keys.into_iter().filter(|&key| recorded.get(key) != expected.get(key)).collect();
    if !differing.is_empty() {
        let names: Vec<_> = differing.into_iter().map(String::as_str).collect();
        bail!("{path} is stale: changed: {}; {REMEDY}", names.join(", "));
    }
    match Toolchain::find(Some(&compiler)) {
        Ok(toolchain) => {
            if toolchain.build(committed.binary)? != object {
                bail!("{path} differs from a rebuild with {compiler}: {REMEDY}");
            }
            println!("{path} matches its sources, byte for byte");
            Ok(Some(toolchain))
        }
        Err(reason) if strict => Err(reason.context(format!("cannot rebuild {path} to compare its bytes"))),
        Err(reason) => {
            println!("{path} matches its manifest; bytes not compared with a rebuild: {reason:#}");
            Ok(None)
        }
    }
}

/// Builds the object for the `buckets` test suite and returns its path.
pub(crate) fn build_cells() -> Result<PathBuf> {
    Toolchain::find(None)?.build_file(CELLS)
}

/// Builds the minimal probe that the benchmark compares against, and returns its path.
pub(crate) fn build_floor() -> Result<PathBuf> {
    Toolchain::find(None)?.build_file(FLOOR)
}

/// Returns why eBPF objects cannot be built here, or `None` if they can.
pub(crate) fn missing() -> Option<String> {
    Toolchain::find(None).err().map(|error| format!("{error:#}"))
}

impl Toolchain {
    /// Finds the compiler of version `wanted`, or any compiler if that is `None`.
    fn find(wanted: Option<&str>) -> Result<Self> {
        let linker = linker()?;
        let candidates: Vec<_> = compilers().into_iter().filter(|(rustc, _)| rustc.is_file()).collect();
        let mut seen = Vec::new();
        for (rustc, cargo) in candidates {
            let Ok(verbose) = output(Command::new(&rustc).arg("-vV")) else { continue };
            let field =
                |name: &str| verbose.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            let version =
                format!("{}, LLVM {}", verbose.lines().next().unwrap_or_default(), field("LLVM version: "));
            let sysroot = output(Command::new(&rustc).args(["--print", "sysroot"]))?;
            let has_sources = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir();
            if has_sources && wanted.is_none_or(|wanted| wanted == version) {
                let llvm = field("LLVM version: ").split('.').next().unwrap_or_default();
                return Ok(Self { cargo, rustc, strip: strip(llvm)?, version, linker });
            }
            seen.push(if has_sources { version } else { format!("{version} without rust-src") });
        }
        let seen = if seen.is_empty() { "none".to_owned() } else { seen.join("; ") };
        match wanted {
            Some(wanted) => bail!("the object was built with {wanted}; installed: {seen}"),
            None => bail!(
                "no compiler with the sources of core (installed: {seen}): on Debian, apt-get install rustc-web cargo-web \
                 rust-web-src llvm-22; elsewhere, rustup toolchain install nightly --component rust-src"
            ),
        }
    }

    /// Builds an object. Its bytes do not depend on the directory.
    fn build(&self, binary: &str) -> Result<Vec<u8>> {
        fs::read(self.build_file(binary)?).with_context(|| format!("cannot read the built {binary}"))
    }

    fn build_file(&self, binary: &str) -> Result<PathBuf> {
        self.build_for(ARCHITECTURE, binary)
    }

    /// Fails if an object's programs differ between kernel architectures, as they would if a program read a function's arguments
    /// from registers. Compares all sections except the ones that name source files.
    fn check_other_architectures(&self, committed: &Committed) -> Result<()> {
        let programs = |object: &Path| {
            let programs = root().join("target/ebpf").join(committed.binary).with_extension("programs");
            let mut strip = Command::new(&self.strip);
            strip.args(["--remove-section=.BTF", "--remove-section=.BTF.ext"]);
            run(strip.arg(object).arg(&programs))?;
            fs::read(&programs).with_context(|| format!("cannot read {}", programs.display()))
        };
        let ours = programs(&root().join(committed.object))?;
        for other in OTHER_ARCHITECTURES {
            if programs(&self.build_for(other, committed.binary)?)? != ours {
                bail!(
                    "{} for kernels on {other} differs from the one on {ARCHITECTURE}: one object no longer serves both",
                    committed.object
                );
            }
            println!(
                "{} also serves kernels on {other}: a build for them has the same bytes",
                committed.object
            );
        }
        Ok(())
    }

    /// Builds an object for kernels of an architecture.
    fn build_for(&self, architecture: &str, binary: &str) -> Result<PathBuf> {
        let root = root();
        let home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
        let mut flags: Vec<String> = RUSTFLAGS.map(|flag| flag.replace(ARCHITECTURE, architecture)).to_vec();
        flags.push(format!("--remap-path-prefix={}=biolat", root.display()));
        if let Some(home) = home {
            flags.push(format!("--remap-path-prefix={}=cargo", home.display()));
        }
        // Shared by all architectures, so that host code such as procedural macros is built only once.
        let target_dir = root.join("target/ebpf");
        let mut command = Command::new(&self.cargo);
        command.current_dir(&root);
        command.args([
            "build",
            "--quiet",
            "--locked",
            "--release",
            "--package",
            "biolat-ebpf",
            "--bin",
            binary,
        ]);
        command.args(["-Zbuild-std=core", "--target", TARGET, "--target-dir"]).arg(&target_dir);
        for setting in PROFILE {
            command.args(["--config", setting]);
        }
        // xtask's own build environment must not leak into this build.
        for (name, _) in std::env::vars().filter(|(name, _)| {
            name.starts_with("CARGO_") && name != "CARGO_HOME"
                || name.starts_with("RUST") && name != "RUSTUP_HOME"
        }) {
            command.env_remove(name);
        }
        command
            .env("RUSTC", &self.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        run(&mut command)?;
        let built = target_dir.join(TARGET).join("release").join(binary);
        let stripped = match architecture {
            ARCHITECTURE => target_dir.join(format!("{binary}.o")),
            other => target_dir.join(format!("{binary}-{other}.o")),
        };
        run(Command::new(&self.strip).arg("--strip-debug").arg(&built).arg(&stripped))?;
        Ok(stripped)
    }
}

/// Returns candidate compilers with their cargo: the distribution's and rustup's.
fn compilers() -> Vec<(PathBuf, PathBuf)> {
    let mut found = vec![("/usr/bin/rustc".into(), "/usr/bin/cargo".into())];
    let home = std::env::var_os("RUSTUP_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".rustup")));
    let toolchains = home.and_then(|home| fs::read_dir(home.join("toolchains")).ok());
    for toolchain in toolchains.into_iter().flatten().flatten() {
        let bin = toolchain.path().join("bin");
        found.push((bin.join("rustc"), bin.join("cargo")));
    }
    found
}

fn linker() -> Result<PathBuf> {
    let own = root().join("target/tools/bin/bpf-linker");
    let linker =
        Some(own).filter(|path| path.is_file()).or_else(|| find("bpf-linker")).with_context(|| {
            "no bpf-linker: LLVM_SYS_221_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker --version 0.13.0 \
         --no-default-features --features llvm-22 --root target/tools"
        })?;
    let version = output(Command::new(&linker).arg("--version"))?;
    if version.trim() != LINKER {
        bail!("{} is {}, but the probe needs {LINKER}", linker.display(), version.trim());
    }
    Ok(linker)
}

fn strip(llvm: &str) -> Result<PathBuf> {
    let debian = PathBuf::from(format!("/usr/lib/llvm-{llvm}/bin/llvm-objcopy"));
    Some(debian)
        .filter(|path| path.is_file())
        .or_else(|| find("llvm-objcopy"))
        .ok_or_else(|| anyhow!("no llvm-objcopy: apt-get install llvm-{llvm}"))
}

/// Returns the manifest that this object would have if it were built now.
fn expected(committed: &Committed, object: &[u8], compiler: &str) -> Result<BTreeMap<String, String>> {
    let mut manifest = BTreeMap::from([
        ("object".to_owned(), hash(object)),
        ("compiler".to_owned(), compiler.to_owned()),
        ("linker".to_owned(), LINKER.to_owned()),
        ("flags".to_owned(), RUSTFLAGS.join(" ")),
        ("profile".to_owned(), PROFILE.join(" ")),
    ]);
    for source in SOURCES.iter().chain(committed.sources) {
        for path in files(&root().join(source))? {
            let name = path.strip_prefix(root())?.display().to_string();
            manifest.insert(format!("source {name}"), hash(&fs::read(&path)?));
        }
    }
    for dependency in dependencies()? {
        let (name, version) = dependency.split_once(' ').context("a dependency without a version")?;
        manifest.insert(format!("dependency {name}"), version.to_owned());
    }
    Ok(manifest)
}

/// Returns the probe's external dependencies, including procedural macros, with their versions from `Cargo.lock`.
fn dependencies() -> Result<Vec<String>> {
    let arguments = ["tree", "--locked", "--package", "biolat-ebpf", "--target", "all", "--prefix", "none"];
    let tree = output(cargo(&arguments).args(["--edges", "normal", "--format", "{p}"]))?;
    let mut dependencies: Vec<_> = tree
        .lines()
        .filter(|line| !line.contains(&format!("({}", root().display())))
        .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
        .collect();
    dependencies.sort();
    dependencies.dedup();
    Ok(dependencies)
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))? {
        found.extend(files(&entry?.path())?);
    }
    found.sort();
    Ok(found)
}

fn write_manifest(committed: &Committed, manifest: &BTreeMap<String, String>) -> String {
    let name = committed.object.rsplit('/').next().unwrap_or_default();
    let head = format!(
        "# Sources, compiler and flags of {name}. Written by `cargo xtask ebpf`; checked by `cargo xtask ebpf --check`.\n"
    );
    manifest.iter().fold(head, |text, (key, value)| text + key + ": " + value + "\n")
}

fn read_manifest(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(": "))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{COMMITTED, hash, read_manifest, write_manifest};

    #[test]
    fn manifest_round_trips() {
        let manifest = BTreeMap::from([
            ("flags".to_owned(), "--cfg x=\"y: z\"".to_owned()),
            ("source a/b.rs".to_owned(), hash(b"")),
        ]);
        assert_eq!(read_manifest(&write_manifest(&COMMITTED[0], &manifest)), manifest);
        assert_eq!(hash(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
