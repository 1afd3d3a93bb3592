//! A probe that is kept in a BPF file system (`--pin`), as in containers.

use std::{fs, path::Path, process::Command};

use crate::{
    kept_probe::{Random, killed_under_load},
    support::{
        Folder,
        awake::Awake,
        bpf::programs,
        bpf_file_system::BpfFileSystem,
        daemon::{Daemon, program, wait_for},
        diskstats::{READ, WRITE},
        load::Target,
        loop_device::LoopDevice,
        settled::{compare, compare_but_for_recursion, settled},
    },
};

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
    let (_, printed) = output(&["check", "--pin", folder, "--sizes", "off"]);
    assert!(printed.contains("cannot be continued, --sizes has changed"), "{printed}");
    let (code, printed) = output(&["unpin", folder]);
    assert!(code == Some(0) && printed.contains("removed"), "{printed}");
    wait_for("the kernel to free the probe", || programs().is_subset(&others));
    assert_eq!(bpf.probes(), 0);
    let daemon = start(name, bpf.path(), &[]);
    assert_eq!(daemon.fresh().count(name, READ), 0);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn killed_at_any_instant_under_load() {
    let rounds = std::env::var("BIOLAT_TEST_KILLS").map_or(20, |rounds| rounds.parse().unwrap());
    let device = LoopDevice::attach("pins-killed", true);
    let (name, bpf) = (device.name.as_str(), BpfFileSystem::mount("pins-killed-bpf"));
    let _awake = Awake::all_cpus();
    let mut random = Random::default();
    let mut daemon = start(name, bpf.path(), &[]);
    let (before, own) = (settled(&daemon, name), programs());
    for _ in 0..rounds {
        daemon = killed_under_load(&device, daemon, &mut random, |_| start(name, bpf.path(), &[]));
        assert!(daemon.log().iter().any(|line| line.contains("continuing where")), "{:#?}", daemon.log());
        compare_but_for_recursion(name, &before, &settled(&daemon, name));
    }
    assert_eq!((bpf.probes(), programs()), (1, own));
}

/// What cannot be opened may be a probe that counts, which is neither ignored nor removed.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_probe_that_cannot_be_opened_is_left_alone() {
    let (device, bpf) = (LoopDevice::attach("unopened", true), BpfFileSystem::mount("unopened-bpf"));
    let name = device.name.as_str();
    let _awake = Awake::all_cpus();
    let daemon = start(name, bpf.path(), &[]);
    let before = settled(&daemon, name);
    drop(daemon);
    let other = bpf.probe().join("maps-99");
    fs::create_dir(&other).unwrap();
    let folder = bpf.path().to_str().unwrap();
    let (code, printed) = output(&["--listen", "127.0.0.1:0", "--pin", folder]);
    assert_eq!((code, printed.lines().count()), (Some(1), 1), "{printed}");
    let expected = format!("cannot open {}: ", other.display());
    assert!(printed.contains(&expected) && printed.contains("biolat-daemon unpin "), "{printed}");
    assert!(output(&["check", "--pin", folder]).1.contains(&expected));
    Target::open(&device.path()).read(50);
    fs::remove_dir(&other).unwrap();
    let daemon = start(name, bpf.path(), &[]);
    assert_eq!(compare(name, &before, &settled(&daemon, name)).of(READ), 50);
}

/// The state of many devices does not fit into the map that it is in at first.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_state_that_grows_gets_a_larger_map() {
    const DEVICES: usize = 40;
    let (first, bpf) = (LoopDevice::attach("grows", true), BpfFileSystem::mount("grows-bpf"));
    let _awake = Awake::all_cpus();
    let mut daemon = start("loop.*", bpf.path(), &[]);
    let states = || bpf.files().iter().filter(|name| name.starts_with("state-")).count();
    assert_eq!(states(), 1);
    let devices: Vec<_> =
        (0..DEVICES).map(|number| LoopDevice::attach(&format!("grows-{number}"), true)).collect();
    let all = || devices.iter().chain([&first]);
    let before: Vec<_> = all().map(|device| settled(&daemon, &device.name)).collect();
    for _ in 0..3 {
        for device in all() {
            let target = Target::open(&device.path());
            target.read(30);
            target.write(30);
        }
        daemon.fresh();
        drop(daemon);
        daemon = start("loop.*", bpf.path(), &[]);
        assert!(daemon.log().iter().any(|line| line.contains("continuing where")), "{:#?}", daemon.log());
    }
    assert!((2..5).contains(&states()), "{:?}", bpf.files());
    for (device, before) in all().zip(&before) {
        let after = settled(&daemon, &device.name);
        let growth = compare(&device.name, before, &after);
        assert_eq!((growth.of(READ), growth.of(WRITE)), (90, 90));
    }
}

/// What a daemon leaves that is killed while it pins its probe, or removes one.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_is_pinned_in_part_is_removed() {
    let (device, bpf) = (LoopDevice::attach("in-part", true), BpfFileSystem::mount("in-part-bpf"));
    let name = device.name.as_str();
    fs::create_dir(bpf.path().join("biolat-probe-1")).unwrap();
    let (_, printed) = output(&["check", "--pin", bpf.path().to_str().unwrap()]);
    assert!(printed.contains("cannot be continued, its state is missing"), "{printed}");
    let daemon = start(name, bpf.path(), &[]);
    assert_eq!(bpf.probes(), 1);
    drop(daemon);
    let own = programs();
    for file in bpf.files().iter().filter(|name| name.starts_with("links-")) {
        fs::remove_file(bpf.probe().join(file)).unwrap();
    }
    let daemon = start(name, bpf.path(), &[]);
    let log = daemon.log();
    assert!(log.iter().any(|line| line.contains("its probe was not kept completely")), "{log:#?}");
    assert_eq!((bpf.probes(), daemon.fresh().count(name, READ)), (1, 0));
    wait_for("the kernel to free the probe", || programs().is_disjoint(&own));
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
