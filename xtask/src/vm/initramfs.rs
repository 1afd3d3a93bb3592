//! Builds the guest's initramfs: the tests, biolat's programs, kernel modules and a few other programs.
//!
//! An initramfs can consist of several archives. Those that do not depend on the tests are built once.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    env, fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use super::{kernels::Kernel, programs::Programs};
use crate::{
    folder::make_empty,
    host::{self, tool},
    process::{output, run},
    static_build::{self, Architecture, static_cargo},
    suites,
};

/// Drivers that older kernels lack. Tests that need one are skipped there.
const RECENT: [&str; 1] = ["ublk_drv"];

/// Modules that the guest needs unless they are built in. `init.sh` loads some, and tests load the rest.
const MODULES: [&str; 33] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_scsi",
    "vmw_pvscsi",
    "nvme",
    "nvme-tcp",
    "nvmet-tcp",
    "sd_mod",
    "sg",
    "configfs",
    "null_blk",
    "nbd",
    "scsi_debug",
    "loop",
    "brd",
    "zram",
    "lzo-rle",
    "dm-mod",
    "dm-crypt",
    "dm-delay",
    "dm-multipath",
    "dm-round-robin",
    "dm-snapshot",
    "dm-thin-pool",
    "raid0",
    "raid1",
    "raid10",
    "raid456",
    "bfq",
    "mq-deadline",
    "ext4",
    "xfs",
    "btrfs",
];

/// Modules that file systems and dm-crypt request by the name of an algorithm, so `modules.dep` does not list them.
const ALGORITHMS: [&str; 7] =
    ["crc32c_generic", "xxhash_generic", "blake2b_generic", "xts", "ecb", "aes_generic", "aes"];

/// Modules that Debian's arm64 kernels lack. Tests that need them are skipped.
const NOT_FOR_ARM64: [&str; 2] = ["vmw_pvscsi", "scsi_debug"];

const INIT: &str = include_str!("init.sh");
const SWITCH: &str = include_str!("switch.sh");

/// A cpio archive, assembled in a directory.
struct CpioArchive<'a> {
    folder: &'a Path,
}

impl<'a> CpioArchive<'a> {
    /// Begins an archive in a directory, which is emptied first.
    fn begin(folder: &'a Path) -> Result<Self> {
        make_empty(folder)?;
        Ok(Self { folder })
    }

    fn place(&self, place: &Path) -> Result<PathBuf> {
        let path = self.folder.join(place.strip_prefix("/").unwrap_or(place));
        fs::create_dir_all(path.parent().context("no parent directory")?)?;
        Ok(path)
    }

    fn add(&self, file: &Path, place: &Path) -> Result<()> {
        fs::copy(file, self.place(place)?).with_context(|| format!("cannot copy {}", file.display()))?;
        Ok(())
    }

    /// Adds a program and its libraries.
    fn add_program(&self, programs: &Programs, file: &Path, place: &Path) -> Result<()> {
        for library in programs.libraries(file)? {
            self.add(&library.file, &library.place)?;
        }
        self.add(file, place)
    }

    fn write(&self, place: &str, text: &str, mode: u32) -> Result<()> {
        let path = self.place(Path::new(place))?;
        fs::write(&path, text)?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
    }

    /// Packs the directory and removes it. Returns the archive.
    fn finish(self) -> Result<Vec<u8>> {
        let names = output(Command::new("find").arg(".").current_dir(self.folder))?;
        let mut cpio = Command::new("cpio")
            .args(["--create", "--format=newc", "--owner=0:0", "--quiet"])
            .current_dir(self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut input = cpio.stdin.take().context("no input")?;
        let writer = std::thread::spawn(move || input.write_all(names.as_bytes()));
        let made = cpio.wait_with_output()?;
        if !matches!(writer.join(), Ok(Ok(()))) {
            bail!("cpio did not read the names of its files");
        }
        if !made.status.success() {
            bail!("cpio: {}: {}", made.status, String::from_utf8_lossy(&made.stderr).trim());
        }
        fs::remove_dir_all(self.folder)?;
        Ok(made.stdout)
    }
}

/// Returns an archive of the programs and their libraries. It is uncompressed, because emulated CPUs decompress slowly.
pub(super) fn programs(folder: &Path, programs: &Programs) -> Result<Vec<u8>> {
    let archive = CpioArchive::begin(folder)?;
    for program in programs.all()? {
        archive.add_program(programs, &program.file, &program.place)?;
    }
    let settings = Path::new("/etc/mke2fs.conf");
    archive.add(settings, settings)?;
    for name in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(archive.folder.join("usr").join(name))?;
        symlink(format!("usr/{name}"), archive.folder.join(name))?;
    }
    archive.finish()
}

/// Returns an archive of the kernel modules and their dependencies.
pub(super) fn modules(folder: &Path, kernel: &Kernel) -> Result<Vec<u8>> {
    let text = fs::read_to_string(kernel.modules.join("modules.dep"))?;
    let dependencies: BTreeMap<&str, Vec<&str>> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(module, needs)| (module, needs.split_whitespace().collect()))
        .collect();
    let by_name: HashMap<String, &str> = dependencies.keys().map(|&path| (module_name(path), path)).collect();
    let wanted: BTreeSet<_> = MODULES
        .into_iter()
        .chain(ALGORITHMS)
        .chain(RECENT)
        .filter_map(|name| by_name.get(&module_name(name)).copied())
        .flat_map(|path| dependencies[path].iter().copied().chain([path]))
        .collect();

    let built_in = fs::read_to_string(kernel.modules.join("modules.builtin")).unwrap_or_default();
    let built_in: BTreeSet<_> = built_in.lines().map(module_name).collect();
    let is_there = |name: &str| by_name.contains_key(name) || built_in.contains(name);
    let is_expected =
        |name: &&str| kernel.architecture != Architecture::ARM64 || !NOT_FOR_ARM64.contains(name);
    let expected = MODULES.into_iter().filter(is_expected);
    let missing: Vec<_> = expected.filter(|name| !is_there(&module_name(name))).collect();
    if !missing.is_empty() {
        println!(
            "kernel {} has no module {}: tests that need it will fail",
            kernel.release,
            missing.join(", ")
        );
    }

    let archive = CpioArchive::begin(folder)?;
    let place = Path::new("/usr/lib/modules").join(&kernel.release);
    for module in wanted {
        archive.add(&kernel.modules.join(module), &place.join(module))?;
    }
    for index in fs::read_dir(&kernel.modules)?.flatten() {
        if index.file_name().to_string_lossy().starts_with("modules.") {
            archive.add(&index.path(), &place.join(index.file_name()))?;
        }
    }
    archive.finish()
}

/// Returns the name of a module, such as `null_blk` for `kernel/drivers/block/null_blk/null_blk.ko.xz`.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

/// Returns an archive with an init that switches to the system on the drive.
pub(super) fn switch(folder: &Path) -> Result<Vec<u8>> {
    let archive = CpioArchive::begin(folder)?;
    archive.write("/init", SWITCH, 0o755)?;
    for mount in ["dev", "proc", "sys", "root"] {
        fs::create_dir_all(archive.folder.join(mount))?;
    }
    archive.finish()
}

/// Returns an archive of the test binary, the daemon, the terminal tool, the tools that the named tests need, and an init that
/// runs those tests.
pub(super) fn tests(folder: &Path, built: &TestBinaries, names: &[&str]) -> Result<Vec<u8>> {
    let archive = CpioArchive::begin(folder)?;
    archive.add(&built.tests, Path::new("/biolat/tests"))?;
    archive.add(&built.daemon, Path::new("/biolat/biolat-daemon"))?;
    archive.add(&built.biolat(), Path::new("/biolat/biolat"))?;
    archive.add(&built.cells, Path::new("/biolat/cells.o"))?;
    let programs = Programs::of(built.architecture)?;
    for path in suites::tools(names) {
        archive.add_program(&programs, &tool(path), &Path::new("/usr").join(path))?;
    }
    // Number of daemons killed and devices removed, seconds without a daemon, and duration of a load. Guests are slow, so the
    // defaults are low.
    let setting = |name, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let init = INIT.replace("@TESTS@", &names.join(" "));
    let init = init.replace("@KILLS@", &setting("BIOLAT_TEST_KILLS", "10"));
    let init = init.replace("@AWAY@", &setting("BIOLAT_TEST_AWAY", "5"));
    let init = init.replace("@REMOVALS@", &setting("BIOLAT_TEST_REMOVALS", "20"));
    archive.write("/init", &init.replace("@LOAD@", &setting("BIOLAT_TEST_LOAD", "4")), 0o755)?;
    for mount in ["dev", "proc", "sys", "tmp", "run"] {
        fs::create_dir_all(archive.folder.join(mount))?;
    }
    archive.finish()
}

/// Binaries that guests run. They are statically linked, because the guest has no libraries for them.
#[derive(Clone)]
pub(crate) struct TestBinaries {
    architecture: Architecture,
    tests: PathBuf,
    daemon: PathBuf,
    cells: PathBuf,
}

impl TestBinaries {
    /// Builds the test binary, the programs that it runs and the object for the `buckets` suite.
    pub(crate) fn build(architecture: Architecture) -> Result<Self> {
        let mut command = static_cargo("rustc", "biolat-daemon", architecture)?;
        command.args(["--release", "--test", "kernel", "--message-format=json-render-diagnostics", "--"]);
        // Optimize less than for a release, which cuts the build time to a third. On the host, the tests with a day of history
        // need some optimization.
        let level = if architecture.is_host() { "-Copt-level=1" } else { "-Copt-level=0" };
        command.args([level, "-Ccodegen-units=16"]);
        eprintln!("$ cargo rustc --release --test kernel (static)");
        let messages = output(&mut command)?;
        let tests = messages.lines().filter(|line| line.contains(r#""kind":["test"]"#));
        let tests = tests.filter_map(|line| field(line, "executable")).next_back();
        let tests = tests.map(PathBuf::from).context("no test binary was built")?;
        let mut command = static_cargo("build", "biolat-cli", architecture)?;
        run(command.args(["--release", "--bin", "biolat"]))?;
        // Cargo builds the daemon along with its tests. Set BIOLAT_TEST_DAEMON to a different daemon to check that the tests
        // fail.
        let daemon = env::var_os("BIOLAT_TEST_DAEMON").map(PathBuf::from);
        let daemon = daemon.unwrap_or_else(|| static_build::folder(architecture).join("biolat-daemon"));
        Ok(Self { architecture, tests, daemon, cells: crate::ebpf::build_cells()? })
    }

    /// Returns the path of the terminal tool.
    fn biolat(&self) -> PathBuf {
        static_build::folder(self.architecture).join("biolat")
    }

    /// Returns a command that runs the tests on this machine, as root.
    pub(crate) fn on_host(&self) -> Command {
        let mut command = host::as_root(&self.tests);
        command.env("BIOLAT_TEST_DAEMON", &self.daemon);
        command
    }

    /// Returns the test runner's list of tests.
    pub(crate) fn list(&self) -> Result<String> {
        output(self.architecture.runner(&self.tests).args(["--ignored", "--list", "--format=terse"]))
    }
}

/// Returns a string field of one of cargo's JSON messages. Does not support escapes.
fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let value = json.split_once(&format!("\"{name}\":\""))?.1;
    value.split_once('"').map(|(value, _)| value)
}
