//! The file and the process of slow I/Os: each is named rightly, or is unknown with a reason.

mod elsewhere;
mod stacks;
mod traps;

use std::{fs, path::Path, process::Command};

use biolat_model::{io_names::class, snapshot::SlowIo};

use crate::support::{
    block, daemon::Daemon, file_system, kernel, load::Target, mount::Mount, null_blk::NullBlk, run,
    slow_log::all_slow_ios,
};

/// Every I/O of such a disk is slow: the daemon records I/Os of at least 33 ms.
const LATENCY_NS: u64 = 40_000_000;

fn slow_disk() -> NullBlk {
    slow_disk_with(&[])
}

fn slow_disk_with(settings: &[(&str, &str)]) -> NullBlk {
    let common = [("memory_backed", "1"), ("discard", "1"), ("submit_queues", "2")];
    NullBlk::with_latency(LATENCY_NS, &[&common, settings].concat())
}

fn daemon(options: &[&str]) -> Daemon {
    Daemon::start(&[&["--interval", "500ms", "--device", "nullb.*", "--slow", "33ms"], options].concat())
}

/// A way to do I/O with fio.
struct Load {
    label: &'static str,
    options: &'static [&'static str],
    /// Whether the process of each I/O is known.
    names_process: bool,
}

const DIRECT_READ: &[&str] = &["--ioengine=psync", "--direct=1", "--rw=randread", "--io_size=64k"];
const LOADS: [Load; 9] = [
    Load { label: "direct read, sync", options: DIRECT_READ, names_process: true },
    Load {
        label: "direct write, sync",
        options: &["--ioengine=psync", "--direct=1", "--rw=randwrite", "--io_size=64k"],
        names_process: true,
    },
    Load {
        label: "direct read, libaio",
        options: &["--ioengine=libaio", "--direct=1", "--rw=randread", "--io_size=128k", "--iodepth=8"],
        names_process: true,
    },
    Load {
        label: "direct read, io_uring",
        options: &["--ioengine=io_uring", "--direct=1", "--rw=randread", "--io_size=128k", "--iodepth=8"],
        names_process: true,
    },
    Load {
        label: "direct read, io_uring with SQPOLL",
        options: &[
            "--ioengine=io_uring",
            "--sqthread_poll=1",
            "--direct=1",
            "--rw=randread",
            "--io_size=128k",
            "--iodepth=8",
        ],
        names_process: true,
    },
    Load {
        label: "buffered read",
        options: &["--ioengine=psync", "--rw=randread", "--io_size=64k"],
        names_process: true,
    },
    Load {
        label: "page fault",
        options: &["--ioengine=mmap", "--rw=randread", "--io_size=64k"],
        names_process: false,
    },
    Load {
        label: "sequential read, with readahead",
        options: &["--ioengine=psync", "--rw=read", "--io_size=1m"],
        names_process: false,
    },
    Load {
        label: "write and fsync",
        options: &["--ioengine=psync", "--rw=randwrite", "--io_size=64k", "--fsync=4"],
        names_process: false,
    },
];

/// What the daemon must know of the I/Os of a load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    File,
    FileAndProcess,
}

impl Load {
    /// What is known on an ordinary file system.
    fn known(&self) -> Known {
        if self.names_process { Known::FileAndProcess } else { Known::File }
    }

    /// Runs fio on a file as one process, and returns its id.
    fn run(&self, file: &Path) -> u32 {
        let file = format!("--filename={}", file.display());
        let mut fio = Command::new("fio");
        fio.args(["--name=names", "--thread", "--bs=4k", "--size=4m", "--norandommap", &file]);
        let child = fio.args(self.options).stdout(std::process::Stdio::null()).spawn().unwrap();
        let pid = child.id();
        assert!(child.wait_with_output().unwrap().status.success(), "{}", self.label);
        pid
    }
}

/// The I/Os recorded while something runs.
fn recorded<T>(daemon: &Daemon, load: impl FnOnce() -> T) -> (Vec<SlowIo>, T) {
    daemon.fresh();
    let before = all_slow_ios(daemon).last().map_or(0, |io| io.number);
    let done = load();
    daemon.fresh();
    let mut ios = all_slow_ios(daemon);
    // A new ext4 zeroes its inode tables in the background.
    let is_background =
        |io: &SlowIo| io.names.process.as_ref().is_some_and(|process| process.command == "ext4lazyinit");
    ios.retain(|io| io.number > before && ["read", "write"].contains(&io.op.as_str()) && !is_background(io));
    (ios, done)
}

/// Asserts that each I/O is of this file or has another class, that a process called fio is this one, and that unknown ones have
/// a reason. Returns the number of I/Os of the file, and how many of them have a process.
fn check(ios: &[SlowIo], path: &str, pid: u32) -> (usize, usize) {
    let mut named = (0, 0);
    for io in ios {
        let names = &io.names;
        match (&names.file, names.class.as_deref()) {
            (Some(file), Some(class::FILE)) => {
                assert_eq!(file.shown_path(), path, "{io:?}");
                named.0 += 1;
                named.1 += usize::from(names.process.is_some());
            }
            (None, Some(class::JOURNAL | class::METADATA)) => {}
            (None, None) => assert!(names.file_unknown.is_some(), "{io:?}"),
            _ => panic!("{io:?}"),
        }
        match &names.process {
            Some(process) if process.command == "fio" => assert_eq!(process.id, pid, "{io:?}"),
            Some(process) => assert!(!process.command.is_empty(), "{io:?}"),
            None => assert!(names.process_unknown.is_some(), "{io:?}"),
        }
    }
    named
}

/// Does loads on a file of a new file system on this device, whose drives are slow. `known` says what must be named.
fn check_file_system(file_system: &str, device: &str, label: &str, known: impl Fn(&Load) -> Known) {
    let mount = Mount::with_new(file_system, "names", &block::path(device));
    let folder = mount.folder();
    let file = folder.0.join("data");
    fs::write(&file, vec![1; 4 << 20]).unwrap();
    run("sync", &[]);
    let daemon = daemon(&[]);
    for load in LOADS.iter().filter(|load| !load.label.contains("io_uring") || kernel::allows_io_uring()) {
        let (mut ios, pid) = recorded(&daemon, || load.run(&file));
        // Reading does not write, but the file system may do so in the background.
        ios.retain(|io| io.op == "read" || load.label.contains("write"));
        let (files, processes) = check(&ios, file.to_str().unwrap(), pid);
        let data = ios.iter().filter(|io| io.names.class.as_deref().is_none_or(|class| class == class::FILE));
        let data = data.count();
        println!("names: {label} | {} | file {files} of {data} | process {processes} of {files}", load.label);
        for io in ios.iter().filter(|io| io.names.file.is_none() || io.names.process.is_none()).take(3) {
            println!("  {} {:?}", io.op, io.names);
        }
        assert!(data > 0, "{}", load.label);
        let known = known(load);
        assert!(known == Known::Nothing || files == data, "{}: {files} of {data}", load.label);
        assert!(
            known != Known::FileAndProcess || processes == files,
            "{}: {processes} of {files}",
            load.label
        );
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_files_and_processes_on_ext4() {
    let disk = slow_disk();
    check_file_system("ext4", &disk.name, "ext4", Load::known);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_files_and_processes_on_xfs() {
    let disk = slow_disk();
    check_file_system("xfs", &disk.name, "xfs", Load::known);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_files_and_processes_on_btrfs() {
    if !file_system::is_there("btrfs") {
        return kernel::skip("there is no btrfs");
    }
    let disk = slow_disk();
    let (writes_directly, bounces) = (btrfs_writes_directly(), btrfs_bounces());
    check_file_system("btrfs", &disk.name, "btrfs", |load| match load.label {
        label if label.starts_with("direct") && !btrfs_bios_lead_to_inode() => Known::Nothing,
        "direct write, sync" if !writes_directly => Known::Nothing,
        "direct write, sync" if bounces => Known::File,
        _ => load.known(),
    });
}

/// Otherwise the buffer of a direct I/O on btrfs leads to the process, and nothing to the file. Since Linux 6.2.
fn btrfs_bios_lead_to_inode() -> bool {
    kernel::module_has_member("btrfs", "btrfs_bio", "inode")
}

/// Whether direct writes on btrfs copy the data of files with checksums, so that the program cannot change it meanwhile. Then
/// nothing leads to the process. The function came with that.
fn btrfs_bounces() -> bool {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    symbols.lines().any(|line| line.ends_with(" bio_iov_iter_bounce"))
}

/// Whether direct writes on btrfs bypass the page cache. Since Linux 6.14 they do not if the file has checksums, until a kernel
/// copies the data instead.
fn btrfs_writes_directly() -> bool {
    const PAGES: u64 = 1024;
    const BYTES: usize = 4096 * PAGES as usize;
    let dirtied = || {
        let counters = fs::read_to_string("/proc/vmstat").unwrap();
        let count = counters.lines().find_map(|line| line.strip_prefix("nr_dirtied ")).unwrap();
        count.parse::<u64>().unwrap()
    };
    let disk = NullBlk::in_memory(&[]);
    let mount = Mount::with_new("btrfs", "names-direct", &disk.path());
    let file = Path::new(mount.place()).join("data");
    fs::write(&file, vec![1; BYTES]).unwrap();
    run("sync", &[]);
    let before = dirtied();
    Target::open(&file).write_at(0, BYTES);
    let dirtied = dirtied() - before;
    println!("names: btrfs dirtied {dirtied} pages for a direct write of {PAGES}");
    dirtied < PAGES
}
