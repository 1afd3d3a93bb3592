//! Finds kernels to boot: the newest in Debian's archive, cached in `target/tools`, or one given on the command line.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::archive::Archive;
use crate::{folder::make_empty, host::tool, process::run, static_build::Architecture};

/// A series of Debian kernels.
#[derive(Clone, Copy)]
struct Series {
    name: &'static str,
    /// Archive suite that contains it.
    suite: &'static str,
    flavour: Flavour,
    is_default: bool,
}

/// Configuration of a kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flavour {
    /// For virtual machines.
    Cloud,
    /// For arm64, with 16 KiB pages. Debian has none with 64 KiB pages.
    LargePages,
}

/// The series, oldest first.
const SERIES: [Series; 5] = [
    Series { name: "5.10", suite: "bullseye", flavour: Flavour::Cloud, is_default: false },
    Series { name: "6.1", suite: "bookworm", flavour: Flavour::Cloud, is_default: true },
    Series { name: "6.12", suite: "trixie", flavour: Flavour::Cloud, is_default: true },
    Series { name: "6.12-16k", suite: "trixie", flavour: Flavour::LargePages, is_default: false },
    // Its version changes every few months.
    Series { name: "newest", suite: "trixie-backports", flavour: Flavour::Cloud, is_default: false },
];

/// Selects series.
#[derive(Clone, Copy)]
pub(crate) enum Selection<'a> {
    Default,
    All,
    Named(&'a str),
}

/// Temporary name of the directory in which a package is unpacked.
const PARTIAL: &str = "partial";

/// A kernel to boot.
#[derive(Clone)]
pub(crate) struct Kernel {
    pub(crate) architecture: Architecture,
    /// Output of `uname -r`.
    pub(crate) release: String,
    pub(crate) image: PathBuf,
    /// Directory that contains `modules.dep`.
    pub(crate) modules: PathBuf,
}

impl Kernel {
    /// Returns a kernel from an image and a modules directory on this machine.
    pub(crate) fn from_files(architecture: Architecture, image: &Path, modules: &Path) -> Result<Self> {
        // Absolute paths, because the emulator runs in another directory.
        let (image, modules) = (&std::path::absolute(image)?, &std::path::absolute(modules)?);
        fs::File::open(image).with_context(|| format!("--kernel: cannot read {}", image.display()))?;
        if !modules.join("modules.dep").is_file() {
            bail!(
                "--modules {}: no modules.dep: give the directory of one release, such as /lib/modules/6.12.0, and run \
                 depmod on it",
                modules.display()
            );
        }
        let release = modules.file_name().context("--modules: no directory name")?.to_string_lossy();
        Ok(Self {
            architecture,
            release: release.into_owned(),
            image: image.to_path_buf(),
            modules: modules.to_path_buf(),
        })
    }

    /// Returns the selected kernels from Debian's archive, newest last.
    pub(crate) fn from_debian(architecture: Architecture, selection: Selection<'_>) -> Result<Vec<Self>> {
        select(architecture, selection)?.into_iter().map(|series| newest(series, architecture)).collect()
    }
}

/// Returns the names of the selected series, newest last.
pub(crate) fn names(architecture: Architecture, selection: Selection<'_>) -> Result<Vec<&'static str>> {
    Ok(select(architecture, selection)?.into_iter().map(|series| series.name).collect())
}

fn select(architecture: Architecture, selection: Selection<'_>) -> Result<Vec<Series>> {
    let available = SERIES.into_iter().filter(|series| series.has(architecture));
    let selected: Vec<_> = available
        .clone()
        .filter(|series| match selection {
            Selection::Default => series.is_default,
            Selection::All => true,
            Selection::Named(name) => series.name == name,
        })
        .collect();
    if let (Selection::Named(name), true) = (selection, selected.is_empty()) {
        let names: Vec<_> = available.map(|series| series.name).collect();
        bail!("--series {name}: expected one of {}", names.join(", "));
    }
    Ok(selected)
}

impl Series {
    fn has(self, architecture: Architecture) -> bool {
        self.flavour == Flavour::Cloud || architecture == Architecture::ARM64
    }

    /// Returns the package that depends on the newest kernel package.
    fn meta_package(self, architecture: Architecture) -> String {
        match self.flavour {
            Flavour::Cloud => format!("linux-image-cloud-{}", architecture.name),
            Flavour::LargePages => format!("linux-image-{}-16k", architecture.name),
        }
    }

    /// Returns its directory in `target/tools`.
    fn folder(self, architecture: Architecture) -> PathBuf {
        let name = match (architecture, self.flavour) {
            (Architecture::AMD64, _) => self.suite.to_owned(),
            (_, Flavour::Cloud) => format!("{}-{}", self.suite, architecture.name),
            (_, Flavour::LargePages) => format!("{}-{}-16k", self.suite, architecture.name),
        };
        tool("kernels").join(name)
    }
}

/// Returns the newest kernel of a series or, if the archive is unreachable, the one downloaded last.
fn newest(series: Series, architecture: Architecture) -> Result<Kernel> {
    let (name, folder) = (series.name, series.folder(architecture));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // A concurrent run may download the same kernel.
    let lock = fs::File::create(folder.join("lock"))?;
    lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
    let place = newest_downloaded(series, architecture, &folder).or_else(|reason| {
        let cached = fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
        let cached = cached.filter(|path| path.join("lib/modules").is_dir() && !path.ends_with(PARTIAL));
        let latest = cached.max_by_key(|path| fs::metadata(path).and_then(|data| data.modified()).ok());
        let Some(latest) = latest else {
            return Err(reason.context(format!("cannot download a {name} kernel")));
        };
        println!("{name}: cannot reach Debian's archive ({reason:#}); using {}", latest.display());
        Ok(latest)
    })?;
    unpacked(architecture, &place)
}

fn newest_downloaded(series: Series, architecture: Architecture, folder: &Path) -> Result<PathBuf> {
    let archive = Archive::update(folder, series.suite, architecture)?;
    let meta = series.meta_package(architecture);
    let image = archive.dependencies(&meta)?.into_iter().find(|package| package.starts_with("linux-image-"));
    let image = image.with_context(|| format!("{meta} of {} depends on no kernel package", series.suite))?;
    let place = folder.join(&image);
    if !place.is_dir() {
        download(&archive, &image, folder)?;
    }
    Ok(place)
}

/// Downloads and unpacks a kernel package, atomically.
fn download(archive: &Archive<'_>, package: &str, folder: &Path) -> Result<()> {
    println!("downloading {package}");
    let partial = folder.join(PARTIAL);
    make_empty(&partial)?;
    // Newer kernels have separate packages for the image, the modules and the lists of modules.
    let release = package.strip_prefix("linux-image-").context("not a kernel package")?;
    let parts = archive.dependencies(package)?.into_iter().filter(|part| part.ends_with(release));
    let packages: Vec<_> = std::iter::once(package.to_owned()).chain(parts).collect();
    archive.unpack(&packages, &partial)?;
    // Newer packages have their modules in /usr/lib, but depmod looks in /lib.
    if !partial.join("lib").exists() {
        std::os::unix::fs::symlink("usr/lib", partial.join("lib"))?;
    }
    let depmod = crate::process::find("depmod").context("no depmod")?;
    run(Command::new(depmod).arg("-b").arg(&partial).arg(release_in(&partial)?))?;
    Ok(fs::rename(partial, folder.join(package))?)
}

fn release_in(place: &Path) -> Result<String> {
    let modules = fs::read_dir(place.join("lib/modules"))?.flatten().next();
    Ok(modules.context("the package has no modules")?.file_name().to_string_lossy().into_owned())
}

fn unpacked(architecture: Architecture, place: &Path) -> Result<Kernel> {
    let release = release_in(place)?;
    let modules = place.join("lib/modules").join(&release);
    // Newer packages have the image next to the modules.
    let images = [modules.join("vmlinuz"), place.join("boot").join(format!("vmlinuz-{release}"))];
    let image =
        images.into_iter().find(|image| image.is_file()).context("the package has no kernel image")?;
    Kernel::from_files(architecture, &image, &modules)
}
