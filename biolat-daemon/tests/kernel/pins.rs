//! A probe that is pinned in a BPF file system (`--pin`), as in containers.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use crate::{
    kept_probe::{Random, kill_under_load},
    support::{
        Folder,
        awake::Awake,
        bpf::programs,
        bpf_file_system::BpfFileSystem,
        daemon::{Daemon, program, wait_for},
        diskstats::{READ, WRITE},
        load::Target,
        loop_device::LoopDevice,
        settled::{compare, compare_except_recursion, settled},
    },
};

fn start(device: &str, pin: &Path, more: &[&str]) -> Daemon {
    let own = ["--interval", "100ms", "--device", device, "--pin", pin.to_str().unwrap()];
    Daemon::start(&[&own[..], more].concat())
}

/// Runs the daemon to completion. Returns its exit code and all output.
fn output(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(program()).args(arguments).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).unwrap())
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn keeps_pinned_probe_until_unpin() {
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
        assert!(
            daemon.log().iter().any(|line| line.contains("resumed the previous daemon's counters")),
            "{:#?}",
            daemon.log()
        );
        let after = settled(&daemon, name);
        compare(name, &before, &after).assert_few_missed();
    }
    assert_eq!(bpf.probes(), 1);
    // A different configuration replaces the probe.
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
    assert!(!programs().is_subset(&others), "the probe must keep running without a daemon");
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
fn survives_kills_under_load() {
    let rounds = std::env::var("BIOLAT_TEST_KILLS").map_or(20, |rounds| rounds.parse().unwrap());
    let device = LoopDevice::attach("pins-killed", true);
    let (name, bpf) = (device.name.as_str(), BpfFileSystem::mount("pins-killed-bpf"));
    let _awake = Awake::all_cpus();
    let mut random = Random::default();
    let mut daemon = start(name, bpf.path(), &[]);
    let (before, own) = (settled(&daemon, name), programs());
    for _ in 0..rounds {
        daemon = kill_under_load(&device, daemon, &mut random, |_| start(name, bpf.path(), &[]));
        assert!(
            daemon.log().iter().any(|line| line.contains("resumed the previous daemon's counters")),
            "{:#?}",
            daemon.log()
        );
        compare_except_recursion(name, &before, &settled(&daemon, name));
    }
    assert_eq!((bpf.probes(), programs()), (1, own));
}

/// An entry that cannot be opened may be a probe that is still counting, so it is neither ignored nor removed.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn leaves_unopenable_probe_alone() {
    let (device, bpf) = (LoopDevice::attach("unopened", true), BpfFileSystem::mount("unopened-bpf"));
    let name = device.name.as_str();
    let _awake = Awake::all_cpus();
    let daemon = start(name, bpf.path(), &[]);
    let before = settled(&daemon, name);
    drop(daemon);
    let other = bpf.probe().join("maps-99");
    symlink("/nonexistent", &other).unwrap();
    let folder = bpf.path().to_str().unwrap();
    let (code, printed) = output(&["--listen", "127.0.0.1:0", "--pin", folder]);
    assert_eq!((code, printed.lines().count()), (Some(1), 1), "{printed}");
    let expected = format!("cannot open {}: ", other.display());
    assert!(printed.contains(&expected) && printed.contains("biolat-daemon unpin "), "{printed}");
    assert!(output(&["check", "--pin", folder]).1.contains(&expected));
    Target::open(&device.path()).read(50);
    fs::remove_file(&other).unwrap();
    let daemon = start(name, bpf.path(), &[]);
    assert_eq!(compare(name, &before, &settled(&daemon, name)).of(READ), 50);
}

/// The state of many devices outgrows the map that first holds it.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn growing_state_gets_larger_map() {
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
        assert!(
            daemon.log().iter().any(|line| line.contains("resumed the previous daemon's counters")),
            "{:#?}",
            daemon.log()
        );
    }
    assert!((2..5).contains(&states()), "{:?}", bpf.files());
    for (device, before) in all().zip(&before) {
        let after = settled(&daemon, &device.name);
        let growth = compare(&device.name, before, &after);
        assert_eq!((growth.of(READ), growth.of(WRITE)), (90, 90));
    }
}

/// Leftovers of a daemon that was killed while pinning or removing a probe.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn removes_incomplete_pins() {
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

/// Foreign folders among the pins do not disturb the daemon or `unpin`.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn ignores_foreign_folders() {
    let (device, bpf) = (LoopDevice::attach("others", true), BpfFileSystem::mount("others-bpf"));
    let (name, folder) = (device.name.as_str(), bpf.path().to_str().unwrap());
    fs::create_dir(bpf.path().join("other")).unwrap();
    let _awake = Awake::all_cpus();
    let daemon = start(name, bpf.path(), &[]);
    let (probe, before) = (bpf.probe(), settled(&daemon, name));
    drop(daemon);
    fs::create_dir_all(probe.join("maps-99/inner")).unwrap();
    fs::create_dir(probe.join("empty")).unwrap();
    Target::open(&device.path()).read(50);
    let daemon = start(name, bpf.path(), &[]);
    assert!(
        daemon.log().iter().any(|line| line.contains("resumed the previous daemon's counters")),
        "{:#?}",
        daemon.log()
    );
    assert_eq!(compare(name, &before, &settled(&daemon, name)).of(READ), 50);
    drop(daemon);
    let own = programs();
    let (code, printed) = output(&["unpin", folder]);
    assert_eq!(code, Some(0), "{printed}");
    let kept = format!("{} contains other folders", probe.display());
    assert!(printed.contains(&kept), "{printed}");
    assert_eq!(bpf.files(), ["maps-99"]);
    wait_for("the kernel to free the probe", || programs().is_disjoint(&own));
    let (code, printed) = output(&["unpin", folder]);
    assert!(code == Some(0) && printed.contains("nothing is kept in"), "{printed}");
    fs::remove_dir(probe.join("maps-99/inner")).unwrap();
    fs::remove_dir(probe.join("maps-99")).unwrap();
    fs::remove_dir(&probe).unwrap();
    fs::remove_dir(bpf.path().join("other")).unwrap();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn creates_missing_folder_only_on_bpf_file_system() {
    let (device, bpf) = (LoopDevice::attach("made", true), BpfFileSystem::mount("made-bpf"));
    let folder = bpf.path().join("biolat");
    let pin = folder.to_str().unwrap();
    let (code, printed) = output(&["check", "--pin", pin]);
    assert!(
        printed.contains(&format!("{pin} does not exist yet: biolat will create it")),
        "{code:?} {printed}"
    );
    assert!(!folder.exists());
    let daemon = start(&device.name, &folder, &[]);
    assert!(folder.is_dir());
    drop(daemon);
    assert_eq!(output(&["unpin", pin]).0, Some(0));
    // The folder's parent does not exist either, or is on another file system.
    for missing in [folder.join("a/b"), "/nonexistent".into(), "/nonexistent/a".into()] {
        let pin = missing.to_str().unwrap();
        let (code, printed) = output(&["--listen", "127.0.0.1:0", "--pin", pin]);
        assert_eq!((code, printed.lines().count()), (Some(1), 1), "{printed}");
        let fix = format!("mkdir -p {pin} && mount -t bpf bpf {pin}");
        assert!(printed.contains(&format!("cannot open {pin}")) && printed.contains(&fix), "{printed}");
        assert!(output(&["check", "--pin", pin]).1.contains("mkdir -p"), "{printed}");
    }
    assert!(!folder.join("a").exists());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn rejects_other_folders() {
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
