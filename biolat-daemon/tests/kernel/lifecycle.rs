//! Startup, shutdown, and error messages when startup fails.

use std::{
    collections::BTreeSet, io::Write as _, net::TcpStream, os::unix::fs::symlink, process::Command,
    time::Duration,
};

use aya::programs::{ProgramInfo, loaded_programs};
use biolat_probe::{
    DEFAULT_WORKLOADS, Options, Probe,
    kernel::{Kernel, processes::ProcessTracing},
    kernel_btf,
    processes::ProcessProbe,
};
use biolat_system::host::Host;

use crate::support::{
    Folder,
    bpf::{programs, series_in_table},
    daemon::{Daemon, program, wait_for},
    figures::Figures,
    kernel::{self, Ability},
    loop_device::LoopDevice,
    machine::possible_cpus,
};

/// Runs a command to completion. Returns its exit code and standard error.
fn fails(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Returns how many of [`programs`] a daemon loads: one more if it counts waits for a tag.
pub(crate) fn number_of_programs(daemon: &Daemon) -> usize {
    3 + Figures::scrape(daemon.address).metrics("biolat_lost_tag_waits_total", &[]).len()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn stops_quickly_and_leaves_no_program() {
    let before = programs();
    let daemon = Daemon::start(&["--interval", "1s"]);
    let own = &programs() - &before;
    assert_eq!(own.len(), number_of_programs(&daemon), "number of programs");
    // Idle connections and incomplete requests must not delay shutdown.
    let _idle = TcpStream::connect(daemon.address).unwrap();
    let mut slow = TcpStream::connect(daemon.address).unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    let (status, took) = daemon.terminate();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(2), "{took:?}");
    wait_for("the kernel to free the program", || programs().is_disjoint(&own));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn serves_and_logs_without_devices() {
    let daemon = Daemon::start(&["--interval", "100ms", "--device", "none-of-that-name"]);
    assert!(daemon.log().iter().any(|line| line.contains("no block devices to show")), "{:?}", daemon.log());
    let figures = daemon.fresh();
    assert!(figures.metrics("biolat_device_info", &[]).is_empty());
    assert_eq!(figures.metrics("biolat_build_info", &[]).len(), 1);
}

/// Loop devices are hidden by default, unless the machine has no other devices.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn shows_loop_devices_on_request() {
    let device = LoopDevice::attach("left-out", true);
    let is_request_based = |name: &String| std::path::Path::new("/sys/block").join(name).join("mq").is_dir();
    let mut names = std::fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().file_name());
    let has_others = names.any(|name| {
        let name = name.into_string().unwrap();
        is_request_based(&name) && !name.starts_with("loop") && !name.starts_with("fd")
    });
    let daemon = Daemon::start(&["--interval", "100ms"]);
    assert_eq!(daemon.fresh().has_device(&device.name), !has_others);
    let names_the_option =
        daemon.log().iter().any(|line| line.contains("select them with --loop or --device"));
    assert_eq!(names_the_option, has_others, "{:?}", daemon.log());
    drop(daemon);
    assert!(Daemon::start(&["--interval", "100ms", "--loop"]).fresh().has_device(&device.name));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn measures_probe_on_request() {
    let daemon = Daemon::start(&["--probe-stats", "--interval", "100ms"]);
    assert_eq!(daemon.fresh().metrics("biolat_probe_runs_total", &[]).len(), 1);
    drop(daemon);
    let daemon = Daemon::start(&["--interval", "100ms"]);
    assert!(daemon.fresh().metrics("biolat_probe_runs_total", &[]).is_empty());
}

/// The number of paths grows quickly with each branch, and the verifier rejects a program after a million instructions.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn verifier_walks_few_instructions() {
    let host = Host::default();
    let btf = kernel_btf(&host).unwrap();
    let (kernel, tracing) = (Kernel::from_btf(&btf).unwrap(), ProcessTracing::from_btf(&btf).unwrap());
    let options = Options { slow: Some(Duration::from_secs(1)), ..Options::default() };
    let probe = Probe::attach(kernel.clone(), &host, 4, &options).unwrap();
    check_new_programs("volumes", 2, || probe.load_volume_probe(&host).unwrap().unwrap());
    drop(probe);
    for (label, sends_ios) in [("biolat processes", false), ("biolat processes --io", true)] {
        check_new_programs(label, 2, || {
            ProcessProbe::load(&kernel, &tracing, &host, 256, sends_ios).unwrap()
        });
    }
    for workloads in [DEFAULT_WORKLOADS, 0] {
        check_new_programs(&format!("biolat-daemon, {workloads} workloads"), 3, || {
            Probe::attach(kernel.clone(), &host, 4, &Options { workloads, ..options }).unwrap()
        });
    }
}

/// Loads programs and checks each of them: at least `least`.
fn check_new_programs<T>(label: &str, least: usize, load: impl FnOnce() -> T) {
    // A program of another process can disappear while the kernel's list is being read.
    let all = || loaded_programs().flatten().collect::<Vec<_>>();
    let before: BTreeSet<_> = all().iter().map(ProgramInfo::id).collect();
    let _loaded = load();
    let new: Vec<_> = all().into_iter().filter(|program| !before.contains(&program.id())).collect();
    // Older kernels do not report the number.
    let walked = |program: &ProgramInfo| program.verified_instruction_count().unwrap_or(0);
    for program in &new {
        println!("{label}: {}: {} instructions", program.name_as_str().unwrap(), walked(program));
    }
    assert!(new.len() >= least, "{label}: {} programs", new.len());
    // Older verifiers find fewer states to be equivalent.
    let limit = if kernel::has(Ability::ShortVerification) { 20_000 } else { 35_000 };
    assert!(new.iter().all(|program| walked(program) < limit), "{label}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn two_daemons_on_different_ports() {
    let first = Daemon::start(&[]);
    let second = Daemon::start(&[]);
    assert_ne!(first.address, second.address);
    let (code, printed) = fails(Command::new(program()).args(["--listen", &first.address.to_string()]));
    assert_eq!(code, Some(1));
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(
        printed.contains(&first.address.to_string()) && printed.contains("choose another port"),
        "{printed}"
    );
}

/// The last snapshot stays, the failure is counted and logged, and collections resume when possible.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn failed_collection_keeps_last_snapshot() {
    let folder = Folder::new("sysfs", true);
    for name in ["block", "kernel"] {
        symlink(format!("/sys/{name}"), folder.0.join(name)).unwrap();
    }
    let daemon = Daemon::start(&["--interval", "100ms", "--sysfs", folder.0.to_str().unwrap()]);
    let failures = |figures: &Figures| figures.value("biolat_collect_failures_total", &[]);
    let before = daemon.fresh();
    assert_eq!(failures(&before), 0.0);

    std::fs::remove_file(folder.0.join("block")).unwrap();
    wait_for("a failure", || failures(&Figures::scrape(daemon.address)) > 2.0);
    let during = Figures::scrape(daemon.address);
    let devices = |figures: &Figures| figures.metrics("biolat_device_info", &[]).len();
    assert_eq!(devices(&during), devices(&before));
    let logged = |part: &str| daemon.log().iter().filter(|line| line.contains(part)).count();
    assert!(logged("keeping the previous snapshot: cannot list the block devices") > 0, "{:?}", daemon.log());

    symlink("/sys/block", folder.0.join("block")).unwrap();
    assert!(daemon.fresh().taken() > during.taken());
}

/// The kernel writes one value per possible CPU into a reader's buffer, whatever sysfs says.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn rejects_wrong_cpu_count_in_sysfs() {
    let folder = Folder::new("cpus", true);
    let possible = folder.0.join("possible");
    for wrong in ["0".to_owned(), format!("0-{}", 2 * possible_cpus() - 1)] {
        std::fs::write(&possible, &wrong).unwrap();
        if wrong == "0" && possible_cpus() == 1 {
            continue;
        }
        let with_mount = |arguments: &str| {
            let script = format!(
                "mount --bind {} /sys/devices/system/cpu/possible && exec \"$0\" {arguments} --listen 127.0.0.1:0",
                possible.display()
            );
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &script]).arg(program());
            command
        };
        let (code, printed) = fails(&mut with_mount(""));
        assert_eq!((code, printed.lines().count()), (Some(1), 1), "{printed}");
        assert!(
            printed.contains("wrong number of possible CPUs in /sys/devices/system/cpu/possible"),
            "{printed}"
        );
        let output = with_mount("check --device none").output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("wrong number of possible CPUs"), "{printed}");
    }
}

/// With the series in place, the probe's common case handles even the first I/O.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn creates_series_before_first_io() {
    let device = LoopDevice::attach("early", true);
    let daemon = Daemon::of(&device.name);
    assert_eq!(series_in_table(&device.name), 2);
    device.detach();
    device.attach_another("b");
    wait_for("the series of the next device", || series_in_table(&device.name) == 2);
    drop(daemon);
}
