//! Kernels: the newest cloud images of the distribution's archive, kept in `target/tools`, or one that a user names.
//!
//! The package tools do the work, with folders of their own, so that it takes no root.

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

/// Releases of Debian whose kernels are tried, and the series of their kernels.
const RELEASES: [(&str, &str); 2] = [("bookworm", "6.1"), ("trixie", "6.12")];

/// The package that depends on the newest image.
const META: &str = "linux-image-cloud-amd64";

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where a package is until it is all there.
const PARTIAL: &str = "half";

/// A kernel to boot.
#[derive(Clone)]
pub(crate) struct Kernel {
    /// Its release, as `uname -r` has it.
    pub(crate) release: String,
    pub(crate) image: PathBuf,
    /// The folder that holds `modules.dep`.
    pub(crate) modules: PathBuf,
}

impl Kernel {
    /// A kernel that stands somewhere on this machine.
    pub(crate) fn from_files(image: &Path, modules: &Path) -> Result<Self> {
        // The emulator runs in a folder of its own.
        let (image, modules) = (&std::path::absolute(image)?, &std::path::absolute(modules)?);
        fs::File::open(image).with_context(|| format!("--kernel: cannot read {}", image.display()))?;
        if !modules.join("modules.dep").is_file() {
            bail!(
                "--modules {}: no modules.dep in it: give the folder of one release, as /lib/modules/6.12.0, and run \
                 depmod on it",
                modules.display()
            );
        }
        let release = modules.file_name().context("--modules: no folder's name")?.to_string_lossy();
        Ok(Self { release: release.into_owned(), image: image.to_path_buf(), modules: modules.to_path_buf() })
    }

    /// The archive's kernels, of one series if one is wanted.
    pub(crate) fn from_debian(series: Option<&str>) -> Result<Vec<Self>> {
        let wanted: Vec<_> =
            RELEASES.into_iter().filter(|(_, has)| series.is_none_or(|wanted| wanted == *has)).collect();
        if wanted.is_empty() {
            let known: Vec<_> = RELEASES.into_iter().map(|(_, series)| series).collect();
            bail!("--series {}: known are {}", series.unwrap_or_default(), known.join(", "));
        }
        wanted.into_iter().map(|(suite, _)| newest(suite)).collect()
    }
}

/// The newest image of a release; the one that was fetched last if the archive cannot be reached.
fn newest(release: &str) -> Result<Kernel> {
    let folder = tool("kernels").join(release);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // Another run may want the same kernel.
    let lock = fs::File::create(folder.join("lock"))?;
    lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
    let place = newest_fetched(release, &folder).or_else(|reason| {
        let kept = fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
        let kept = kept.filter(|path| path.join("boot").is_dir() && !path.ends_with(PARTIAL));
        let latest = kept.max_by_key(|path| fs::metadata(path).and_then(|data| data.modified()).ok());
        let Some(latest) = latest else {
            return Err(reason.context(format!("cannot get a kernel of {release} from the archive")));
        };
        println!("{release}: the archive cannot be asked ({reason:#}): {} is used", latest.display());
        Ok(latest)
    })?;
    unpacked(&place)
}

fn newest_fetched(release: &str, folder: &Path) -> Result<PathBuf> {
    prepare(release, folder)?;
    output(apt("apt-get", folder).args(["-qq", "update"]))?;
    let depends = output(apt("apt-cache", folder).args(["depends", META]))?;
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.with_context(|| format!("{META} of {release} depends on no image"))?;
    let place = folder.join(package);
    if !place.is_dir() {
        fetch(folder, package)?;
    }
    Ok(place)
}

/// Makes a folder in which package tools see one release of the archive and nothing else.
fn prepare(release: &str, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("lists/partial"))?;
    fs::create_dir_all(folder.join("cache/archives/partial"))?;
    let line = |mirror: String, suite: &str| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
    let main = debian_mirror("Debian")?.context(
        "apt knows of no mirror of Debian's archive: run apt-get update, or name a kernel with --kernel and --modules",
    )?;
    // Security updates come from a mirror of their own, where there is one.
    let security =
        debian_mirror("Debian-Security")?.map(|mirror| line(mirror, &format!("{release}-security")));
    fs::write(folder.join("sources.list"), line(main, release) + &security.unwrap_or_default())?;
    Ok(fs::write(folder.join("status"), "")?)
}

/// A package tool that sees what such a folder says.
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
    // As whoever we are; an archive that cannot be reached is an error.
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

/// Where this machine gets those of its packages from that Debian makes under this label.
pub(crate) fn debian_mirror(label: &str) -> Result<Option<String>> {
    let format = ["indextargets", "--format", "$(LABEL) $(REPO_URI)", "Origin: Debian"];
    let targets = output(Command::new("apt-get").args(format))?;
    let found = targets.lines().filter_map(|line| line.split_once(' ')).find(|(found, _)| *found == label);
    Ok(found.map(|(_, mirror)| mirror.to_owned()))
}

/// Downloads and unpacks a package, all of it or nothing.
fn fetch(folder: &Path, package: &str) -> Result<()> {
    println!("fetching {package}");
    let (downloads, half) = (folder.join("downloads"), folder.join(PARTIAL));
    for place in [&downloads, &half] {
        make_empty(place)?;
    }
    let mut download = apt("apt-get", folder);
    output(download.args(["-qq", "download", package]).current_dir(&downloads))?;
    let file = fs::read_dir(&downloads)?.flatten().next().context("nothing was downloaded")?.path();
    run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&half))?;
    fs::remove_dir_all(&downloads)?;
    // Where newer packages have their modules is not where depmod looks for them.
    if !half.join("lib").exists() {
        std::os::unix::fs::symlink("usr/lib", half.join("lib"))?;
    }
    let depmod = crate::process::find("depmod").context("no depmod")?;
    run(Command::new(depmod).arg("-b").arg(&half).arg(release_in(&half)?))?;
    Ok(fs::rename(half, folder.join(package))?)
}

fn release_in(place: &Path) -> Result<String> {
    let modules = fs::read_dir(place.join("lib/modules"))?.flatten().next();
    Ok(modules.context("a package without modules")?.file_name().to_string_lossy().into_owned())
}

fn unpacked(place: &Path) -> Result<Kernel> {
    let release = release_in(place)?;
    let image = place.join("boot").join(format!("vmlinuz-{release}"));
    Kernel::from_files(&image, &place.join("lib/modules").join(&release))
}
