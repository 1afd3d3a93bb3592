//! A daemon with a pinned probe is killed repeatedly while devices and cgroups come and go and clients read everything it serves:
//! counts stay exact, and no daemon uses more resources than the previous one. Lasts half a minute, or `BIOLAT_SOAK_MINUTES`.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{
        RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    Folder,
    awake::Awake,
    bpf::{maps, programs},
    bpf_file_system::BpfFileSystem,
    cgroup::{Cgroup, Hierarchy},
    daemon::Daemon,
    diskstats::READ,
    figures::{Figures, PROTOBUF},
    http,
    load::{StopFlag, Target},
    loop_device::LoopDevice,
    machine::{MIB, status},
    settled::{settled, tally},
};

/// Client requests, in addition to the checked scrapes.
const REQUESTS: [(&str, &str); 8] = [
    ("/metrics", ""),
    ("/metrics", PROTOBUF),
    ("/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n"),
    ("/metrics", "Accept: application/openmetrics-text; version=2.0.0\r\nAccept-Encoding: gzip\r\n"),
    ("/api/v1/snapshot", "Accept-Encoding: gzip\r\n"),
    ("/api/v1/history", "Accept-Encoding: gzip\r\n"),
    ("/api/v1/slow", ""),
    ("/", ""),
];

/// Number of reads that a service does in each round.
const SERVICE_READS: u64 = 2;

/// Resource use of a daemon.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    resident: u64,
    threads: u64,
    files: usize,
    /// Number of all biolat maps and programs in the kernel.
    maps: usize,
    programs: usize,
}

impl Usage {
    fn of(daemon: &Daemon) -> Self {
        Self {
            resident: status(daemon.pid(), "VmRSS:") << 10,
            threads: status(daemon.pid(), "Threads:"),
            files: fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count(),
            maps: maps().len(),
            programs: programs().len(),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            resident: self.resident.max(other.resident),
            threads: self.threads.max(other.threads),
            files: self.files.max(other.files),
            maps: self.maps.max(other.maps),
            programs: self.programs.max(other.programs),
        }
    }
}

#[derive(Debug, Default)]
struct Work {
    scrapes: AtomicU64,
    answers: AtomicU64,
    attached: AtomicU64,
    jobs: AtomicU64,
    service_reads: AtomicU64,
}

fn start(devices: &str, bpf: &Path, history: &Path) -> Daemon {
    Daemon::start(&[
        "--interval",
        "100ms",
        "--device",
        devices,
        "--pin",
        bpf.to_str().unwrap(),
        "--history-file",
        history.to_str().unwrap(),
    ])
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn counts_stay_exact_without_growth() {
    let minutes = std::env::var("BIOLAT_SOAK_MINUTES").map_or(0.5, |minutes| minutes.parse().unwrap());
    let duration = Duration::from_secs_f64(60.0 * minutes);
    // Daemons are compared at the same age.
    let lifetime = (duration / 10).min(Duration::from_secs(30));
    let [steady, changing] =
        ["restarts-steady", "restarts-changing"].map(|name| LoopDevice::attach(name, true));
    let (bpf, folder) = (BpfFileSystem::mount("restarts-bpf"), Folder::new("restarts-history", true));
    let (devices, history) = (format!("{},{}", steady.name, changing.name), folder.0.join("history"));
    let hierarchy = Hierarchy::open();
    let service = hierarchy.create("/biolat-soak.service");
    let _awake = Awake::all_cpus();
    let daemon = start(&devices, bpf.path(), &history);
    let before = settled(&daemon, &steady.name);
    let daemon = RwLock::new(Some(daemon));
    let address = || daemon.read().unwrap().as_ref().unwrap().address;
    let (stop, work) = (StopFlag::default(), Work::default());
    let (began, mut samples) = (Instant::now(), Vec::new());
    thread::scope(|scope| {
        let _stop = stop.set_on_drop();
        scope.spawn(|| {
            let target = Target::open(&steady.path());
            repeat_until(&stop, 5, || {
                target.read(30);
                target.write(20);
            });
        });
        scope.spawn(|| {
            repeat_until(&stop, 200, || {
                changing.detach();
                changing.attach_another(if work.attached.fetch_add(1, Relaxed) % 2 == 0 { "b" } else { "a" });
                Target::open(&changing.path()).read(20);
            });
        });
        scope.spawn(|| repeat_until(&stop, 100, || run_cgroups(&hierarchy, &service, &steady, &work)));
        scope.spawn(|| {
            repeat_until(&stop, 50, || {
                // Every scrape already checks that sizes and workloads add up to their device.
                let daemon = daemon.read().unwrap();
                Figures::scrape(daemon.as_ref().unwrap().address);
                work.scrapes.fetch_add(1, Relaxed);
            });
        });
        for _ in 0..2 {
            scope.spawn(|| read_everything(&stop, &address, &work));
        }
        while began.elapsed() < duration {
            thread::sleep(lifetime);
            let usage = Usage::of(daemon.read().unwrap().as_ref().unwrap());
            println!("{:>5} s: {usage:?}, {work:?}", began.elapsed().as_secs());
            samples.push(usage);
            let mut daemon = daemon.write().unwrap();
            // Drop sends SIGKILL.
            drop(daemon.take());
            let next = start(&devices, bpf.path(), &history);
            let log = next.log();
            assert!(
                log.iter().any(|line| line.contains("resumed the previous daemon's counters")),
                "{log:#?}"
            );
            *daemon = Some(next);
        }
    });
    let daemon = daemon.into_inner().unwrap().unwrap();
    let after = settled(&daemon, &steady.name);
    // A device that is replaced while no daemon runs is unknown to the next daemon.
    let growth = tally(&steady.name, &before, &after);
    println!(
        "{} kills; {:?} accounted, {} missed, {} lost as recursion, {} of unknown devices",
        samples.len(),
        growth.completions,
        growth.missed,
        growth.lost("recursion"),
        growth.lost("unknown_device")
    );
    assert_eq!(growth.unaccounted, 0);
    let (counted, reads) =
        (after.figures.workload_ios(&steady.name, "read", &service.path), work.service_reads.into_inner());
    assert!(
        counted <= reads && counted + growth.missed >= reads,
        "{counted} of {reads} reads of the service"
    );
    assert!(growth.of(READ) > reads);
    assert_eq!(bpf.probes(), 1);

    let (early, late) = samples[1..].split_at(samples.len() / 2);
    let most = |samples: &[Usage]| samples.iter().copied().fold(Usage::default(), Usage::max);
    let (early, late) = (most(early), most(late));
    println!("at most {early:?} in the first half, {late:?} in the second");
    assert!(late.resident as f64 <= early.resident as f64 * 1.1 + 4.0 * MIB, "memory grew");
    // The server starts up to eight threads on demand.
    assert!(late.threads <= early.threads.max(14), "the number of threads grew");
    // Each chunk of slots is a map, with its own descriptor.
    assert!(late.files <= early.files + 16, "the number of descriptors grew");
    assert!(
        late.maps <= early.maps && late.programs <= early.programs,
        "the number of maps or programs grew"
    );
}

fn repeat_until(stop: &StopFlag, pause_ms: u64, mut work: impl FnMut()) {
    while !stop.is_set() {
        work();
        thread::sleep(Duration::from_millis(pause_ms));
    }
}

/// Runs a long-lived service and a short-lived job.
fn run_cgroups(hierarchy: &Hierarchy, service: &Cgroup, device: &LoopDevice, work: &Work) {
    let path = device.path();
    let read = |count| format!("dd if={} of=/dev/null bs=4096 count={count} iflag=direct", path.display());
    service.run(&read(SERVICE_READS));
    work.service_reads.fetch_add(SERVICE_READS, Relaxed);
    let number = work.jobs.fetch_add(1, Relaxed);
    hierarchy.create(&format!("/biolat-soak-job-{number}")).run(&read(1));
}

/// Requests can fail while the daemon is being killed.
fn read_everything(stop: &StopFlag, address: &impl Fn() -> SocketAddr, work: &Work) {
    let mut requests = REQUESTS.into_iter().cycle();
    repeat_until(stop, 20, || {
        let (path, headers) = requests.next().unwrap();
        if let Ok(answer) = http::get(address(), path, headers) {
            assert!(answer.status == 200 || answer.status == 503, "{path}: {}", answer.head);
            work.answers.fetch_add(1, Relaxed);
        }
    });
}
