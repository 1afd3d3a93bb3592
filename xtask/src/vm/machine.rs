//! Machines that are emulated in full, so that it takes no right and no virtualisation: their CPUs and drives.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use super::{
    kernels::Kernel,
    outcome::{Outcome, Timeouts},
};

pub(crate) const EMULATOR: (&str, &str) = ("qemu-system-x86_64", "qemu-system-x86");

/// Each drive is as large.
const DRIVE_BYTES: u64 = 256 << 20;

/// An emulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// Two CPUs, a drive of each kind, and bays to pull drives out of.
    Standard,
    /// As many possible CPUs as a large server has.
    ManyCpus,
    /// A virtual server that boots from its one drive.
    Server,
}

/// The drive of a virtual server, in the folder where it runs.
pub(crate) const DRIVE: &str = "root";

impl Machine {
    /// Those that kernel tests run on.
    pub(crate) const ALL: [Self; 2] = [Self::Standard, Self::ManyCpus];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::ManyCpus => "many-cpus",
            Self::Server => "server",
        }
    }

    /// Why a kernel of this release cannot be such a machine; nothing if it can.
    pub(crate) fn unsupported(self, release: &str) -> Option<&'static str> {
        let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
        let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let refuses = self == Self::ManyCpus && release >= (6, 9);
        refuses.then_some(
            "since Linux 6.9 possible CPUs are those that the firmware tells of, and no option adds any",
        )
    }

    fn kernel_options(self) -> &'static str {
        match self {
            // Memory is mapped where a test can tell.
            Self::Standard => " nokaslr",
            Self::ManyCpus => " possible_cpus=384",
            Self::Server => "",
        }
    }

    /// Devices, and the drives that they take.
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
                    // One in a bay that it can be pulled out of, and that another can be put into.
                    "pcie-root-port,id=bay1,chassis=1,slot=1",
                    "nvme,id=first,bus=bay1,serial=first,drive=first",
                    // Two controllers of one subsystem, with a namespace that both reach.
                    "nvme-subsys,id=pair,nqn=pair",
                    "nvme,id=left,serial=pair,subsys=pair",
                    "nvme,id=right,serial=pair,subsys=pair",
                    "nvme-ns,bus=left,drive=pair,nsid=1,shared=on",
                    "virtio-blk-pci,drive=virtio,serial=virtio",
                    "virtio-scsi-pci,id=scsi",
                    "scsi-hd,bus=scsi.0,drive=scsi,serial=scsi",
                    // A device for teaching, by which a test gets at the kernel's memory.
                    "edu,dma_mask=0xffffffffffffffff",
                ],
                &["twin1", "twin2", "solo", "first", "second", "pair", "virtio", "scsi"],
            ),
        }
    }

    /// The emulator's command. What the guest prints comes on standard output; its kernel's log goes to a file.
    fn command(self, kernel: &Kernel, initramfs: &Path, folder: &Path) -> Result<Command> {
        let mut command = Command::new(crate::process::find(EMULATOR.0).context("no emulator")?);
        command.current_dir(folder);
        command.args([
            "-machine",
            "q35",
            "-accel",
            // One thread for both CPUs: with one for each, a CPU may execute code that the other is just patching, as the
            // kernel does where a program is attached.
            "tcg,thread=single",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "3G",
        ]);
        command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs);
        command
            .arg("-append")
            .arg(format!("console=ttyS0 loglevel=5 panic=-1 mitigations=off{}", self.kernel_options()));
        command.arg("-serial").arg(format!("file:{}", folder.join(LOG).display())).args(["-serial", "stdio"]);
        // The guest's third line leads to the emulator's own control socket.
        command.args(["-qmp", "unix:control,server=on,wait=off"]);
        command.args([
            "-chardev",
            "socket,id=control,path=control,reconnect=1",
            "-serial",
            "chardev:control",
        ]);
        // Bays as real ones are, with a slot that has a power switch.
        command.args(["-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]);
        let (devices, drives) = self.devices();
        for drive in drives {
            if !folder.join(drive).exists() {
                fs::File::create(folder.join(drive))?.set_len(DRIVE_BYTES)?;
            }
            command
                .arg("-drive")
                .arg(format!("if=none,id={drive},file={drive},format=raw,cache=unsafe,discard=unmap"));
        }
        for device in devices {
            command.arg("-device").arg(device);
        }
        Ok(command)
    }

    /// Boots it and passes on each line that it prints, until it turns itself off.
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
        let guest = command.spawn().with_context(|| format!("cannot run {}", EMULATOR.0))?;
        Outcome::of(guest, &folder.join(LOG), timeouts, line)
    }
}

/// Where the guest's kernel log goes.
const LOG: &str = "kernel.log";
