//! A probe that is kept in a BPF file system (`--pin`), as in containers.

use std::{path::Path, process::Command};

use crate::support::{
    Folder,
    awake::Awake,
    bpf::programs,
    daemon::{Daemon, program, wait_for},
    diskstats::READ,
    load::Target,
    loop_device::LoopDevice,
    run,
    settled::{compare, settled},
};

/// A BPF file system.
struct BpfFileSystem(Folder);

impl BpfFileSystem {
    fn mount(name: &str) -> Self {
        let folder = Folder::new(name, true);
        run("mount", &["-t", "bpf", "bpf", folder.0.to_str().unwrap()]);
        Self(folder)
    }

    fn path(&self) -> &Path {
        &self.0.0
    }

    fn probes(&self) -> usize {
        // The kernel has files of its own there.
        let names = self.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with("biolat-probe-")).count()
    }
}

impl Drop for BpfFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

fn start(device: &str, pin: &Path, more: &[&str]) -> Daemon {
    let own = ["--interval", "100ms", "--device", device, "--pin", pin.to_str().unwrap()];
    Daemon::start(&[&own[..], more].concat())
}

/// The exit code and what is printed.
fn output(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(program()).args(arguments).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).unwrap())
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_probe_is_kept_in_a_folder_until_it_is_removed() {
    let device = LoopDevice::attach("pins", true);
    let (name, bpf) = (device.name.as_str(), BpfFileSystem::mount("pins-bpf"));
    let _awake = Awake::all_cpus();
    let others = programs();
    let mut daemon = start(name, bpf.path(), &[]);
    let before = settled(&daemon, name);
    for round in 0..20 {
        let target = Target::open(&device.path());
        target.read(50);
        if round % 2 == 0 {
            drop(daemon);
        } else {
            assert_eq!(daemon.terminate().0.code(), Some(0));
        }
        target.read(50);
        target.write(20);
        daemon = start(name, bpf.path(), &[]);
        assert!(daemon.log().iter().any(|line| line.contains("continuing where")), "{:#?}", daemon.log());
        let after = settled(&daemon, name);
        compare(name, &before, &after).assert_few_unseen();
    }
    assert_eq!(bpf.probes(), 1);
    // Another version replaces it.
    drop(daemon);
    let daemon = start(name, bpf.path(), &["--slow", "100ms"]);
    let after = settled(&daemon, name);
    compare(name, &before, &after);
    assert_eq!(bpf.probes(), 1);

    let folder = bpf.path().to_str().unwrap();
    let (code, printed) = output(&["--listen", "127.0.0.1:0", "--pin", folder]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("another biolat keeps its probe in"), "{printed}");
    let (code, printed) = output(&["unpin", folder]);
    assert!(code == Some(1) && printed.contains("another biolat"), "{printed}");
    let (_, printed) = output(&["check", "--pin", folder]);
    assert!(printed.contains("a running biolat keeps its probe in"), "{printed}");

    drop(daemon);
    assert!(!programs().is_subset(&others), "the probe goes on without a daemon");
    let (_, printed) = output(&["check", "--pin", folder]);
    assert!(printed.contains("a probe without a daemon is kept in"), "{printed}");
    let (code, printed) = output(&["unpin", folder]);
    assert!(code == Some(0) && printed.contains("removed"), "{printed}");
    wait_for("the kernel to free the probe", || programs().is_subset(&others));
    assert_eq!(bpf.probes(), 0);
    let daemon = start(name, bpf.path(), &[]);
    assert_eq!(daemon.fresh().count(name, READ), 0);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn other_folders_are_refused() {
    let folder = Folder::new("pins-tmpfs", true);
    let path = folder.0.to_str().unwrap();
    for (pin, expected) in
        [(path, "is not on a BPF file system"), ("/nonexistent", "cannot open /nonexistent")]
    {
        let (code, printed) = output(&["--listen", "127.0.0.1:0", "--pin", pin]);
        assert_eq!((code, printed.lines().count()), (Some(1), 1), "{printed}");
        assert!(printed.contains(expected), "{printed}");
        assert!(output(&["check", "--pin", pin]).1.contains(expected));
    }
}
