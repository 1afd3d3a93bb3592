//! Access to kernel memory by DMA, with QEMU's `edu` device, for states that no setting can produce.
//!
//! <https://www.qemu.org/docs/master/specs/edu.html>

use std::{
    fs::{self, OpenOptions},
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileExt as _, OpenOptionsExt as _},
    },
    path::PathBuf,
    thread,
    time::Duration,
};

/// The device's registers, mapped for the life of the process.
pub(crate) struct KernelMemory(*mut u8);

const VENDOR_AND_DEVICE: (&str, &str) = ("0x1234", "0x11e8");
const SIZE: usize = 1 << 20;
const SOURCE: usize = 0x80;
const DESTINATION: usize = 0x88;
const COUNT: usize = 0x90;
const COMMAND: usize = 0x98;
const START: u64 = 1;
const TO_MEMORY: u64 = 2;
/// The device's buffer, in its own address space.
const BUFFER: u64 = 0x40000;

impl KernelMemory {
    pub(crate) fn open() -> Self {
        let folder = find();
        fs::write(folder.join("enable"), "1").unwrap();
        let configuration = OpenOptions::new().read(true).write(true).open(folder.join("config")).unwrap();
        // Enables memory space and bus mastering.
        configuration.write_all_at(&[0x06], 4).unwrap();
        let registers = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_SYNC)
            .open(folder.join("resource0"))
            .unwrap();
        // SAFETY: a new mapping of a file of this length.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                registers.as_raw_fd(),
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(address.cast())
    }

    /// Returns the value at a kernel address.
    pub(crate) fn read(&self, address: u64) -> u64 {
        self.copy(physical(address), BUFFER, START);
        // The CPU cannot read the buffer, so copy it to one of our pages.
        let page = Page::new();
        self.copy(BUFFER, page.physical(), START | TO_MEMORY);
        page.number()
    }

    pub(crate) fn write(&self, address: u64, value: u64) {
        let page = Page::new();
        page.set_number(value);
        self.copy(page.physical(), BUFFER, START);
        self.copy(BUFFER, physical(address), START | TO_MEMORY);
    }

    fn copy(&self, from: u64, to: u64, command: u64) {
        self.set(SOURCE, from);
        self.set(DESTINATION, to);
        self.set(COUNT, 8);
        self.set(COMMAND, command);
        while self.get(COMMAND) & START != 0 {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn set(&self, register: usize, value: u64) {
        // SAFETY: within the mapping, and aligned.
        unsafe { self.0.add(register).cast::<u64>().write_volatile(value) }
    }

    fn get(&self, register: usize) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.add(register).cast::<u64>().read_volatile() }
    }
}

fn find() -> PathBuf {
    let is = |path: &PathBuf| {
        let text = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default().trim().to_owned();
        (text("vendor").as_str(), text("device").as_str()) == VENDOR_AND_DEVICE
    };
    let devices = fs::read_dir("/sys/bus/pci/devices").unwrap().flatten().map(|entry| entry.path());
    devices.into_iter().find(is).expect("the machine lacks QEMU's device edu")
}

/// Start of memory in QEMU's machines.
const MEMORY: u64 = if cfg!(target_arch = "aarch64") { 1 << 30 } else { 0 };

/// Returns the physical address of an address in the direct map of all memory. The lower bits of the map's base are zero unless
/// it is randomized.
fn physical(address: u64) -> u64 {
    MEMORY + (address & ((1 << 39) - 1))
}

/// A locked page.
struct Page(*mut u64);

impl Page {
    fn bytes() -> usize {
        // SAFETY: no precondition.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap()
    }

    fn new() -> Self {
        // SAFETY: a new anonymous mapping.
        let address = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_LOCKED | libc::MAP_POPULATE;
            libc::mmap(std::ptr::null_mut(), Self::bytes(), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(address, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(address.cast())
    }

    fn physical(&self) -> u64 {
        let mut entry = [0; 8];
        let map = fs::File::open("/proc/self/pagemap").unwrap();
        map.read_exact_at(&mut entry, self.0 as u64 / Self::bytes() as u64 * 8).unwrap();
        (u64::from_le_bytes(entry) & ((1 << 55) - 1)) * Self::bytes() as u64
    }

    fn number(&self) -> u64 {
        // SAFETY: our own page.
        unsafe { self.0.read_volatile() }
    }

    fn set_number(&self, value: u64) {
        // SAFETY: as above.
        unsafe { self.0.write_volatile(value) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and not used elsewhere.
        unsafe { libc::munmap(self.0.cast(), Self::bytes()) };
    }
}
