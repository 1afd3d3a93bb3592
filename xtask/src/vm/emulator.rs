//! Finds an emulator for a machine. Machines with more than 255 CPUs need x2APIC, which QEMU can emulate without virtualization
//! from version 9 on. If the installed QEMU is older, a newer one from Debian's backports is kept in `target/tools`. It uses the
//! installed QEMU's libraries and BIOS.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail};

use super::{archive::Archive, platform::Platform};
use crate::{
    folder::make_empty,
    host::tool,
    process::{find, output},
    static_build::Architecture,
};

/// First version of QEMU that emulates x2APIC.
const X2APIC: u32 = 9;

const PACKAGES: [&str; 3] = ["qemu-system-x86", "qemu-system-common", "qemu-system-data"];

/// A program that emulates a machine.
#[derive(Clone)]
pub(crate) struct Emulator {
    program: PathBuf,
    /// Directory with the emulator's data files, unless the emulator is installed.
    data: Option<PathBuf>,
}

impl Emulator {
    /// Returns the installed emulator for machines of this architecture.
    pub(crate) fn installed(architecture: Architecture) -> Result<Self> {
        let (name, package) = Platform::of(architecture).emulator;
        let program = find(name).with_context(|| format!("no {name}: apt-get install {package}"))?;
        Ok(Self { program, data: None })
    }

    /// Returns an emulator for x86 machines with x2APIC.
    pub(super) fn with_x2apic() -> Result<Self> {
        let installed = Self::installed(Architecture::AMD64)?;
        if installed.version()? >= X2APIC {
            return Ok(installed);
        }
        let other = Self::from_backports().context(format!(
            "cannot get QEMU {X2APIC} or later, which machines with many CPUs need: the installed one is older"
        ))?;
        match other.version()? {
            version if version < X2APIC => bail!(
                "{}: version {version}, but machines with many CPUs need {X2APIC}: install QEMU {X2APIC} or later",
                other.program.display()
            ),
            _ => Ok(other),
        }
    }

    /// Returns the emulator from the installed Debian's backports, downloading it the first time.
    fn from_backports() -> Result<Self> {
        let architecture = Architecture::of_host()?;
        let suite = format!("{}-backports", debian_codename()?);
        let folder = tool("emulators").join(&suite);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        // A concurrent run may download it too.
        let lock = fs::File::create(folder.join("lock"))?;
        lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
        let place = folder.join("unpacked");
        if !place.is_dir() {
            println!("downloading QEMU from {suite}");
            let partial = folder.join("partial");
            make_empty(&partial)?;
            let packages = PACKAGES.map(str::to_owned);
            Archive::update(&folder, &suite, architecture)?.unpack(&packages, &partial)?;
            fs::rename(partial, &place)?;
        }
        let program = place.join("usr/bin").join(Platform::of(Architecture::AMD64).emulator.0);
        Ok(Self { program, data: Some(place.join("usr/share/qemu")) })
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(data) = &self.data {
            command.arg("-L").arg(data);
        }
        command
    }

    fn version(&self) -> Result<u32> {
        let text = output(self.command().arg("--version"))?;
        major_version(&text).with_context(|| format!("{}: unknown version: {text}", self.program.display()))
    }
}

/// Returns the major version, such as 7 for `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)`.
fn major_version(text: &str) -> Option<u32> {
    text.split_once("version ")?.1.split('.').next()?.parse().ok()
}

/// Returns the code name of the installed Debian, such as `bookworm`.
fn debian_codename() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    if value("ID").as_deref() != Some("debian") {
        bail!("this is not Debian, so there are no backports to get it from: install it");
    }
    value("VERSION_CODENAME").context("/etc/os-release has no code name of a Debian release")
}

#[cfg(test)]
mod tests {
    use super::major_version;

    #[test]
    fn parses_major_version() {
        let debian =
            "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c) 2003-2022\n";
        assert_eq!(major_version(debian), Some(7));
        assert_eq!(major_version("QEMU emulator version 10.0.2\n"), Some(10));
        assert_eq!(major_version("qemu"), None);
    }
}
