//! Names of I/O whose file is mounted elsewhere, whose process has ended, or that has no file at all.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use biolat_model::io_names::class;

use super::{
    daemon, recorded, slow_disk,
    traps::{Memory, PAGE, create, data_ios, file_of, in_child, will_need},
};
use crate::support::{Folder, mount::Mount, null_blk::NullBlk, run};

/// Runs a script in a mount namespace of its own. It ends with `exec`, so it is one process, whose id is returned.
fn in_container(script: &str) -> u32 {
    let mut command = Command::new("unshare");
    let mut child = command.args(["-m", "sh", "-c", script]).stderr(Stdio::null()).spawn().unwrap();
    assert!(child.wait().unwrap().success(), "{script}");
    child.id()
}

/// A path in a container is shown as the path on the host. A file system that only the container has mounted has no mount point
/// here, so the path begins at its root.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn names_files_of_containers() {
    let (disk, own_disk) = (slow_disk(), slow_disk());
    let mount = Mount::new_ext4("names-container", &disk.path());
    let volume = mount.folder();
    drop(create(&volume.0.join("data")));
    let own_mount = Mount::new_ext4("names-container-own", &own_disk.path());
    drop(create(&Path::new(own_mount.place()).join("data")));
    drop(own_mount);
    let daemon = daemon(&[]);
    let place = Folder::new("names-container-place", true);
    let inside = place.0.display();
    let on_host = volume.0.join("data");
    for (source, path, mount_point, shown) in [
        (
            format!("--bind {}", volume.0.display()),
            "/files/data",
            Some(mount.place()),
            on_host.to_str().unwrap(),
        ),
        (format!("-t ext4 {}", own_disk.path().display()), "/data", None, "/data"),
    ] {
        let read = format!("exec dd if={inside}/data of=/dev/null bs=4k count=1 iflag=direct");
        let mut pid = 0;
        let ios =
            data_ios(&daemon, "read", || pid = in_container(&format!("mount {source} {inside} && {read}")));
        let named = ios.iter().filter(|io| io.names.file.is_some()).inspect(|io| {
            let file = file_of(io);
            assert_eq!((&*file.path, file.mount.as_deref()), (path, mount_point), "{io:?}");
            assert_eq!((file.shown_path().as_str(), &*file.file_system), (shown, "ext4"), "{io:?}");
            let process = io.names.process.as_ref().unwrap_or_else(|| panic!("{io:?}"));
            assert_eq!((process.id, &*process.command), (pid, "dd"), "{io:?}");
        });
        assert_eq!(named.count(), 1, "{ios:?}");
        assert!(ios.iter().all(|io| io.names.file.is_some() || io.names.file_unknown.is_some()), "{ios:?}");
    }
}

/// A process submits reads ahead and dirties pages, and ends before this I/O completes. The file is known, the process is not.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn ended_process_is_not_named() {
    let disk = slow_disk();
    let mount = Mount::new_ext4("names-ended", &disk.path());
    let daemon = daemon(&[]);
    let path = Path::new(mount.place()).join("data");
    drop(create(&path));
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let check = |op: &str, submit: &dyn Fn() -> bool, finish: &dyn Fn()| {
        let mut child = 0;
        let ios = data_ios(&daemon, op, || {
            child = in_child(submit);
            finish();
        });
        assert!(ios.iter().any(|io| io.names.file.is_some()), "{ios:?}");
        for io in &ios {
            match &io.names.file {
                Some(file) => assert_eq!(file.shown_path(), path.to_str().unwrap(), "{io:?}"),
                // The superblock, without BTF of modules.
                None => assert!(io.names.file_unknown.is_some(), "{io:?}"),
            }
            match &io.names.process {
                Some(process) => assert_ne!(process.id, child, "{io:?}"),
                None => assert!(io.names.process_unknown.is_some(), "{io:?}"),
            }
        }
    };
    check("read", &|| will_need(&file), &|| thread::sleep(Duration::from_millis(200)));
    check("write", &|| file.write_at(&[3; 4 * PAGE], 0).is_ok(), &|| drop(run("sync", &[])));
}

/// A device for swap, in use until dropped.
struct Swap(NullBlk);

impl Swap {
    fn on(disk: NullBlk) -> Self {
        let path = disk.path();
        run("mkswap", &[path.to_str().unwrap()]);
        run("swapon", &[path.to_str().unwrap()]);
        Self(disk)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(self.0.path()).output();
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn swap_is_a_class() {
    let swap = Swap::on(slow_disk());
    let daemon = daemon(&[]);
    let pages: Vec<_> = (0..16).map(|_| Memory::anonymous()).collect();
    let (ios, ()) = recorded(&daemon, || {
        // A page that has just been written is still in memory, and a page that a CPU is about to put on a list is not moved.
        for _ in 0..5 {
            pages.iter().for_each(Memory::page_out);
            thread::sleep(Duration::from_millis(200));
            pages.iter().for_each(|page| assert_eq!(page.bytes()[0], 1));
        }
    });
    let of = |op: &str| ios.iter().filter(|io| io.device == swap.0.name && io.op == op).count();
    println!("{} writes, {} reads", of("write"), of("read"));
    assert!(of("write") > 0 && of("read") > 0, "{ios:?}");
    let mut waiting = 0;
    for io in &ios {
        let names = &io.names;
        assert_eq!((names.class.as_deref(), names.file.is_some()), (Some(class::SWAP), false), "{io:?}");
        assert!(names.process.is_some() || names.process_unknown.is_some(), "{io:?}");
        let own = names.process.as_ref().filter(|process| process.id == std::process::id());
        waiting += usize::from(io.op == "read" && own.is_some());
    }
    println!("{waiting} reads of this process");
}
