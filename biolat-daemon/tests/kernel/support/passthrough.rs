//! NVMe and SCSI passthrough commands.

use std::{
    fs::{File, OpenOptions},
    os::fd::AsRawFd as _,
    path::Path,
};

/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/nvme_ioctl.h#L39>
#[repr(C)]
#[derive(Default)]
struct NvmeCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_length: u32,
    length: u32,
    cdw10: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<NvmeCommand>() == 72);

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn nvme(path: &Path, request: libc::Ioctl, opcode: u8, cdw10: [u32; 6], count: u64) {
    let device = open(path);
    let buffer = vec![0_u8; 4096];
    for _ in 0..count {
        let command = NvmeCommand {
            opcode,
            namespace: 1,
            address: buffer.as_ptr() as u64,
            length: buffer.len() as u32,
            cdw10,
            ..NvmeCommand::default()
        };
        // SAFETY: the buffer has the length given in the command, and is not used elsewhere.
        let result = unsafe { libc::ioctl(device.as_raw_fd(), request, &raw const command) };
        assert_eq!(result, 0, "{}: {}", path.display(), std::io::Error::last_os_error());
    }
}

/// Sends Identify Controller, like `nvme id-ctrl`.
pub(crate) fn nvme_identify(path: &Path, count: u64) {
    const ADMIN: libc::Ioctl = 0xc048_4e41;
    nvme(path, ADMIN, 6, [1, 0, 0, 0, 0, 0], count);
}

/// Reads or writes 8 blocks of the first namespace, like `nvme read` and `nvme write`.
pub(crate) fn nvme_io(path: &Path, write: bool, count: u64) {
    const IO: libc::Ioctl = 0xc048_4e43;
    nvme(path, IO, if write { 1 } else { 2 }, [0, 0, 7, 0, 0, 0], count);
}

/// <https://github.com/torvalds/linux/blob/v6.12/include/scsi/sg.h#L44>
#[repr(C)]
struct SgIo {
    interface: i32,
    direction: i32,
    command_length: u8,
    sense_length: u8,
    vectors: u16,
    length: u32,
    buffer: u64,
    command: u64,
    sense: u64,
    timeout_ms: u32,
    flags: u32,
    pack_id: i32,
    user: u64,
    results: [u32; 6],
}

const _: () = assert!(size_of::<SgIo>() == 88);

/// Sends INQUIRY to a SCSI drive, like `sg_inq`.
pub(crate) fn scsi_inquiry(path: &Path, count: u64) {
    const SG_IO: libc::Ioctl = 0x2285;
    const FROM_DEVICE: i32 = -3;
    let device = open(path);
    let (buffer, sense, command) = ([0_u8; 96], [0_u8; 32], [0x12_u8, 0, 0, 0, 96, 0]);
    for _ in 0..count {
        let request = SgIo {
            interface: i32::from(b'S'),
            direction: FROM_DEVICE,
            command_length: command.len() as u8,
            sense_length: sense.len() as u8,
            vectors: 0,
            length: buffer.len() as u32,
            buffer: buffer.as_ptr() as u64,
            command: command.as_ptr() as u64,
            sense: sense.as_ptr() as u64,
            timeout_ms: 5000,
            flags: 0,
            pack_id: 0,
            user: 0,
            results: [0; 6],
        };
        // SAFETY: as above, also for the sense buffer.
        let result = unsafe { libc::ioctl(device.as_raw_fd(), SG_IO, &raw const request) };
        assert_eq!(result, 0, "{}: {}", path.display(), std::io::Error::last_os_error());
    }
}
