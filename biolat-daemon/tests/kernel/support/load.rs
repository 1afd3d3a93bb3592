//! Direct I/O with a known number of operations.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileExt as _, OpenOptionsExt as _},
    },
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{Folder, block};

const BLOCK: usize = 4096;

/// A block with the alignment required by direct I/O.
#[derive(Clone)]
#[repr(align(4096))]
struct Block([u8; BLOCK]);

pub(crate) struct Target(File);

impl Target {
    pub(crate) fn open(path: &Path) -> Self {
        Self::with_flags(path, libc::O_DIRECT)
    }

    /// Opens with O_DSYNC: each write is on stable storage when it returns, by FUA or the kernel's emulation of it.
    pub(crate) fn open_synchronous(path: &Path) -> Self {
        Self::with_flags(path, libc::O_DIRECT | libc::O_DSYNC)
    }

    fn with_flags(path: &Path, flags: i32) -> Self {
        Self(OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap())
    }

    /// Reads single blocks scattered over the first 128 MiB.
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

    /// Writes this many bytes in one call.
    pub(crate) fn write_at(&self, place: u64, bytes: usize) {
        self.try_write_at(place, bytes).unwrap();
    }

    pub(crate) fn try_write_at(&self, place: u64, bytes: usize) -> io::Result<()> {
        self.0.write_all_at(bytes_of(&vec![Block([0x3c; BLOCK]); bytes / BLOCK]), place)
    }

    /// Reads the first block `count` times.
    pub(crate) fn read_first(&self, count: u64) {
        for _ in 0..count {
            self.try_read_at(0, BLOCK).unwrap();
        }
    }

    /// Reads this many bytes in one call.
    pub(crate) fn try_read_at(&self, place: u64, bytes: usize) -> io::Result<()> {
        let mut blocks = vec![Block([0; BLOCK]); bytes / BLOCK];
        // SAFETY: blocks are plain, contiguous bytes, and not shared.
        let buffer = unsafe { std::slice::from_raw_parts_mut(blocks.as_mut_ptr().cast::<u8>(), bytes) };
        self.0.read_exact_at(buffer, place)
    }

    /// Fills the device, so reads find data, not holes.
    pub(crate) fn fill(&self) {
        let chunk = vec![Block([0xa5; BLOCK]); 256];
        for number in 0..512_u64 {
            self.0.write_all_at(bytes_of(&chunk), number << 20).unwrap();
        }
    }

    pub(crate) fn flush(&self) {
        self.0.sync_all().unwrap();
    }

    /// Discards `count` ranges of 64 KiB.
    pub(crate) fn discard(&self, place: u64, count: u64) {
        const BLKDISCARD: libc::Ioctl = 0x1277;
        self.on_ranges(BLKDISCARD, place, count);
    }

    /// Zeroes `count` ranges of 64 KiB, with a command if the device has one, otherwise by writing data.
    pub(crate) fn zero(&self, place: u64, count: u64) {
        const BLKZEROOUT: libc::Ioctl = 0x127f;
        self.on_ranges(BLKZEROOUT, place, count);
    }

    fn on_ranges(&self, request: libc::Ioctl, place: u64, count: u64) {
        for number in 0..count {
            self.control(request, &[place + number * RANGE, RANGE]);
        }
    }

    /// Calls an ioctl whose argument is an array of numbers.
    pub(crate) fn control(&self, request: libc::Ioctl, numbers: &[u64]) {
        // SAFETY: the caller passes as many numbers as the kernel reads for this request.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request, numbers.as_ptr()) };
        assert_eq!(result, 0, "ioctl {request:#x}: {}", io::Error::last_os_error());
    }
}

fn bytes_of(blocks: &[Block]) -> &[u8] {
    // SAFETY: blocks are plain, contiguous bytes.
    unsafe { std::slice::from_raw_parts(blocks.as_ptr().cast::<u8>(), blocks.len() * BLOCK) }
}

const RANGE: u64 = 64 << 10;

fn place(number: u64) -> u64 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % (128 << 8) * BLOCK as u64
}

/// Rounds of [`mixed`] on each of two CPUs.
const ROUNDS: u64 = 20;

/// Minimum number of each op in [`mixed`].
pub(crate) const READS: u64 = 2 * ROUNDS * 100;
pub(crate) const WRITES: u64 = 2 * ROUNDS * 60;
pub(crate) const DISCARDS: u64 = 2 * ROUNDS * 5;
pub(crate) const ZEROES: u64 = 2 * ROUNDS * 2;

/// All ops at once, from two CPUs: reads, writes, synchronous writes, flushes, zeroing, and discards if supported.
pub(crate) fn mixed(path: &Path) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let discards = block::number(name, "queue/discard_max_bytes") > 0;
    on_two_cpus(|cpu| {
        let target = Target::open(path);
        let synchronous = Target::open_synchronous(path);
        for round in 0..ROUNDS {
            let place = (128 << 20) + (cpu * ROUNDS + round) * 8 * RANGE;
            target.read(100);
            target.write(50);
            synchronous.write(10);
            target.flush();
            target.zero(place, 2);
            if discards {
                target.discard(place + 2 * RANGE, 5);
            }
        }
    });
}

/// Tells threads to stop, even if the test panics.
#[derive(Default)]
pub(crate) struct StopFlag(AtomicBool);

impl StopFlag {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the flag when the result is dropped.
    pub(crate) fn set_on_drop(&self) -> impl Drop + '_ {
        struct SetOnDrop<'a>(&'a AtomicBool);
        impl Drop for SetOnDrop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        SetOnDrop(&self.0)
    }
}

/// Reads and writes at short intervals until the flag is set.
pub(crate) fn keep_busy(device: &Path, stop: &StopFlag) {
    let target = Target::open(device);
    while !stop.is_set() {
        target.read(20);
        target.write(20);
        target.flush();
        thread::sleep(Duration::from_millis(5));
    }
}

/// Reads at short intervals until the flag is set.
pub(crate) fn keep_reading(device: &Path, stop: &StopFlag) {
    let target = Target::open(device);
    while !stop.is_set() {
        target.read(10);
        thread::sleep(Duration::from_millis(20));
    }
}

/// Reads and writes single blocks from twelve threads until the flag is set. Asserts that no call fails, and returns the number
/// of calls.
pub(crate) fn read_and_write(device: &Path, stop: &StopFlag) -> u64 {
    let calls = AtomicU64::new(0);
    thread::scope(|scope| {
        for worker in 0..12_u64 {
            let calls = &calls;
            scope.spawn(move || {
                let target = Target::open(device);
                for number in (0..).take_while(|_| !stop.is_set()) {
                    let place = (worker << 24) + (number % 1000) * BLOCK as u64;
                    let done = if worker % 2 == 0 {
                        target.try_read_at(place, BLOCK)
                    } else {
                        target.try_write_at(place, BLOCK)
                    };
                    done.unwrap();
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    calls.into_inner()
}

/// A reusable barrier for two threads. It spins, so both continue at the same time without a system call.
#[derive(Default)]
pub(crate) struct SpinBarrier(AtomicU64);

impl SpinBarrier {
    /// Waits up to 10 s for the other thread to reach this round.
    pub(crate) fn wait_for_round(&self, round: u64) {
        let began = Instant::now();
        self.0.fetch_add(1, Ordering::AcqRel);
        while self.0.load(Ordering::Acquire) < 2 * round {
            assert!(
                began.elapsed() < Duration::from_secs(10),
                "the other thread did not reach round {round}"
            );
            std::hint::spin_loop();
        }
    }
}

/// Runs `work` on two threads at once, one on each of the first two CPUs.
pub(crate) fn on_two_cpus(work: impl Fn(u64) + Sync) {
    thread::scope(|scope| {
        for cpu in 0..2 {
            let work = &work;
            scope.spawn(move || {
                pin_to_cpu(cpu);
                work(cpu as u64);
            });
        }
    });
}

/// Pins the calling thread to a CPU.
pub(crate) fn pin_to_cpu(cpu: usize) {
    // SAFETY: the set is a plain bit mask, and 0 means the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set), 0);
    }
}

/// Runs threads that each write to their own file and call fsync after every write.
pub(crate) fn call_fsync(folder: &Folder, programs: u64, pause: Duration, stop: &StopFlag) {
    thread::scope(|scope| {
        for program in 0..programs {
            let file = File::create(folder.0.join(program.to_string())).unwrap();
            scope.spawn(move || {
                while !stop.is_set() {
                    file.write_all_at(&[1; 4096], 0).unwrap();
                    file.sync_all().unwrap();
                    thread::sleep(pause);
                }
            });
        }
    });
}
