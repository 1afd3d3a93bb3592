//! ublk devices. A thread of the test is the server: it completes each request at once, and returns zeros for reads.

use std::{
    fs::{File, OpenOptions},
    os::fd::AsRawFd as _,
    path::Path,
    process::Command,
    ptr,
    sync::mpsc,
    thread::{self, JoinHandle},
};

use io_uring::{IoUring, cqueue, opcode, squeue, types::Fd};

use super::{block, daemon::wait_for, kernel};

/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/ublk_cmd.h>
const ADD_DEVICE: u32 = control_code(4);
const DELETE_DEVICE: u32 = control_code(5);
const START_DEVICE: u32 = control_code(6);
const STOP_DEVICE: u32 = control_code(7);
const SET_PARAMETERS: u32 = control_code(8);
const FETCH: u32 = io_code(0x20);
const COMMIT_AND_FETCH: u32 = io_code(0x21);

const BASIC_AND_DISCARD: u32 = 3;
const VOLATILE_CACHE: u32 = 4;

const TAGS: u16 = 64;
const MAX_BYTES: u32 = 512 << 10;
const SECTORS: u64 = 256 << 11;

/// `_IOWR('u', number, struct ublksrv_ctrl_cmd)`
const fn control_code(number: u32) -> u32 {
    3 << 30 | (size_of::<ControlCommand>() as u32) << 16 | (b'u' as u32) << 8 | number
}

/// `_IOWR('u', number, struct ublksrv_io_cmd)`
const fn io_code(number: u32) -> u32 {
    3 << 30 | (size_of::<IoCommand>() as u32) << 16 | (b'u' as u32) << 8 | number
}

/// `struct ublksrv_ctrl_cmd`
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct ControlCommand {
    device: u32,
    queue: u16,
    bytes: u16,
    address: u64,
    value: u64,
    unused: u64,
}

/// `struct ublksrv_io_cmd`
#[derive(Clone, Copy)]
#[repr(C)]
struct IoCommand {
    queue: u16,
    tag: u16,
    result: i32,
    address: u64,
}

/// `struct ublksrv_ctrl_dev_info`
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct DeviceInfo {
    queues: u16,
    tags: u16,
    state: u32,
    max_bytes: u32,
    device: u32,
    server: u64,
    flags: [u64; 5],
}

/// `struct ublk_params`, up to the parameters for discards
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Parameters {
    bytes: u32,
    types: u32,
    attributes: u32,
    block_shifts: [u8; 4],
    max_sectors: u32,
    chunk_sectors: u32,
    sectors: u64,
    virt_boundary_mask: u64,
    discard_alignment: u32,
    discard_granularity: u32,
    max_discard_sectors: u32,
    max_zeroes_sectors: u32,
    max_discard_segments: u16,
    unused: [u16; 3],
}

/// `struct ublksrv_io_desc`
#[repr(C)]
struct Request {
    op_and_flags: u32,
    sectors: u32,
    first_sector: u64,
    address: u64,
}

/// A 256 MiB device with a volatile cache, removed on drop.
pub(crate) struct Ublk {
    pub(crate) name: String,
    number: u32,
    control: Control,
    server: Option<JoinHandle<()>>,
}

impl Ublk {
    /// Skips the test and returns `None` if Debian's kernel lacks the driver.
    pub(crate) fn start() -> Option<Self> {
        let loaded = Command::new("modprobe").arg("ublk_drv").output().unwrap();
        if !loaded.status.success() {
            kernel::skip("this kernel has no ublk driver");
            return None;
        }
        wait_for("ublk's control device", || {
            OpenOptions::new().write(true).open("/dev/ublk-control").is_ok()
        });
        let mut control = Control::open();
        let mut info = DeviceInfo {
            queues: 1,
            tags: TAGS,
            max_bytes: MAX_BYTES,
            device: u32::MAX,
            ..DeviceInfo::default()
        };
        control.run(ADD_DEVICE, u32::MAX, &mut info, 0);
        let number = info.device;
        let mut parameters = Parameters {
            bytes: size_of::<Parameters>() as u32,
            types: BASIC_AND_DISCARD,
            attributes: VOLATILE_CACHE,
            block_shifts: [9, 12, 12, 12],
            max_sectors: MAX_BYTES >> 9,
            sectors: SECTORS,
            discard_granularity: 4096,
            max_discard_sectors: 1 << 14,
            max_zeroes_sectors: 1 << 14,
            max_discard_segments: 1,
            ..Parameters::default()
        };
        control.run(SET_PARAMETERS, number, &mut parameters, 0);
        let path = format!("/dev/ublkc{number}");
        wait_for("the node of the ublk device", || Path::new(&path).exists());
        let device = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let (ready, is_ready) = mpsc::channel();
        let server = thread::spawn(move || serve(&device, &ready));
        is_ready.recv().unwrap();
        control.run(START_DEVICE, number, &mut (), u64::from(std::process::id()));
        let name = format!("ublkb{number}");
        wait_for("the ublk device", || block::path(&name).exists());
        Some(Self { name, number, control, server: Some(server) })
    }
}

impl Drop for Ublk {
    fn drop(&mut self) {
        self.control.run(STOP_DEVICE, self.number, &mut (), 0);
        self.server.take().map(JoinHandle::join);
        self.control.run(DELETE_DEVICE, self.number, &mut (), 0);
    }
}

struct Control {
    device: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    fn open() -> Self {
        let device = OpenOptions::new().read(true).write(true).open("/dev/ublk-control").unwrap();
        Self { device, ring: IoUring::builder().build(4).unwrap() }
    }

    /// Runs a command and waits until it has ended. The kernel reads or writes `argument`.
    fn run<T>(&mut self, code: u32, device: u32, argument: &mut T, value: u64) {
        let (bytes, address) = match size_of::<T>() {
            0 => (0, 0),
            bytes => (bytes as u16, ptr::from_mut(argument) as u64),
        };
        let command = ControlCommand { device, queue: u16::MAX, bytes, address, value, unused: 0 };
        let mut place = [0; 80];
        // SAFETY: the command has no padding.
        place[..size_of::<ControlCommand>()].copy_from_slice(unsafe { bytes_of(&command) });
        let entry = opcode::UringCmd80::new(Fd(self.device.as_raw_fd()), code).cmd(place).build();
        // SAFETY: the argument lives until the command has ended.
        unsafe { self.ring.submission().push(&entry).unwrap() };
        self.ring.submit_and_wait(1).unwrap();
        let result = self.ring.completion().next().unwrap().result();
        assert_eq!(result, 0, "ublk command {code:#x}: {}", std::io::Error::from_raw_os_error(-result));
    }
}

/// # Safety
///
/// The value must have no padding.
unsafe fn bytes_of<T>(value: &T) -> &[u8] {
    // SAFETY: the caller guarantees that all bytes are initialized.
    unsafe { std::slice::from_raw_parts(ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Serves requests until the device is stopped.
fn serve(device: &File, ready: &mpsc::Sender<()>) {
    let bytes = (usize::from(TAGS) * size_of::<Request>()).next_multiple_of(4096);
    // SAFETY: a new mapping. The kernel writes requests there before it announces them.
    let requests = unsafe {
        libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, device.as_raw_fd(), 0)
    };
    assert_ne!(requests, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    let mut buffers = vec![vec![0; MAX_BYTES as usize]; TAGS.into()];
    let mut ring: IoUring = IoUring::new(TAGS.into()).unwrap();
    let mut push = |ring: &mut IoUring, code, tag: u16, result| {
        let address = buffers[usize::from(tag)].as_mut_ptr() as u64;
        let command = IoCommand { queue: 0, tag, result, address };
        // SAFETY: the command has no padding.
        let command: [u8; 16] = unsafe { bytes_of(&command) }.try_into().unwrap();
        let entry = opcode::UringCmd16::new(Fd(device.as_raw_fd()), code).cmd(command).build();
        // SAFETY: the buffers live until the ring is dropped.
        unsafe { ring.submission().push(&entry.user_data(tag.into())).unwrap() };
    };
    (0..TAGS).for_each(|tag| push(&mut ring, FETCH, tag, 0));
    ring.submit().unwrap();
    ready.send(()).unwrap();
    let mut left = TAGS;
    while left > 0 {
        ring.submit_and_wait(1).unwrap();
        let ended: Vec<_> =
            ring.completion().map(|entry| (entry.user_data() as u16, entry.result())).collect();
        for (tag, result) in ended {
            if result < 0 {
                // The device is being stopped.
                left -= 1;
                continue;
            }
            // SAFETY: the kernel has written the request, and does not change it until it is committed.
            let request = unsafe { &*requests.cast::<Request>().add(tag.into()) };
            push(&mut ring, COMMIT_AND_FETCH, tag, i32::try_from(request.sectors << 9).unwrap());
        }
    }
    // SAFETY: nothing refers to the mapping any more.
    unsafe { libc::munmap(requests, bytes) };
}
