//! Kernels to boot: the newest cloud kernels of Debian's archive, cached in `target/tools`, or one given on the command line.
//!
//! apt downloads them, with its own directories, so that root is not needed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    folder::make_empty,
    host::tool,
    process::{output, run},
};

/// A series of Debian's kernels.
struct Series {
    name: &'static str,
    /// The part of the archive that has it.
    suite: &'static str,
    is_default: bool,
}

/// The oldest first.
const SERIES: [Series; 4] = [
    Series { name: "5.10", suite: "bullseye", is_default: false },
    Series { name: "6.1", suite: "bookworm", is_default: true },
    Series { name: "6.12", suite: "trixie", is_default: true },
    // Its number changes every few months.
    Series { name: "newest", suite: "trixie-backports", is_default: false },
];

/// Selects series.
#[derive(Clone, Copy)]
pub(crate) enum Selection<'a> {
    Default,
    All,
    Named(&'a str),
}

/// The package that depends on the newest kernel package.
const META: &str = "linux-image-cloud-amd64";

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The directory a package is unpacked in before it gets its final name.
const PARTIAL: &str = "partial";

/// A kernel to boot.
#[derive(Clone)]
pub(crate) struct Kernel {
    /// The release, as `uname -r` prints it.
    pub(crate) release: String,
    pub(crate) image: PathBuf,
    /// The directory that holds `modules.dep`.
    pub(crate) modules: PathBuf,
}

impl Kernel {
    /// A kernel from an image and a modules directory on this machine.
    pub(crate) fn from_files(image: &Path, modules: &Path) -> Result<Self> {
        // The emulator runs in another directory.
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
        Ok(Self { release: release.into_owned(), image: image.to_path_buf(), modules: modules.to_path_buf() })
    }

    /// The kernels of Debian's archive, the newest last.
    pub(crate) fn from_debian(selection: Selection<'_>) -> Result<Vec<Self>> {
        let selected: Vec<_> = SERIES
            .into_iter()
            .filter(|series| match selection {
                Selection::Default => series.is_default,
                Selection::All => true,
                Selection::Named(name) => series.name == name,
            })
            .collect();
        if let (Selection::Named(name), true) = (selection, selected.is_empty()) {
            bail!("--series {name}: expected one of {}", SERIES.map(|series| series.name).join(", "));
        }
        selected.into_iter().map(|series| newest(series.suite)).collect()
    }
}

/// The newest kernel of a suite, or the one downloaded last if the archive is unreachable.
fn newest(suite: &str) -> Result<Kernel> {
    let folder = tool("kernels").join(suite);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // A concurrent run may download the same kernel.
    let lock = fs::File::create(folder.join("lock"))?;
    lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
    let place = newest_downloaded(suite, &folder).or_else(|reason| {
        let kept = fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
        let kept = kept.filter(|path| path.join("lib/modules").is_dir() && !path.ends_with(PARTIAL));
        let latest = kept.max_by_key(|path| fs::metadata(path).and_then(|data| data.modified()).ok());
        let Some(latest) = latest else {
            return Err(reason.context(format!("cannot download a kernel of {suite}")));
        };
        println!("{suite}: cannot reach Debian's archive ({reason:#}): using {}", latest.display());
        Ok(latest)
    })?;
    unpacked(&place)
}

fn newest_downloaded(suite: &str, folder: &Path) -> Result<PathBuf> {
    prepare(suite, folder)?;
    output(apt("apt-get", folder).args(["-qq", "update"]))?;
    let image = dependencies(folder, META)?.into_iter().find(|package| package.starts_with("linux-image-"));
    let image = image.with_context(|| format!("{META} of {suite} depends on no kernel package"))?;
    let place = folder.join(&image);
    if !place.is_dir() {
        download(folder, &image)?;
    }
    Ok(place)
}

fn dependencies(folder: &Path, package: &str) -> Result<Vec<String>> {
    let lines = output(apt("apt-cache", folder).args(["depends", package]))?;
    Ok(lines.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned).collect())
}

/// Prepares a directory in which apt sees one suite of Debian's archive and nothing else.
fn prepare(suite: &str, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("lists/partial"))?;
    fs::create_dir_all(folder.join("cache/archives/partial"))?;
    let line = |mirror: String, suite: &str| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
    let main = debian_mirror("Debian")?.context(
        "apt has no mirror of Debian's archive: run apt-get update, or give a kernel with --kernel and --modules",
    )?;
    // Security updates have another mirror, if the machine has one. Backports have none.
    let security = if suite.ends_with("-backports") { None } else { debian_mirror("Debian-Security")? };
    let security = security.map(|mirror| line(mirror, &format!("{suite}-security")));
    fs::write(folder.join("sources.list"), line(main, suite) + &security.unwrap_or_default())?;
    Ok(fs::write(folder.join("status"), "")?)
}

/// An apt command that uses the directory from [`prepare`].
fn apt(program: &str, folder: &Path) -> Command {
    let nothing = PathBuf::from("/dev/null");
    let places = [
        ("Dir::Etc::sourcelist", folder.join("sources.list")),
        ("Dir::Etc::sourceparts", nothing.clone()),
        ("Dir::Etc::preferences", nothing.clone()),
        ("Dir::Etc::preferencesparts", nothing),
        ("Dir::State::status", folder.join("status")),
        ("Dir::State::lists", folder.join("lists")),
        ("Dir::Cache", folder.join("cache")),
    ];
    let mut command = Command::new(program);
    for (option, path) in places {
        command.arg("-o").arg(format!("{option}={}", path.display()));
    }
    // Run as the current user, and fail if the archive is unreachable.
    for option in [
        "APT::Sandbox::User=root",
        "APT::Default-Release=",
        "APT::Update::Error-Mode=any",
        "Acquire::Languages=none",
        "Acquire::Retries=3",
    ] {
        command.args(["-o", option]);
    }
    command.env("LC_ALL", "C");
    command
}

/// The mirror from which this machine gets Debian's packages of this label.
pub(crate) fn debian_mirror(label: &str) -> Result<Option<String>> {
    let format = ["indextargets", "--format", "$(LABEL) $(REPO_URI)", "Origin: Debian"];
    let targets = output(Command::new("apt-get").args(format))?;
    let found = targets.lines().filter_map(|line| line.split_once(' ')).find(|(found, _)| *found == label);
    Ok(found.map(|(_, mirror)| mirror.to_owned()))
}

/// Downloads and unpacks a kernel package, atomically.
fn download(folder: &Path, package: &str) -> Result<()> {
    println!("downloading {package}");
    let (downloads, partial) = (folder.join("downloads"), folder.join(PARTIAL));
    for place in [&downloads, &partial] {
        make_empty(place)?;
    }
    // Newer kernels have image, modules and lists of modules in packages of their own.
    let release = package.strip_prefix("linux-image-").context("no kernel package")?;
    let parts = dependencies(folder, package)?.into_iter().filter(|part| part.ends_with(release));
    let mut download = apt("apt-get", folder);
    download.args(["-qq", "download", package]).args(parts).current_dir(&downloads);
    output(&mut download)?;
    for file in fs::read_dir(&downloads)?.flatten() {
        run(Command::new("dpkg-deb").arg("-x").arg(file.path()).arg(&partial))?;
    }
    fs::remove_dir_all(&downloads)?;
    // Newer packages have their modules in /usr/lib, and depmod looks in /lib.
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

fn unpacked(place: &Path) -> Result<Kernel> {
    let release = release_in(place)?;
    let modules = place.join("lib/modules").join(&release);
    // Newer packages have the image beside the modules.
    let images = [modules.join("vmlinuz"), place.join("boot").join(format!("vmlinuz-{release}"))];
    let image =
        images.into_iter().find(|image| image.is_file()).context("the package has no kernel image")?;
    Kernel::from_files(&image, &modules)
}
