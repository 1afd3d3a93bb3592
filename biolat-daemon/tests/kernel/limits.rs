//! Limits on the daemon's memory, threads and open files. Clients cannot make the daemon exceed them.

use std::{
    collections::VecDeque,
    fs,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};

use crate::support::{
    Folder,
    daemon::{Daemon, biolat, program, wait_for},
    figures::{Figures, PROTOBUF},
    http,
    load::{StopFlag, Target},
    loop_device::LoopDevice,
    machine::MIB,
    run,
};

/// Headroom of the chart's limit beyond the counters of the largest node.
const LIMIT: u64 = 128 << 20;
const DEVICES: usize = 300;
const ATTACK_TIME: Duration = Duration::from_secs(12);

/// A cgroup with a limit, removed on drop.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a cgroup in the controller's version 1 hierarchy or in the version 2 hierarchy. `limits` holds the name of the
    /// limit's file in each.
    fn new(controller: &str, limits: [&str; 2], limit: u64) -> Self {
        let version_1 = Path::new("/sys/fs/cgroup").join(controller);
        let (root, file) = match version_1.is_dir() {
            true => (&*version_1, limits[0]),
            false => (Path::new("/sys/fs/cgroup"), limits[1]),
        };
        let cgroup = Self(root.join(format!("biolat-test-{}", std::process::id())));
        fs::create_dir(&cgroup.0).unwrap();
        cgroup.set(file, limit);
        cgroup
    }

    fn set(&self, file: &str, value: u64) {
        let path = self.0.join(file);
        fs::write(&path, value.to_string()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Returns the peak memory use.
    fn peak_memory(&self) -> u64 {
        let read = |file| fs::read_to_string(self.0.join(file)).ok()?.trim().parse().ok();
        read("memory.max_usage_in_bytes").or_else(|| read("memory.peak")).unwrap_or(0)
    }

    /// Starts a daemon in the cgroup.
    fn daemon(&self, arguments: &str) -> Daemon {
        let script = format!(
            "echo $$ > {}/cgroup.procs && exec \"$0\" --listen 127.0.0.1:0 {arguments}",
            self.0.display()
        );
        Daemon::start_command(Command::new("sh").args(["-c", &script]).arg(program()))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let began = Instant::now();
        // A process that has just exited stays in the cgroup for a moment.
        while fs::remove_dir(&self.0).is_err() && began.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Many loop devices on one file, detached on drop.
struct LoopDevices(Vec<String>);

impl LoopDevices {
    fn attach(folder: &Folder, count: usize) -> Self {
        let file = folder.0.join("file");
        fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
        let attach = |_| run("losetup", &["--find", "--show", file.to_str().unwrap()]).trim().to_owned();
        Self((0..count).map(attach).collect())
    }

    fn read_and_write(&self) {
        for path in &self.0 {
            let device = Target::open(Path::new(path));
            device.try_read_at(0, 4096).unwrap();
            device.try_write_at(0, 4096).unwrap();
        }
    }
}

impl Drop for LoopDevices {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = Command::new("losetup").args(["--detach", path]).output();
        }
    }
}

/// Opens a client that requests a body and reads none of it.
fn reader(address: SocketAddr, number: u32) -> Option<TcpStream> {
    const REQUESTS: [&str; 4] = [
        "/metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        "/metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n",
        "/api/v1/snapshot HTTP/1.1\r\nHost: x\r\n\r\n",
        "/ HTTP/1.1\r\nHost: x\r\n\r\n",
    ];
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    socket.set_recv_buffer_size(4096).ok()?;
    let [.., high, low] = (number % 1000).to_be_bytes();
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 1, high, low), 0)).into()).ok()?;
    socket.connect_timeout(&address.into(), Duration::from_secs(1)).ok()?;
    let mut stream = TcpStream::from(socket);
    write!(stream, "GET {}", REQUESTS[number as usize % REQUESTS.len()]).ok()?;
    Some(stream)
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn slow_readers_stay_within_memory_limit() {
    let folder = Folder::new("many", true);
    let devices = LoopDevices::attach(&folder, DEVICES);
    let cgroup = Cgroup::new("memory", ["memory.limit_in_bytes", "memory.max"], LIMIT);
    let daemon = cgroup.daemon("--interval 2s --loop --classic-buckets all");
    devices.read_and_write();
    daemon.fresh();
    // The largest response, which has already grown the heap by now.
    let body = http::get(daemon.address, "/metrics", "").unwrap().body.len();
    let before = daemon.fresh();
    let resident = |figures: &Figures| figures.value("process_resident_memory_bytes", &[]);

    let (stop, mut slowest, mut scrapes) = (StopFlag::default(), Duration::ZERO, 0);
    thread::scope(|scope| {
        let _stop = stop.set_on_drop();
        scope.spawn(|| {
            let mut readers = VecDeque::new();
            for number in 0.. {
                if stop.is_set() {
                    return;
                }
                readers.extend(reader(daemon.address, number));
                if readers.len() > 400 {
                    readers.pop_front();
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        let began = Instant::now();
        while began.elapsed() < ATTACK_TIME {
            let scrape = Instant::now();
            let answer = http::get(daemon.address, "/metrics", PROTOBUF).unwrap();
            assert_eq!(answer.status, 200, "{}", answer.head);
            (slowest, scrapes) = (slowest.max(scrape.elapsed()), scrapes + 1);
            thread::sleep(Duration::from_millis(50));
        }
    });
    let during = daemon.fresh();
    println!(
        "{DEVICES} devices, answers of {} KiB: {:.1} MiB before, {:.1} MiB at the end, {:.1} MiB at most in the cgroup; \
         {scrapes} scrapes, the slowest took {slowest:?}",
        body >> 10,
        resident(&before) / MIB,
        resident(&during) / MIB,
        cgroup.peak_memory() as f64 / MIB,
    );
    assert_eq!(during.value("biolat_collect_failures_total", &[]), 0.0, "{:?}", daemon.log());
    // Allows for two responses, which the allocator can keep.
    let limit = resident(&before) + 2.0 * body as f64;
    wait_for("the memory to be free again", || resident(&daemon.fresh()) < limit);
}

/// Connections leave enough descriptors for collections.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn idle_clients_leave_descriptors_for_collections() {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 64; exec \"$0\" --listen 127.0.0.1:0 --interval 100ms --loop"])
        .arg(program());
    let daemon = Daemon::start_command(&mut command);
    let limit = fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
    assert!(limit.lines().any(|line| line.starts_with("Max open files") && line.contains(" 64 ")), "{limit}");
    let _idle: Vec<_> = (0..30).map(|_| TcpStream::connect(daemon.address).unwrap()).collect();
    let device = LoopDevice::attach("few", true);
    Target::open(&device.path()).read(10);
    thread::sleep(Duration::from_secs(1));
    let figures = daemon.fresh();
    assert_eq!(figures.value("biolat_collect_failures_total", &[]), 0.0, "{:?}", daemon.log());
    assert!(figures.has_device(&device.name));
}

/// At its thread limit, the daemon makes do with the threads it has.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn answers_requests_at_thread_limit() {
    let cgroup = Cgroup::new("pids", ["pids.max", "pids.max"], 100);
    let daemon = cgroup.daemon("--interval 100ms");
    cgroup.set("pids.max", 1);
    thread::scope(|scope| {
        for number in 0..40 {
            let (path, headers) =
                [("/metrics", PROTOBUF), ("/metrics", ""), ("/api/v1/snapshot", ""), ("/", "")][number % 4];
            let address = daemon.address;
            scope.spawn(move || {
                let answer = http::get(address, path, headers).unwrap();
                assert_eq!(answer.status, 200, "{}", answer.head);
            });
        }
    });
    assert!(!daemon.log().iter().any(|line| line.contains("panicked")), "{:?}", daemon.log());
}

/// If any thread cannot be started, the daemon and `biolat` report it in one line.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn reports_low_thread_limit_in_one_line() {
    let folder = Folder::new("no-threads", true);
    let cgroup = Cgroup::new("pids", ["pids.max", "pids.max"], 1);
    let history = format!("--history-file {}", folder.0.join("history").display());
    let daemon =
        ["--interval 100ms", &history].map(|options| (program(), format!("--listen 127.0.0.1:0 {options}")));
    let terminal = ["hist 1 1", "hist --host localhost:1 1 1", "worst --host localhost:1"];
    let terminal = terminal.map(|command| (biolat(), command.to_owned()));
    for (program, arguments) in daemon.into_iter().chain(terminal) {
        let mut refused = 0;
        for limit in 1..20 {
            cgroup.set("pids.max", limit);
            let script = format!(
                "echo $$ > {}/cgroup.procs && exec timeout --foreground 3 \"$0\" {arguments}",
                cgroup.0.display()
            );
            let output = Command::new("sh").args(["-c", &script]).arg(&program).output().unwrap();
            let log = String::from_utf8(output.stderr).unwrap();
            // `timeout` could not start the daemon.
            if log.contains("fork system call failed") {
                continue;
            }
            let errors: Vec<_> = log.lines().filter(|line| line.contains("cannot start")).collect();
            if errors.is_empty() {
                break;
            }
            println!("{arguments}, at most {limit}: {:?} {log}", output.status.code());
            assert!(!log.contains("panicked") && !log.contains("backtrace"), "{arguments}, {limit}: {log}");
            assert_eq!((errors.len(), output.status.code()), (1, Some(1)), "{arguments}, {limit}: {log}");
            assert!(log.contains("raise the limit of processes"), "{arguments}, {limit}: {log}");
            refused += 1;
        }
        assert!(refused > 0, "{arguments}");
    }
}
