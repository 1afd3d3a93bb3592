//! `cargo xtask screenshot`: takes the README's screenshot of the page, from a real daemon with devices under load.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use crate::{
    host::{self, Requirement},
    process::{cargo, command, output, root, run},
    suites, test,
};

const SCREENSHOT: &str = "docs/page.png";
/// The time span that the page shows by default.
const LOAD: Duration = Duration::from_secs(62);
const ADDRESS: &str = "127.0.0.1:21199";
const REQUIREMENTS: [Requirement; 4] = [
    Requirement::Root,
    Requirement::Program("fio", "fio"),
    Requirement::Program("unshare", "util-linux"),
    Requirement::TemporaryFilesOnDisk,
];

/// fio options for each device. The first device is in memory. The other two are on a disk: one gets random reads and, every few
/// seconds, large writes that delay them; the other gets writes and flushes.
const LOADS: [&str; 4] = [
    "--filename={0} --rw=randrw --rwmixread=80 --bs=4k --rate_iops=1500,400 --ioengine=psync",
    "--filename={1} --rw=randread --bs=4k --iodepth=4 --rate_iops=500 --ioengine=libaio",
    "--filename={1} --rw=write --bs=1m --iodepth=24 --ioengine=libaio --thinktime=9s --thinktime_blocks=150",
    "--filename={2} --rw=randwrite --bs=16k --fsync=4 --rate_iops=120 --ioengine=psync",
];

pub(crate) fn screenshot() -> Result<()> {
    let needs = test::KERNEL_TEST_REQUIREMENTS.iter().chain(&REQUIREMENTS).chain(suites::BROWSER);
    if let Some(missing) = host::missing(needs) {
        bail!("{missing}");
    }
    run(&mut cargo(&["build", "--release", "--locked", "--package", "biolat-daemon"]))?;
    let devices = [
        LoopDevice::attach(Path::new("/dev/shm"), "off")?,
        LoopDevice::attach(&std::env::temp_dir(), "on")?,
        LoopDevice::attach(&std::env::temp_dir(), "on")?,
    ];
    let mut load = KilledOnDrop::start(&mut fio(&devices))?;
    let _daemon = KilledOnDrop::start(&mut daemon(&devices))?;
    thread::sleep(Duration::from_secs(2));
    let mut browser =
        command(host::python(), &["biolat-daemon/tests/kernel/support/browser.py", "/usr/bin/chromium"]);
    let mut browser = KilledOnDrop::start(browser.stdin(Stdio::piped()).stdout(Stdio::null()))?;
    let mut commands = browser.0.stdin.take().context("the browser has no standard input")?;
    let open = json!({"do": "open", "url": format!("http://{ADDRESS}/"), "width": 1400, "height": 900});
    writeln!(commands, "{open}")?;
    println!("running one minute of load");
    thread::sleep(LOAD);
    let screenshot = root().join(SCREENSHOT);
    // The footer names the commit, which would soon be out of date.
    for command in [
        json!({"do": "evaluate", "text": "document.querySelector('footer').remove()"}),
        json!({"do": "screenshot", "path": screenshot, "whole": true}),
    ] {
        writeln!(commands, "{command}")?;
    }
    drop(commands);
    if !browser.0.wait()?.success() {
        bail!("the browser failed");
    }
    if let Some(status) = load.0.try_wait()? {
        bail!("fio ended before the screenshot was taken: {status}");
    }
    println!("{SCREENSHOT}: {} KiB", fs::metadata(&screenshot)?.len() >> 10);
    Ok(())
}

fn fio(devices: &[LoopDevice]) -> Command {
    let mut fio = Command::new("fio");
    fio.args(["--output=/dev/null", "--direct=1", "--time_based", "--runtime=600", "--size=512m"]);
    for (number, load) in LOADS.iter().enumerate() {
        let load = (0..devices.len()).fold((*load).to_owned(), |load, at| {
            load.replace(&format!("{{{at}}}"), &format!("/dev/{}", devices[at].name))
        });
        fio.arg(format!("--name=load{number}")).args(load.split(' '));
    }
    fio
}

/// Runs the daemon with a neutral host name, because the page shows it.
fn daemon(devices: &[LoopDevice]) -> Command {
    let names: Vec<_> = devices.iter().map(|device| &*device.name).collect();
    let mut daemon = command(
        "unshare",
        &["--uts", "sh", "-c", "echo storage-1 >/proc/sys/kernel/hostname && exec \"$@\"", "sh"],
    );
    daemon.arg(root().join("target/release/biolat-daemon"));
    daemon.args(["--interval", "500ms", "--listen", ADDRESS, "--device", &names.join("|")]);
    daemon
}

/// A loop device of 512 MiB. It is already detached and its file unlinked, so the kernel removes both when the last user closes
/// it, even if xtask is killed.
struct LoopDevice {
    name: String,
    _open: File,
}

impl LoopDevice {
    fn attach(folder: &Path, direct: &str) -> Result<Self> {
        let path: PathBuf = folder.join(format!("biolat-screenshot-{}", std::process::id()));
        let direct = format!("--direct-io={direct}");
        // Allocate the blocks: reading a hole does no I/O.
        let file = path.to_string_lossy();
        let attached = run(Command::new("dd")
            .args(["if=/dev/zero", "bs=1M", "count=512", "status=none"])
            .arg(format!("of={file}")))
        .and_then(|()| output(Command::new("losetup").args(["--find", "--show", &direct, &file])));
        let _ = fs::remove_file(&path);
        let attached = attached?;
        let device = attached.trim();
        let open = File::open(device).with_context(|| format!("cannot open {device}"));
        let _ = Command::new("losetup").args(["--detach", device]).status();
        Ok(Self { name: device.trim_start_matches("/dev/").to_owned(), _open: open? })
    }
}

/// A child process, terminated on drop.
struct KilledOnDrop(Child);

impl KilledOnDrop {
    fn start(command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.spawn().map(Self).with_context(|| format!("cannot run {program}"))
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // SIGTERM, not SIGKILL: fio has to stop its job processes.
        let _ = Command::new("kill").arg(self.0.id().to_string()).stderr(Stdio::null()).status();
        let _ = self.0.wait();
    }
}
