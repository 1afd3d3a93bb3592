//! nbd devices. A thread of the test is the server and determines the latency of each request.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::Command,
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{block, daemon::wait_for, run};

/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/nbd.h>
const SET_SOCK: libc::Ioctl = 0xab00;
const SET_BLKSIZE: libc::Ioctl = 0xab01;
const DO_IT: libc::Ioctl = 0xab03;
const SET_SIZE_BLOCKS: libc::Ioctl = 0xab07;
const DISCONNECT: libc::Ioctl = 0xab08;
const SET_FLAGS: libc::Ioctl = 0xab0a;

/// The server has flags, and supports flushes and discards.
const FLUSHES_AND_DISCARDS: usize = 1 | 1 << 2 | 1 << 5;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 3;
const DISCARD: u32 = 4;

const BLOCK: usize = 4096;
const BLOCKS: usize = (256 << 20) / BLOCK;

/// A 256 MiB device, removed on drop.
pub(crate) struct Nbd {
    pub(crate) name: String,
    threads: Vec<JoinHandle<()>>,
}

impl Nbd {
    /// Attaches device 0 or 1. Its server handles one request at a time, takes at least `latency(bytes)` for each, and returns
    /// zeros for reads.
    pub(crate) fn attach(number: usize, latency: fn(usize) -> Duration) -> Self {
        Self::connect(number, 0, latency)
    }

    /// Attaches device 0 with a volatile cache and discards, and no latency of its own.
    pub(crate) fn with_cache() -> Self {
        Self::connect(0, FLUSHES_AND_DISCARDS, |_| Duration::ZERO)
    }

    fn connect(number: usize, flags: usize, latency: fn(usize) -> Duration) -> Self {
        run("modprobe", &["nbd", "nbds_max=2", "max_part=0"]);
        let name = format!("nbd{number}");
        wait_for("the node of the nbd device", || block::path(&name).exists());
        let (ours, drivers) = UnixStream::pair().unwrap();
        let device = open(&name);
        control(&device, SET_BLKSIZE, BLOCK).unwrap();
        control(&device, SET_SIZE_BLOCKS, BLOCKS).unwrap();
        control(&device, SET_FLAGS, flags).unwrap();
        let socket: RawFd = drivers.as_raw_fd();
        control(&device, SET_SOCK, usize::try_from(socket).unwrap()).unwrap();
        let server = thread::spawn(move || serve(ours, latency));
        // Blocks until the device is disconnected.
        let driver = thread::spawn(move || control(&device, DO_IT, 0).unwrap());
        let nbd = Self { name, threads: vec![server, driver] };
        wait_for("the size of the nbd device", || block::number(&nbd.name, "size") > 0);
        // On 6.1 the driver limits requests to 128 KiB by default.
        block::set_attribute(&nbd.name, "queue/max_sectors_kb", "1280");
        nbd
    }

    pub(crate) fn path(&self) -> PathBuf {
        block::path(&self.name)
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        if control(&open(&self.name), DISCONNECT, 0).is_ok() {
            self.threads.drain(..).for_each(|thread| drop(thread.join()));
        }
        // Fails while the other device exists.
        let _ = Command::new("modprobe").args(["-r", "nbd"]).output();
    }
}

fn open(name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(block::path(name)).unwrap()
}

fn control(device: &File, request: libc::Ioctl, argument: usize) -> io::Result<()> {
    // SAFETY: these requests take an integer argument.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Serves requests until the driver disconnects.
/// <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md#transmission-phase>
fn serve(mut socket: UnixStream, latency: fn(usize) -> Duration) {
    let mut data = Vec::new();
    let mut header = [0; 28];
    while socket.read_exact(&mut header).is_ok() {
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(number(0), REQUEST_MAGIC);
        let (command, bytes) = (number(4), number(24) as usize);
        if ![READ, WRITE, FLUSH, DISCARD].contains(&command) {
            return;
        }
        data.resize(if command == DISCARD { 0 } else { bytes }, 0);
        if command == WRITE {
            socket.read_exact(&mut data).unwrap();
        }
        thread::sleep(latency(bytes));
        data.fill(0);
        let without_error = [REPLY_MAGIC.to_be_bytes(), [0; 4]].concat();
        // The reply repeats the request's handle.
        socket.write_all(&[&without_error, &header[8..16]].concat()).unwrap();
        if command == READ {
            socket.write_all(&data).unwrap();
        }
    }
}
