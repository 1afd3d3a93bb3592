//! What an emulated machine has whatever its drives are: board, CPUs, serial ports. Each architecture has its own.
//!
//! The guest's kernel log goes to a file, its second serial port (`ttyS1`) to the emulator's standard output, and its third one
//! to the emulator's control socket (QMP).

use std::{path::Path, process::Command};

use crate::static_build::Architecture;

/// The board and CPUs of the machines for an architecture.
pub(super) struct Platform {
    /// The emulator, with its Debian package.
    pub(super) emulator: (&'static str, &'static str),
    board: &'static str,
    pub(super) cpu: &'static str,
    accelerator: &'static str,
    /// The serial port of the kernel log.
    pub(super) console: &'static str,
    /// A SCSI controller with one queue, whose interrupt the kernel does not manage. Debian has a driver for x86 only.
    has_pvscsi: bool,
    /// Properties of devices that the board has.
    settings: &'static [&'static str],
    /// Only for the kernel log: the other serial ports are PCI devices.
    has_one_serial_port: bool,
}

const X86: Platform = Platform {
    emulator: ("qemu-system-x86_64", "qemu-system-x86"),
    board: "q35",
    // An old one: emulating wide vectors, string instructions and another level of page tables takes longer than the code that
    // does without them.
    cpu: "Nehalem",
    // One thread for both CPUs: with a thread each, one may execute code that the other is patching, which the kernel does when a
    // program is attached.
    accelerator: "tcg,thread=single",
    console: "ttyS0",
    has_pvscsi: true,
    // Native PCIe hotplug as on real servers, instead of ACPI's.
    settings: &["ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"],
    has_one_serial_port: false,
};

const ARM64: Platform = Platform {
    emulator: ("qemu-system-aarch64", "qemu-system-arm"),
    board: "virt,gic-version=3",
    // A server's, of Armv8.2: without pointer authentication, whose emulation takes long.
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
            // Nothing reads the first one: the others have the same names as on x86.
            command.args(["-chardev", "null,id=unused"]);
            for end in ["unused", "output", "control"] {
                command.arg("-device").arg(format!("pci-serial,chardev={end}"));
            }
        } else {
            command.args(["-serial", "chardev:output", "-serial", "chardev:control"]);
        }
    }

    /// The controller of the two drives that are tested with an interrupt of their own, if there is one: its name in the emulator,
    /// and the device.
    pub(super) fn one_queue_controller(&self) -> &'static [&'static str] {
        if self.has_pvscsi {
            &["pvscsi,id=one-queue"]
        } else {
            &["virtio-scsi-pci,id=one-queue,num_queues=1"]
        }
    }
}
