//! I/O past the page cache, whose count is known.

use std::{
    fs::{File, OpenOptions},
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileExt as _, OpenOptionsExt as _},
    },
    path::Path,
    thread,
};

const BLOCK: usize = 4096;

/// Aligned as direct I/O wants it.
#[derive(Clone)]
#[repr(align(4096))]
struct Block([u8; BLOCK]);

pub(crate) struct Target(File);

impl Target {
    pub(crate) fn open(path: &Path) -> Self {
        Self::with_flags(path, libc::O_DIRECT)
    }

    /// Each write is on stable storage when it returns: FUA, or what the kernel does in its place.
    pub(crate) fn open_synchronous(path: &Path) -> Self {
        Self::with_flags(path, libc::O_DIRECT | libc::O_DSYNC)
    }

    fn with_flags(path: &Path, flags: i32) -> Self {
        Self(OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap())
    }

    /// Reads single blocks all over the first 128 MiB.
    pub(crate) fn read(&self, count: u64) {
        let mut block = Box::new(Block([0; BLOCK]));
        for number in 0..count {
            self.0.read_exact_at(&mut block.0, place(number)).unwrap();
        }
    }

    pub(crate) fn write(&self, count: u64) {
        let block = Box::new(Block([0x5a; BLOCK]));
        for number in 0..count {
            self.0.write_all_at(&block.0, place(number)).unwrap();
        }
    }

    /// Writes all of it, so that reads find data and not holes.
    pub(crate) fn fill(&self) {
        let chunk = vec![Block([0xa5; BLOCK]); 256];
        // SAFETY: blocks are plain bytes, one after another.
        let bytes = unsafe { std::slice::from_raw_parts(chunk.as_ptr().cast::<u8>(), chunk.len() * BLOCK) };
        for number in 0..512_u64 {
            self.0.write_all_at(bytes, number << 20).unwrap();
        }
    }

    pub(crate) fn flush(&self) {
        self.0.sync_all().unwrap();
    }

    /// Discards 64 KiB at a time.
    pub(crate) fn discard(&self, count: u64) {
        const BLKDISCARD: libc::Ioctl = 0x1277;
        for number in 0..count {
            let range = [(128 << 20) + number * 65536, 65536_u64];
            // SAFETY: the ioctl reads two numbers.
            let result = unsafe { libc::ioctl(self.0.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        }
    }
}

fn place(number: u64) -> u64 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % (128 << 8) * BLOCK as u64
}

/// Everything at once, from two threads.
pub(crate) fn mixed(path: &Path) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let target = Target::open(path);
            for _ in 0..20 {
                target.read(200);
                target.discard(10);
            }
            target.flush();
        });
        scope.spawn(|| {
            let target = Target::open(path);
            let synchronous = Target::open_synchronous(path);
            for _ in 0..20 {
                target.write(100);
                synchronous.write(20);
                target.flush();
            }
        });
    });
}
