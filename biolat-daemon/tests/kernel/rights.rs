//! Privileges: the minimum needed to start, and what remains after the probe is attached, with which everything must still work.

use std::{ffi::CString, fs, io, os::unix::ffi::OsStrExt as _, thread, time::Duration};

use caps::{
    Capability::{CAP_BPF, CAP_PERFMON},
    CapsHashSet,
};

use crate::support::{
    Folder,
    bpf_file_system::BpfFileSystem,
    daemon::{Daemon, wait_for},
    fd_store::FdStore,
    figures::Figures,
    load::Target,
    loop_device::LoopDevice,
    unprivileged,
};

/// Returns the relevant fields of `/proc/PID/task/TID/status` for each thread.
fn threads(daemon: &Daemon) -> Vec<(String, Vec<String>)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let of_thread = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).unwrap().trim().to_owned();
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let wanted =
            |line: &&str| ["Cap", "NoNewPrivs:", "Seccomp:"].iter().any(|name| line.starts_with(name));
        (name, status.lines().filter(wanted).map(|line| line.replace('\t', " ")).collect())
    };
    tasks.map(|task| of_thread(task.unwrap())).collect()
}

/// Asserts that only two threads still have a capability: the collector, which creates maps, and the thread that waits for probe
/// runs to end.
fn assert_dropped(daemon: &Daemon, bounding: &str, seccomp: u32) {
    let threads = threads(daemon);
    assert!(threads.iter().any(|(name, _)| name == "collect") && threads.len() > 1, "{threads:?}");
    for (name, status) in threads {
        let kept = format!("{:016x}", if name == "collect" || name == "rcu" { CAP_BPF.bitmask() } else { 0 });
        let none = "0".repeat(16);
        let expected = [
            format!("CapInh: {none}"),
            format!("CapPrm: {kept}"),
            format!("CapEff: {kept}"),
            format!("CapBnd: {bounding}"),
            format!("CapAmb: {none}"),
            "NoNewPrivs: 1".to_owned(),
            format!("Seccomp: {seccomp}"),
        ];
        assert_eq!(status, expected, "of {name}");
    }
}

/// Tests that devices can appear and disappear, that I/O is counted, and that series can grow into another map.
fn assert_it_works(daemon: &Daemon) {
    let slots = |figures: &Figures| figures.value("biolat_series_slots", &[]);
    let reads = |figures: &Figures, device: &str| {
        figures.histogram("total", device, "read").map_or(0, |histogram| histogram.sample_count)
    };
    let before = slots(&daemon.fresh());
    let devices: Vec<_> = (0..3).map(|number| LoopDevice::attach(&format!("rights{number}"), true)).collect();
    for device in &devices {
        wait_for("the device", || {
            let labels = [("device", device.name.as_str())];
            daemon.fresh().metrics("biolat_device_info", &labels).len() == 1
        });
        Target::open(&device.path()).read(100);
        wait_for("its reads", || reads(&daemon.fresh(), &device.name) >= 100);
    }
    assert!(slots(&daemon.fresh()) > before, "no map was created");
    let name = devices[0].name.clone();
    devices[0].detach();
    wait_for("the device to go", || {
        daemon.fresh().metrics("biolat_device_info", &[("device", &name)]).is_empty()
    });
    let log = daemon.log();
    let is_denial = |line: &String| line.starts_with("error: ") || line.contains("not implemented");
    assert!(!log.iter().any(is_denial), "{log:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn root_keeps_only_cap_bpf() {
    let (store, bpf) = (FdStore::new("rights-store"), BpfFileSystem::mount("rights-bpf"));
    let arguments = ["--interval", "100ms", "--loop"];
    let pinned = [&arguments[..], &["--pin", bpf.path().to_str().unwrap()]].concat();
    let start: [&dyn Fn() -> Daemon; 3] =
        [&|| Daemon::start(&arguments), &|| Daemon::start_command(&mut store.command(&arguments)), &|| {
            Daemon::start(&pinned)
        }];
    for start in start {
        let daemon = start();
        assert_it_works(&daemon);
        assert_dropped(&daemon, &"0".repeat(16), 2);
    }
    assert!(!store.names().is_empty() && bpf.probes() == 1);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn two_capabilities_are_enough_for_nobody() {
    let folder = Folder::new("rights", true);
    let two = CapsHashSet::from([CAP_BPF, CAP_PERFMON]);
    let bounding = fs::read_to_string("/proc/self/status").unwrap();
    let bounding = bounding.lines().find_map(|line| line.strip_prefix("CapBnd:")).unwrap().trim();
    for (arguments, seccomp) in [(&[][..], 2), (&["--no-seccomp"], 0)] {
        let daemon = Daemon::start_command(
            unprivileged::command(&unprivileged::copy(&folder), two.clone()).arg("--loop").args(arguments),
        );
        assert_it_works(&daemon);
        // Changing the bounding set needs CAP_SETPCAP. With no_new_privs the set has no effect.
        assert_dropped(&daemon, bounding, seccomp);
        assert_eq!(daemon.terminate().0.code(), Some(0));
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn file_capabilities_need_not_be_effective() {
    let folder = Folder::new("rights", true);
    let copy = unprivileged::copy(&folder);
    // cap_bpf,cap_perfmon=p as setcap writes it: revision 2, without the effective bit.
    let high = ((CAP_BPF.bitmask() | CAP_PERFMON.bitmask()) >> 32) as u32;
    let value: Vec<u8> =
        [0x0200_0000_u32, 0, 0, high, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = CString::new(copy.as_os_str().as_bytes()).unwrap();
    let (name, length) = (c"security.capability", value.len());
    // SAFETY: the strings are NUL-terminated, and the length matches the value.
    let set = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), length, 0) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
    let daemon = Daemon::start_command(unprivileged::command(&copy, CapsHashSet::new()).arg("--loop"));
    assert_it_works(&daemon);
}

/// Rust's handler restores the default action and returns. If that were denied, the fault would repeat forever.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn fault_terminates_process() {
    let daemon = Daemon::start(&["--interval", "100ms"]);
    let pid = daemon.pid().cast_signed();
    let fault = || {
        // SAFETY: our own child, which has not been reaped yet.
        unsafe { libc::kill(pid, libc::SIGSEGV) };
        thread::sleep(Duration::from_millis(500));
    };
    fault();
    fault();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(stat.contains(") Z "), "{stat}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn names_missing_capabilities() {
    let folder = Folder::new("rights", true);
    let copy = unprivileged::copy(&folder);
    for (capabilities, arguments, expected) in [
        (&[][..], &[][..], "lacks CAP_BPF and CAP_PERFMON: run as root, or grant them: setcap"),
        (&[CAP_BPF], &[], "lacks CAP_PERFMON"),
        (&[CAP_BPF, CAP_PERFMON], &["--probe-stats"], "--probe-stats requires CAP_SYS_ADMIN"),
    ] {
        let capabilities = capabilities.iter().copied().collect();
        let output = unprivileged::command(&copy, capabilities).args(arguments).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert!(printed.contains(expected), "{printed}");
    }
}

/// No thread can write the counters, or make their memory writable: the kernel has taken away that permission for good.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn counters_are_mapped_read_only() {
    let daemon = Daemon::start(&["--interval", "100ms"]);
    let text = fs::read_to_string(format!("/proc/{}/smaps", daemon.pid())).unwrap();
    // A mapping's first line ends with its file, and a later one lists its flags.
    let (mut is_map, mut found) = (false, Vec::new());
    for line in text.lines() {
        if line.contains("anon_inode:") {
            is_map = line.ends_with("bpf-map");
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_map) {
            found.push(flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
            is_map = false;
        }
    }
    let may_write = |flags: &&Vec<String>| flags.iter().any(|flag| flag == "mw");
    // The rings of events, slow I/Os and messages have a page for the position of their reader.
    assert_eq!(found.iter().filter(may_write).count(), 3, "{found:?}");
    assert!(found.len() > 6, "the rings' other pages and the counters: {found:?}");
}
