//! Defines the board, CPUs and serial ports of emulated machines, by architecture.
//!
//! The guest's kernel log goes to a file, its second serial port (`ttyS1`) to the emulator's standard output, and its third
//! serial port to the emulator's control socket (QMP).

use std::{path::Path, process::Command};

use crate::static_build::Architecture;

/// Board and CPUs of the machines for an architecture.
pub(super) struct Platform {
    /// The emulator and its Debian package.
    pub(super) emulator: (&'static str, &'static str),
    board: &'static str,
    pub(super) cpu: &'static str,
    accelerator: &'static str,
    /// Serial port of the kernel log.
    pub(super) console: &'static str,
    /// Whether Debian's kernels have a driver for pvscsi, a SCSI controller with one queue and an interrupt that the kernel does
    /// not manage.
    has_pvscsi: bool,
    /// Properties of the board's devices.
    settings: &'static [&'static str],
    /// Whether the board has only one serial port, for the kernel log. The others are then PCI devices.
    has_one_serial_port: bool,
}

const X86: Platform = Platform {
    emulator: ("qemu-system-x86_64", "qemu-system-x86"),
    board: "q35",
    // An old CPU: emulating wide vectors, string instructions and a fifth level of page tables takes longer than running code
    // that does not use them.
    cpu: "Nehalem",
    // One thread for both CPUs. With one thread per CPU, a CPU can execute code that the other is patching, as happens when a
    // program is attached.
    accelerator: "tcg,thread=single",
    console: "ttyS0",
    has_pvscsi: true,
    // Native PCIe hotplug, as on real servers, instead of ACPI hotplug.
    settings: &["ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"],
    has_one_serial_port: false,
};

const ARM64: Platform = Platform {
    emulator: ("qemu-system-aarch64", "qemu-system-arm"),
    board: "virt,gic-version=3",
    // An Armv8.2 server CPU: it has no pointer authentication, which is slow to emulate.
    cpu: "neoverse-n1",
    accelerator: "tcg,thread=multi",
    console: "ttyAMA0",
    has_pvscsi: false,
    settings: &[],
    has_one_serial_port: true,
};

impl Platform {
    pub(super) fn of(architecture: Architecture) -> &'static Self {
        if architecture == Architecture::ARM64 { &ARM64 } else { &X86 }
    }

    /// Adds the board and serial ports to the emulator's command.
    pub(super) fn add_to(&self, command: &mut Command, log: &Path) {
        command.args(["-machine", self.board, "-accel", self.accelerator]);
        for setting in self.settings {
            command.args(["-global", setting]);
        }
        command.arg("-serial").arg(format!("file:{}", log.display()));
        command.args([
            "-chardev",
            "stdio,id=output",
            "-chardev",
            "socket,id=control,path=control,reconnect=1",
        ]);
        if self.has_one_serial_port {
            // The first one is unused, so that the others have the same names as on x86.
            command.args(["-chardev", "null,id=unused"]);
            for end in ["unused", "output", "control"] {
                command.arg("-device").arg(format!("pci-serial,chardev={end}"));
            }
        } else {
            command.args(["-serial", "chardev:output", "-serial", "chardev:control"]);
        }
    }

    /// Returns the emulator option for the one-queue controller, which gives two test drives their own interrupt.
    pub(super) fn one_queue_controller(&self) -> &'static [&'static str] {
        if self.has_pvscsi {
            &["pvscsi,id=one-queue"]
        } else {
            &["virtio-scsi-pci,id=one-queue,num_queues=1"]
        }
    }
}
