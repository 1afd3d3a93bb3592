//! `cargo xtask dist`: builds the release artifacts in `target/dist`: binaries, SBOMs, packages, the image and checksums.
//!
//! Builds are reproducible: a commit produces the same bytes in any directory.

mod image;
mod package;
mod release_info;
mod sbom;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    thread,
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    cargo_deb,
    folder::make_empty,
    hash::hash,
    process::{ROOT, output, root, run},
    static_build::{self, Architecture, PROGRAMS},
};

use release_info::ReleaseInfo;

/// The release artifacts for one architecture.
pub(crate) struct Artifacts {
    pub(crate) architecture: Architecture,
    /// Binaries in the order of [`PROGRAMS`].
    pub(crate) binaries: Vec<PathBuf>,
    sboms: Vec<PathBuf>,
    package: Option<PathBuf>,
}

/// All artifacts of a release.
pub(crate) struct Release {
    /// Artifacts for each architecture that can be built here.
    pub(crate) artifacts: Vec<Artifacts>,
    /// The image for all these architectures.
    pub(crate) image: PathBuf,
    sums: PathBuf,
}

/// Builds the artifacts for one architecture, or for all that can be built here, and prints their checksums.
pub(crate) fn dist(only: Option<&str>) -> Result<()> {
    let architectures = match only {
        Some(name) => vec![Architecture::named("--only", name)?],
        None => Architecture::ALL.to_vec(),
    };
    print!("{}", fs::read_to_string(build_all(&architectures)?.sums)?);
    Ok(())
}

/// Builds the release. Fails if an artifact is missing or too large, if a binary contains a path from this machine, or if a build
/// from a copy of the sources in another directory produces different bytes.
///
/// The copy is built for the host's architecture. It reuses the dependencies built for the release, whose sources are in the same
/// place for both. `whole` also rebuilds the dependencies, to find any that do not build reproducibly.
pub(crate) fn check(whole: bool) -> Result<()> {
    let info = ReleaseInfo::find()?;
    let ours = Architecture::of_host()?;
    build_all(&[ours])?;
    let here = root().join("target/dist-here");
    move_folder(&root().join("target/dist"), &here)?;
    // Before the next build, which writes to the directory that is copied.
    make_copy(ours, whole)?;
    // Build the copy and the other architectures in parallel: the last crate of each build uses only one CPU.
    let (release, there) = thread::scope(|scope| {
        let copy = scope.spawn(|| build_copy(&info, ours));
        let release = build();
        let there = copy.join().map_err(|_| anyhow!("the thread that builds the copy panicked"));
        Ok::<_, anyhow::Error>((release?, there??))
    })?;
    if release.artifacts.len() < Architecture::ALL.len() {
        bail!("an architecture was skipped: see above");
    }
    for artifacts in &release.artifacts {
        artifacts.package()?;
        for ((path, sbom_path), max) in
            artifacts.binaries.iter().zip(&artifacts.sboms).zip(artifacts.architecture.max_bytes)
        {
            check_binary(path, sbom_path, max)?;
        }
    }
    let sums = compare(&here, &there)?;
    fs::remove_dir_all(&here)?;
    fs::remove_dir_all(&there)?;
    print!("identical builds in two directories:\n{sums}");
    Ok(())
}

/// Returns the checksums of two builds. If they differ, shows which files differ, including files inside packages, and leaves
/// both builds for a closer look.
fn compare(here: &Path, there: &Path) -> Result<String> {
    let sums = |folder: &Path| fs::read_to_string(folder.join("SHA256SUMS"));
    let (expected, found) = (sums(here)?, sums(there)?);
    if expected == found {
        return Ok(expected);
    }
    for folder in [here, there] {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                let content = path.with_extension("content");
                run(Command::new("dpkg-deb").arg("--raw-extract").arg(&path).arg(&content))?;
                run(Command::new("gzip").args(["--decompress", "--recursive"]).arg(&content))?;
            }
        }
    }
    let _ = run(Command::new("diff").args(["--recursive", "--unified=1"]).args([here, there]));
    bail!("builds in two directories differ:\n{expected}\n{found}")
}

/// Moves a directory, replacing an older one.
fn move_folder(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    fs::rename(from, to).with_context(|| format!("cannot move {} to {}", from.display(), to.display()))
}

fn check_binary(path: &Path, sbom_path: &Path, max: u64) -> Result<()> {
    let (binary, name) = (fs::read(path)?, path.display());
    println!("{name}: {} bytes, at most {max}", binary.len());
    if binary.len() as u64 > max {
        bail!("{name} has {} bytes, more than {max}", binary.len());
    }
    sbom::check(sbom_path, &binary)?;
    for local in static_build::local_paths()? {
        let local = local.to_string_lossy();
        if binary.windows(local.len()).any(|part| part == local.as_bytes()) {
            bail!("{name} contains the path {local}");
        }
    }
    Ok(())
}

/// Builds the image for the host's architecture only, in a directory.
pub(crate) fn image_for_host(folder: &Path) -> Result<PathBuf> {
    let ours = Architecture::of_host()?;
    static_build::build_programs(ours)?;
    let binaries = PROGRAMS.map(|program| static_build::folder(ours).join(program.name));
    image::write(&[(ours, &binaries)], &ReleaseInfo::find()?, folder)
}

/// Returns the release, which is built only once.
pub(crate) fn release() -> Result<&'static Release> {
    static RELEASE: OnceLock<Release> = OnceLock::new();
    if RELEASE.get().is_none() {
        let _ = RELEASE.set(build()?);
    }
    RELEASE.get().context("no release was built")
}

/// Builds the release for all architectures that can be built here.
fn build() -> Result<Release> {
    build_all(&Architecture::ALL)
}

fn build_all(architectures: &[Architecture]) -> Result<Release> {
    let info = ReleaseInfo::find()?;
    let folder = root().join("target/dist");
    make_empty(&folder)?;
    let mut artifacts = Vec::new();
    for &architecture in architectures {
        match architecture.missing() {
            None => artifacts.push(build_one(architecture, &info, &folder)?),
            Some(reason) => println!("skipped: {}: {reason}", architecture.name),
        }
    }
    let binaries: Vec<_> =
        artifacts.iter().map(|each| (each.architecture, each.binaries.as_slice())).collect();
    let image = image::write(&binaries, &info, &folder)?;
    let sums = folder.join("SHA256SUMS");
    let mut lines = String::new();
    let files =
        artifacts.iter().flat_map(|each| each.binaries.iter().chain(&each.sboms).chain(&each.package));
    for file in files.chain([&image]) {
        let name = file.file_name().context("no file name")?.to_string_lossy();
        lines += &format!("{}  {name}\n", hash(&fs::read(file)?));
    }
    fs::write(&sums, lines)?;
    Ok(Release { artifacts, image, sums })
}

fn build_one(architecture: Architecture, info: &ReleaseInfo, folder: &Path) -> Result<Artifacts> {
    static_build::build_programs(architecture)?;
    let (mut binaries, mut sboms) = (Vec::new(), Vec::new());
    for program in PROGRAMS {
        let built = static_build::folder(architecture).join(program.name);
        let binary = folder.join(format!("{}-{}-linux-{}", program.name, info.version, architecture.name));
        // Copied at once: builds of tests put the same programs, with other features of their dependencies, into this directory.
        fs::copy(&built, &binary).with_context(|| format!("cannot copy {}", built.display()))?;
        binaries.push(binary);
    }
    for (program, binary) in PROGRAMS.into_iter().zip(&binaries) {
        sboms.push(sbom::write(program, binary, architecture, info)?);
    }
    let package = match cargo_deb::missing() {
        None => Some(package::write(architecture, info, folder, &binaries)?),
        Some(reason) => {
            println!("skipped: the package for {}: {reason}", architecture.name);
            None
        }
    };
    Ok(Artifacts { architecture, binaries, sboms, package })
}

impl Artifacts {
    pub(crate) fn package(&self) -> Result<&Path> {
        self.package
            .as_deref()
            .with_context(|| format!("no package for {} was built: see above", self.architecture.name))
    }
}

impl Release {
    /// Returns the artifacts for the host's architecture.
    pub(crate) fn for_host(&self) -> Result<&Artifacts> {
        let ours = Architecture::of_host()?;
        let artifacts = self.artifacts.iter().find(|each| each.architecture == ours);
        artifacts.context("the release has no artifacts for this machine's architecture")
    }
}

/// Copies the sources and, unless `whole`, the dependencies built for an architecture.
fn make_copy(architecture: Architecture, whole: bool) -> Result<()> {
    let copy = static_build::copy();
    make_empty(&copy)?;
    let files = output(Command::new("git").args(["ls-files", "--cached", "-z"]).current_dir(root()))?;
    for file in files.split_terminator('\0') {
        let to = copy.join(file);
        fs::create_dir_all(to.parent().context("no parent directory")?)?;
        fs::copy(root().join(file), to).with_context(|| format!("cannot copy {file}"))?;
    }
    let built = static_build::target_dir(architecture);
    let to = copy.join(built.strip_prefix(root())?);
    fs::create_dir_all(&to)?;
    std::os::unix::fs::symlink(root().join("target/tools"), copy.join("target/tools"))?;
    if !whole {
        // "release" contains the build scripts and procedural macros.
        for part in ["release", architecture.target] {
            run(Command::new("cp").arg("--archive").arg(built.join(part)).arg(&to))?;
        }
    }
    Ok(())
}

/// Builds one architecture in the copy, removes the copy and returns the directory of the artifacts.
fn build_copy(info: &ReleaseInfo, architecture: Architecture) -> Result<PathBuf> {
    let copy = static_build::copy();
    let mut command = Command::new(std::env::current_exe().context("cannot find xtask's own executable")?);
    command.args(["dist", "--only", architecture.name]).stdout(std::process::Stdio::null());
    command.env(ROOT, &copy).env(static_build::COPY_OF, root());
    command.env("SOURCE_DATE_EPOCH", info.epoch.to_string()).env("BIOLAT_REVISION", &info.revision);
    run(&mut command)?;
    let built = root().join("target/dist-copy");
    move_folder(&copy.join("target/dist"), &built)?;
    fs::remove_dir_all(&copy)?;
    Ok(built)
}
