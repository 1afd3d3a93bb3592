//! Defines the CPUs and drives of the emulated machines. They are fully emulated, which needs no privileges and no
//! virtualization.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use super::{emulator::Emulator, kernels::Kernel, outcome::Outcome, platform::Platform};
use crate::{static_build::Architecture, suites::Machine};

/// Size of each drive.
const DRIVE_BYTES: u64 = 256 << 20;

/// File name of [`Machine::Server`]'s drive, in the directory the guest runs in.
pub(crate) const DRIVE: &str = "root";

impl Machine {
    /// Machines that kernel tests run on.
    pub(crate) const ALL: [Self; 3] = [Self::Standard, Self::ManyCpus, Self::SparseCpus];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::ManyCpus => "many-cpus",
            Self::SparseCpus => "sparse-cpus",
            Self::Server => "server",
        }
    }

    /// Returns why a kernel cannot run on this machine, or `None` if it can.
    pub(crate) fn unsupported(self, kernel: &Kernel) -> Option<&'static str> {
        let needs_x86 = self.possible_cpus().is_some() && kernel.architecture != Architecture::AMD64;
        needs_x86.then_some("emulated machines for arm64 have no CPUs that are possible but not present")
    }

    /// Returns the number of CPUs that its firmware announces, if it is larger than the number present.
    fn possible_cpus(self) -> Option<u32> {
        match self {
            Self::ManyCpus => Some(384),
            Self::SparseCpus => Some(128),
            Self::Standard | Self::Server => None,
        }
    }

    /// Returns the number of CPUs that are present.
    fn present_cpus(self) -> u32 {
        if self == Self::SparseCpus { 4 } else { 2 }
    }

    /// Returns an emulator for this machine with CPUs of an architecture.
    pub(crate) fn emulator(self, architecture: Architecture) -> Result<Emulator> {
        match self.possible_cpus() {
            Some(_) => Emulator::with_x2apic(),
            None => Emulator::installed(architecture),
        }
    }

    fn add_cpus(self, command: &mut Command, platform: &Platform) {
        let present = self.present_cpus();
        let Some(possible) = self.possible_cpus() else {
            command.args(["-smp", &present.to_string(), "-cpu", platform.cpu]);
            return;
        };
        command.arg("-smp").arg(format!("{present},maxcpus={possible}"));
        if self == Self::SparseCpus {
            // Two NUMA nodes, with two CPUs that are present each.
            for (node, cpus) in ["0-1".to_owned(), format!("2-{}", possible - 1)].iter().enumerate() {
                command.arg("-object").arg(format!("memory-backend-ram,id=memory{node},size=1536M"));
                command.arg("-numa").arg(format!("node,nodeid={node},cpus={cpus},memdev=memory{node}"));
            }
        }
        // Linux considers absent CPUs possible only on a hypervisor that it knows. Pretend to be VMware, which Linux recognizes
        // even on a CPU without the hypervisor flag, by the machine's serial number and the I/O port that QEMU emulates.
        //
        // <https://github.com/torvalds/linux/blob/v6.18/arch/x86/kernel/acpi/boot.c>
        // <https://github.com/torvalds/linux/blob/v6.18/arch/x86/kernel/cpu/vmware.c>
        command.args(["-machine", "vmport=on", "-smbios", "type=1,serial=VMware-1"]);
        command.arg("-cpu").arg(format!("{},-hypervisor,+x2apic", platform.cpu));
    }

    fn kernel_options(self) -> &'static str {
        match self {
            // A test needs fixed kernel addresses.
            Self::Standard => " nokaslr",
            Self::ManyCpus | Self::SparseCpus | Self::Server => "",
        }
    }

    /// Returns the emulator's devices and the drives behind them.
    fn devices(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::ManyCpus | Self::SparseCpus => (&[], &[]),
            Self::Server => (&["virtio-blk-pci,drive=root"], &[DRIVE]),
            Self::Standard => (
                &[
                    // An NVMe controller with two namespaces.
                    "nvme,id=twins,serial=twins",
                    "nvme-ns,bus=twins,drive=twin1,nsid=1",
                    "nvme-ns,bus=twins,drive=twin2,nsid=2",
                    "nvme,id=solo,serial=solo,drive=solo",
                    // A hotplug bay with a drive, which a test replaces with "second".
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
                    // QEMU's educational device, whose DMA a test uses to write to kernel memory.
                    "edu,dma_mask=0xffffffffffffffff",
                ],
                &["twin1", "twin2", "solo", "first", "second", "pair", "virtio", "scsi", "pinned", "calm"],
            ),
        }
    }

    /// Returns the emulator's command. The guest's output goes to its standard output, the guest's kernel log to a file.
    fn command(
        self,
        emulator: &Emulator,
        kernel: &Kernel,
        initramfs: &Path,
        folder: &Path,
    ) -> Result<Command> {
        let platform = Platform::of(kernel.architecture);
        let mut command = emulator.command();
        command.current_dir(folder);
        command.args(["-m", "3G"]);
        command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs);
        // Disable the hardening of allocations, calls and system calls in Debian's kernels. Under emulation, it accounts for a
        // fifth of the daemon's startup time.
        const WITHOUT_HARDENING: &str = "mitigations=off init_on_alloc=0 apparmor=0";
        // On a busy host, the emulated timer can be late, and the kernel panics if it concludes that the timer does not work.
        const LATE_TIMER: &str = "no_timer_check";
        // RHEL 8 has it, but not by default.
        const MULTIPATH: &str = "nvme_core.multipath=Y";
        let console = platform.console;
        let options = format!(
            "console={console} loglevel=5 panic=-1 {LATE_TIMER} {WITHOUT_HARDENING} {MULTIPATH}{}",
            self.kernel_options()
        );
        command.arg("-append").arg(options);
        command.args(["-qmp", "unix:control,server=on,wait=off"]);
        platform.add_to(&mut command, &folder.join(LOG));
        self.add_cpus(&mut command, platform);
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
        emulator: &Emulator,
        kernel: &Kernel,
        initramfs: &Path,
        folder: &Path,
        line: impl FnMut(&str),
    ) -> Result<Outcome> {
        let mut command = self.command(emulator, kernel, initramfs, folder)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let guest = command.spawn().context("cannot run the emulator")?;
        Outcome::of(guest, &folder.join(LOG), line)
    }
}

/// File name of the guest's kernel log.
const LOG: &str = "kernel.log";
