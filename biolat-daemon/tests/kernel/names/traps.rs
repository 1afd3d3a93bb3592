//! Cases in which an I/O could be given the wrong name.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::{
        fd::AsRawFd as _,
        unix::{
            ffi::OsStrExt as _,
            fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
        },
    },
    path::Path,
    ptr,
};

use biolat_model::{
    io_names::{IoFile, class},
    snapshot::SlowIo,
};

use super::{btrfs_bios_lead_to_inode, daemon, recorded, slow_disk, slow_disk_with};
use crate::support::{Folder, daemon::Daemon, file_system, kernel, load::Target, mount::Mount, run};

pub(super) const PAGE: usize = 4096;

/// Creates a file that is on the disk and not in the page cache.
pub(super) fn create(path: &Path) -> File {
    let mut file = File::create_new(path).unwrap();
    file.write_all(&[7; 4 * PAGE]).unwrap();
    file.sync_all().unwrap();
    forget_pages(&file);
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// Begins to read a file, without waiting for it. Whether the kernel accepts.
pub(super) fn will_need(file: &File) -> bool {
    // SAFETY: takes only numbers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_WILLNEED) == 0 }
}

/// Runs something in a process of its own, which only makes system calls, until it has ended. Returns its id.
pub(super) fn in_child(work: impl FnOnce() -> bool) -> u32 {
    // SAFETY: the child only makes system calls.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let succeeded = work();
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!succeeded)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    child.cast_unsigned()
}

fn forget_pages(file: &File) {
    // SAFETY: takes only numbers.
    let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(result, 0);
}

/// A page of memory, private or shared, or of a file.
pub(super) struct Memory(*mut u8);

impl Memory {
    pub(super) fn anonymous() -> Self {
        Self::map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    fn of(file: &File) -> Self {
        Self::map(libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(flags: i32, file: i32) -> Self {
        // SAFETY: a new mapping.
        let address =
            unsafe { libc::mmap(ptr::null_mut(), PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, file, 0) };
        assert_ne!(address, libc::MAP_FAILED);
        // SAFETY: mapped and writable.
        unsafe { address.cast::<u8>().write_volatile(1) };
        Self(address.cast())
    }

    #[expect(clippy::mut_from_ref)]
    pub(super) fn bytes(&self) -> &mut [u8] {
        // SAFETY: mapped for as long as this exists, and used by one thread.
        unsafe { std::slice::from_raw_parts_mut(self.0, PAGE) }
    }
}

impl Memory {
    /// Moves it to swap.
    pub(super) fn page_out(&self) {
        // SAFETY: mapped for as long as this exists.
        assert_eq!(unsafe { libc::madvise(self.0.cast(), PAGE, libc::MADV_PAGEOUT) }, 0);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped above.
        unsafe { libc::munmap(self.0.cast(), PAGE) };
    }
}

/// The I/Os of data that are recorded while something runs.
pub(super) fn data_ios(daemon: &Daemon, op: &str, load: impl FnOnce()) -> Vec<SlowIo> {
    let (mut ios, ()) = recorded(daemon, load);
    ios.retain(|io| io.op == op && io.names.class.as_deref().is_none_or(|class| class == class::FILE));
    assert!(!ios.is_empty());
    ios
}

pub(super) fn file_of(io: &SlowIo) -> &IoFile {
    io.names.file.as_ref().unwrap_or_else(|| panic!("{io:?}"))
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_files_that_changed() {
    let disk = slow_disk();
    let mount = Mount::new_ext4("names-changed", &disk.path());
    let folder = mount.folder();
    let daemon = daemon(&[]);
    let path = folder.0.join("old");
    let file = create(&path);
    let inode = file.metadata().unwrap().ino();
    let buffer = Memory::anonymous();
    let read = || file.read_exact_at(buffer.bytes(), 0).unwrap();
    let only = |file: &IoFile, name: &str, removed: bool| {
        assert_eq!((file.inode, file.removed), (inode, removed), "{file:?}");
        assert_eq!(file.path, format!("/files/{name}"));
    };

    data_ios(&daemon, "read", read).iter().for_each(|io| only(file_of(io), "old", false));
    let renamed = folder.0.join("a\u{1b}[31m\nname");
    fs::rename(&path, &renamed).unwrap();
    data_ios(&daemon, "read", read)
        .iter()
        .for_each(|io| only(file_of(io), "a\u{fffd}[31m\u{fffd}name", false));
    fs::remove_file(&renamed).unwrap();
    data_ios(&daemon, "read", read)
        .iter()
        .for_each(|io| only(file_of(io), "a\u{fffd}[31m\u{fffd}name", true));

    // ext4 uses the lowest free inode.
    drop(file);
    let file = create(&folder.0.join("new"));
    assert_eq!(file.metadata().unwrap().ino(), inode);
    let ios = data_ios(&daemon, "read", || file.read_exact_at(buffer.bytes(), 0).unwrap());
    ios.iter().for_each(|io| only(file_of(io), "new", false));
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn truncates_deep_paths() {
    let disk = slow_disk();
    let mount = Mount::new_ext4("names-deep", &disk.path());
    let daemon = daemon(&[]);
    // The path is too long for one call.
    let before = std::env::current_dir().unwrap();
    std::env::set_current_dir(mount.place()).unwrap();
    for level in 0..300 {
        let name = format!("level-{level:03}");
        fs::create_dir(&name).unwrap();
        std::env::set_current_dir(&name).unwrap();
    }
    let file = create(Path::new("data"));
    let buffer = Memory::anonymous();
    let ios = data_ios(&daemon, "read", || file.read_exact_at(buffer.bytes(), 0).unwrap());
    std::env::set_current_dir(before).unwrap();
    let levels: String = (291..300).map(|level| format!("/level-{level:03}")).collect();
    for io in &ios {
        assert_eq!(file_of(io).path, format!("/…{levels}/data"));
    }
}

/// Names of the maximum length, which are not valid UTF-8.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_are_complete() {
    let disk = slow_disk();
    let mount = Mount::new_ext4("names-long", &disk.path());
    let daemon = daemon(&[]);
    let name = [b'\xe9'; 255];
    let file = create(&Path::new(mount.place()).join(std::ffi::OsStr::from_bytes(&name)));
    let buffer = Memory::anonymous();
    let ios = data_ios(&daemon, "read", || file.read_exact_at(buffer.bytes(), 0).unwrap());
    for io in &ios {
        assert_eq!(file_of(io).path, format!("/{}", "\u{fffd}".repeat(255)));
    }
}

/// The buffer of a direct I/O belongs to another file, in shared memory or on a disk.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn buffer_is_not_the_file() {
    for file_system in ["ext4", "btrfs"].into_iter().filter(|name| file_system::is_there(name)) {
        let disk = slow_disk();
        let mount = Mount::with_new(file_system, "names-buffer", &disk.path());
        let shared = Folder::new("names-shared", true);
        let daemon = daemon(&[]);
        let path = Path::new(mount.place()).join("data");
        let file = create(&path);
        let other = Path::new(mount.place()).join("buffer");
        drop(create(&other));
        drop(create_in_memory(&shared));
        for buffer_path in [shared.0.join("buffer"), other] {
            let buffer = OpenOptions::new().read(true).write(true).open(&buffer_path).unwrap();
            let buffer = Memory::of(&buffer);
            run("sync", &[]);
            let ios = data_ios(&daemon, "read", || file.read_exact_at(buffer.bytes(), 0).unwrap());
            for io in &ios {
                match &io.names.file {
                    Some(file) => assert_eq!(file.shown_path(), path.to_str().unwrap()),
                    None => {
                        assert!(io.names.file_unknown.as_ref().unwrap().starts_with("direct I/O"), "{io:?}")
                    }
                }
                assert!(io.names.file.is_some() || file_system == "btrfs" && !btrfs_bios_lead_to_inode());
            }
        }
    }
}

fn create_in_memory(folder: &Folder) -> File {
    let mut file = File::create_new(folder.0.join("buffer")).unwrap();
    file.write_all(&[0; PAGE]).unwrap();
    file
}

/// Parent and child share the pages of a buffer after a fork, so its owner is unknown. A process that has replaced its memory
/// is not related to it.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn shared_buffer_names_no_relative() {
    if !file_system::is_there("btrfs") {
        return kernel::skip("there is no btrfs");
    }
    let disk = slow_disk();
    let mount = Mount::with_new("btrfs", "names-fork", &disk.path());
    let daemon = daemon(&[]);
    let file = create(&Path::new(mount.place()).join("data"));
    let buffer = Memory::anonymous();
    let ios = data_ios(&daemon, "read", || {
        in_child(|| {
            // SAFETY: a page of memory, and an open file.
            unsafe { libc::pread(file.as_raw_fd(), buffer.0.cast(), PAGE, 0) == PAGE as isize }
        });
    });
    for io in &ios {
        let names = &io.names;
        // The kernel copies the page when it pins it, so it may already belong to the child alone.
        assert!(names.process.as_ref().is_none_or(|process| process.id != std::process::id()), "{io:?}");
        assert!(names.process.is_some() || names.process_unknown.is_some(), "{io:?}");
    }
}

/// Direct I/O on a disk, with flushes and FUA writes. The last completion of a FUA write has no data left.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn raw_device_is_a_class() {
    // With a volatile cache.
    let disk = slow_disk_with(&[("cache_size", "8")]);
    let daemon = daemon(&[]);
    let (ios, ()) = recorded(&daemon, || {
        Target::open(&disk.path()).read(4);
        Target::open_synchronous(&disk.path()).write(4);
        Target::open(&disk.path()).flush();
        File::open(disk.path()).unwrap().read_exact_at(&mut [0; PAGE], 0).unwrap();
    });
    let own = std::process::id();
    let mut processes = 0;
    for io in &ios {
        assert!(io.names.file.is_none(), "{io:?}");
        let class = io.names.class.as_deref();
        assert!(class == Some(class::RAW_DEVICE) || io.names.file_unknown.is_some(), "{io:?}");
        processes += usize::from(io.names.process.as_ref().is_some_and(|process| process.id == own));
    }
    println!("{} I/Os, {processes} of this process", ios.len());
    assert!(processes >= 8, "{processes}");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn options_limit_names() {
    let disk = slow_disk();
    let mount = Mount::new_ext4("names-options", &disk.path());
    let file = create(&Path::new(mount.place()).join("data"));
    let buffer = Memory::anonymous();
    for (option, has_process) in [("off", false), ("process", true)] {
        let daemon = daemon(&["--slow-names", option]);
        let (ios, ()) = recorded(&daemon, || file.read_exact_at(buffer.bytes(), 0).unwrap());
        let read = ios.iter().find(|io| io.op == "read").unwrap();
        assert_eq!((read.names.file.is_some(), read.names.class.is_some()), (false, false), "{read:?}");
        assert_eq!(read.names.process.is_some(), has_process, "{read:?}");
    }
}
