//! `biolat-daemon check` on the real kernel: its verdicts are right, and its fixes work.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{PermissionsExt as _, chown},
    process::{Command, Output},
    thread,
};

use serde_json::Value;

use crate::support::{
    Folder,
    block::{attribute, set_attribute},
    daemon::{Daemon, program},
    diskstats::{FLUSH, Stat},
    figures::Figures,
    loop_device::LoopDevice,
    run,
};

fn check(arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.arg("check").args(["--listen", "127.0.0.1:0"]).args(arguments);
    command.output().unwrap()
}

fn findings(output: &Output) -> Vec<Value> {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["findings"].as_array().unwrap().clone()
}

fn finding(output: &Output, id: &str) -> Value {
    findings(output).into_iter().find(|finding| finding["id"] == id).unwrap_or_default()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn root_passes_every_check() {
    let device = LoopDevice::attach("check", true);
    let output = check(&["--json", "--device", &device.name]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    for id in ["kernel.btf", "kernel.tracepoint", "rights.capabilities", "probe.load", "memory.counters"] {
        assert_eq!(finding(&output, id)["verdict"], "ok", "{id}");
    }
    let text = finding(&output, "probe.load")["text"].clone();
    assert!(text.as_str().unwrap().starts_with("the kernel accepts it"), "{text}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let flushes = document["abilities"].as_array().unwrap();
    let flushes = flushes.iter().find(|ability| ability["name"] == "flush_statistics").unwrap();
    assert_eq!(flushes["available"], Stat::of(&device.name).has(FLUSH));
}

/// The daemon allocates the predicted counters, plus a few slots for other devices that do I/O in the meantime.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn daemon_allocates_predicted_memory() {
    let device = LoopDevice::attach("check", true);
    let output = check(&["--json", "--device", &device.name]);
    let text = finding(&output, "memory.counters")["text"].as_str().unwrap().to_owned();
    let number = |after: &str| -> f64 {
        let (_, rest) = text.split_once(after).unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (slots, cpus, bytes) = (number("counters: "), number("series x "), number("CPUs x "));
    let figures_with =
        |workloads| Daemon::start(&["--device", &device.name, "--workloads", workloads]).fresh();
    let (figures, with_workloads) = (figures_with("off"), figures_with("256"));
    let allocated = figures.value("biolat_series_slots", &[]);
    assert!((slots..=slots + 32.0).contains(&allocated), "{allocated} slots, and {text}");
    // Size of the maps other than the counters; one daemon can have more counters than the other.
    let of_others = |figures: &Figures| {
        let slots = figures.value("biolat_series_slots", &[]);
        figures.value("biolat_map_bytes", &[]) - slots * cpus * bytes
    };
    assert_eq!(of_others(&figures), 0.0, "{text}");
    let of_workloads = of_others(&with_workloads);
    let expected = format!("and {:.1} MiB for workloads", of_workloads / 1_048_576.0);
    assert!(text.contains(&expected), "{text} does not contain {expected}");
    let recursion = finding(&output, "kernel.recursion");
    let has_second = recursion["text"].as_str().unwrap().contains("a second program counts");
    // The function came with the recursion guard.
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    let has_guard = symbols.lines().any(|line| line.ends_with(" bpf_prog_inc_misses_counter"));
    assert_eq!(has_second, has_guard, "{recursion}");
    assert_eq!(text.ends_with("; twice as much once the second program is attached"), has_second, "{text}");
    assert!(
        text.starts_with(&format!("{:.1} MiB of counters", slots * cpus * bytes / 1_048_576.0)),
        "{text}"
    );
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn lists_missing_capabilities() {
    use std::os::unix::process::CommandExt as _;
    let folder = Folder::new("check", true);
    let copy = folder.0.join("biolat-daemon");
    fs::copy(program(), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.args(["check", "--listen", "127.0.0.1:0"]).uid(65534).gid(65534);
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("requires CAP_BPF and CAP_PERFMON, which this process does not have"),
        "{printed}"
    );
    assert!(
        printed.contains(&format!("run: sudo setcap cap_bpf,cap_perfmon+p {}", copy.display())),
        "{printed}"
    );
    assert!(printed.contains("note probe") && printed.contains("skipped: missing capabilities"), "{printed}");
}

/// The daemon serves requests as root but without capabilities, so it cannot read other users' private files.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn unreadable_web_config_fails() {
    let folder = Folder::new("check", true);
    let path = folder.0.join("web.yml");
    fs::write(&path, "").unwrap();
    let verdict = || {
        let output = check(&["--json", "--device", "none", "--web-config", path.to_str().unwrap()]);
        finding(&output, "web_config")["verdict"].clone()
    };
    assert_eq!(verdict(), "ok");
    chown(&path, Some(65534), Some(65534)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(verdict(), "fail");
}

/// The printed command works as is.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn fix_for_disabled_iostats_works() {
    let device = LoopDevice::attach("check", true);
    let verdict = || {
        let output = check(&["--json", "--device", &device.name]);
        (output.status.code(), finding(&output, "device.latencies")["verdict"].clone())
    };
    assert_ne!(verdict().1, "fail");
    set_attribute(&device.name, "queue/iostats", "0");
    assert_eq!(verdict(), (Some(1), "fail".into()));
    let printed = String::from_utf8(check(&["--device", &device.name]).stdout).unwrap();
    let command = printed.lines().find_map(|line| line.trim().strip_prefix("run: ")).unwrap();
    assert_eq!(command, format!("echo 1 > /sys/block/{}/queue/iostats", device.name));
    run("sh", &["-c", command]);
    assert_eq!(attribute(&device.name, "queue/iostats"), "1");
    assert_eq!(verdict().0, Some(0));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn distinguishes_own_port_from_others() {
    let daemon = Daemon::start(&["--interval", "100ms"]);
    let address = daemon.address.to_string();
    let check_port = |address: &str| {
        let mut command = Command::new(program());
        command.args(["check", "--json", "--device", "none", "--listen", address]).output().unwrap()
    };
    let output = check_port(&address);
    let found = finding(&output, "port");
    assert_eq!((output.status.code(), &found["verdict"]), (Some(0), &"note".into()), "{found}");
    assert!(found["text"].as_str().unwrap().starts_with("biolat is already running, and ready: "), "{found}");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || listener.incoming().for_each(drop));
    let output = check_port(&address);
    let found = finding(&output, "port");
    assert_eq!((output.status.code(), &found["verdict"]), (Some(1), &"fail".into()), "{found}");
}
