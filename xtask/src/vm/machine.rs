//! The emulated machines: their CPUs and drives. Emulation is full, so it needs neither privileges nor virtualization.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use super::{
    kernels::Kernel,
    outcome::{Outcome, Timeouts},
    platform::Platform,
};
use crate::static_build::Architecture;

/// The size of each drive.
const DRIVE_BYTES: u64 = 256 << 20;

/// An emulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// Two CPUs, a drive of each kind, and a hotplug bay.
    Standard,
    /// As many possible CPUs as a large server.
    ManyCpus,
    /// A virtual server that boots from its only drive.
    Server,
}

/// The file name of [`Machine::Server`]'s drive, in the directory the guest runs in.
pub(crate) const DRIVE: &str = "root";

impl Machine {
    /// The machines that kernel tests run on.
    pub(crate) const ALL: [Self; 2] = [Self::Standard, Self::ManyCpus];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::ManyCpus => "many-cpus",
            Self::Server => "server",
        }
    }

    /// Why a kernel cannot run on this machine; `None` if it can.
    pub(crate) fn unsupported(self, kernel: &Kernel) -> Option<&'static str> {
        if self == Self::ManyCpus && kernel.architecture != Architecture::AMD64 {
            return Some("only on x86 an option of the kernel adds possible CPUs");
        }
        let release = &kernel.release;
        let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
        let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let is_unsupported = self == Self::ManyCpus && release >= (6, 9);
        is_unsupported.then_some(
            "since Linux 6.9 the firmware alone determines the possible CPUs, and no kernel option adds any",
        )
    }

    fn kernel_options(self) -> &'static str {
        match self {
            // A test needs fixed kernel addresses.
            Self::Standard => " nokaslr",
            Self::ManyCpus => " possible_cpus=384",
            Self::Server => "",
        }
    }

    /// The emulator's devices, and the drives behind them.
    fn devices(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::ManyCpus => (&[], &[]),
            Self::Server => (&["virtio-blk-pci,drive=root"], &[DRIVE]),
            Self::Standard => (
                &[
                    // An NVMe controller with two namespaces.
                    "nvme,id=twins,serial=twins",
                    "nvme-ns,bus=twins,drive=twin1,nsid=1",
                    "nvme-ns,bus=twins,drive=twin2,nsid=2",
                    "nvme,id=solo,serial=solo,drive=solo",
                    // A hotplug bay with a drive; a test replaces it by "second".
                    "pcie-root-port,id=bay1,chassis=1,slot=1",
                    "nvme,id=first,bus=bay1,serial=first,drive=first",
                    // Multipath: two controllers of one subsystem with a shared namespace.
                    "nvme-subsys,id=pair,nqn=pair",
                    "nvme,id=left,serial=pair,subsys=pair",
                    "nvme,id=right,serial=pair,subsys=pair",
                    "nvme-ns,bus=left,drive=pair,nsid=1,shared=on",
                    "virtio-blk-pci,drive=virtio,serial=virtio",
                    "virtio-scsi-pci,id=scsi",
                    "scsi-hd,bus=scsi.0,drive=scsi,serial=scsi",
                    "scsi-hd,bus=one-queue.0,drive=pinned,product=pinned",
                    "scsi-hd,bus=one-queue.0,drive=calm,product=calm",
                    // QEMU's educational device: a test writes kernel memory with its DMA.
                    "edu,dma_mask=0xffffffffffffffff",
                ],
                &["twin1", "twin2", "solo", "first", "second", "pair", "virtio", "scsi", "pinned", "calm"],
            ),
        }
    }

    /// The emulator's command. The guest's output is its standard output; the guest's kernel log goes to a file.
    fn command(self, kernel: &Kernel, initramfs: &Path, folder: &Path) -> Result<Command> {
        let platform = Platform::of(kernel.architecture);
        let mut command = Command::new(crate::process::find(platform.emulator.0).context("no emulator")?);
        command.current_dir(folder);
        command.args(["-smp", "2", "-m", "3G"]);
        command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs);
        // Without what Debian's kernels do for security at each allocation, call and system call: emulated, it takes a fifth of
        // the time that the daemon needs to start.
        const WITHOUT_HARDENING: &str = "mitigations=off init_on_alloc=0 apparmor=0";
        // On a busy host the emulated timer may be late, and the kernel panics if it seems not to work.
        const LATE_TIMER: &str = "no_timer_check";
        let console = platform.console;
        let options = format!(
            "console={console} loglevel=5 panic=-1 {LATE_TIMER} {WITHOUT_HARDENING}{}",
            self.kernel_options()
        );
        command.arg("-append").arg(options);
        command.args(["-qmp", "unix:control,server=on,wait=off"]);
        platform.add_to(&mut command, &folder.join(LOG));
        let (devices, drives) = self.devices();
        for drive in drives {
            if !folder.join(drive).exists() {
                fs::File::create(folder.join(drive))?.set_len(DRIVE_BYTES)?;
            }
            command
                .arg("-drive")
                .arg(format!("if=none,id={drive},file={drive},format=raw,cache=unsafe,discard=unmap"));
        }
        let one_queue = if self == Self::Standard { platform.one_queue_controller() } else { &[] };
        for device in one_queue.iter().chain(devices) {
            command.arg("-device").arg(device);
        }
        Ok(command)
    }

    /// Boots the machine and calls `line` with each line of output until it powers off.
    pub(crate) fn run(
        self,
        kernel: &Kernel,
        initramfs: &Path,
        folder: &Path,
        timeouts: Timeouts,
        line: impl FnMut(&str),
    ) -> Result<Outcome> {
        let mut command = self.command(kernel, initramfs, folder)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let guest = command.spawn().context("cannot run the emulator")?;
        Outcome::of(guest, &folder.join(LOG), timeouts, line)
    }
}

/// The file of the guest's kernel log.
const LOG: &str = "kernel.log";
