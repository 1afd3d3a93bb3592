//! Load, changing devices, scrapes in all formats and hostile clients, all at once: the daemon's resource use stays constant and
//! its counts stay exact. Lasts half a minute, or `BIOLAT_SOAK_MINUTES`.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    daemon::Daemon,
    figures::{Figures, PROTOBUF},
    http,
    load::{StopFlag, Target},
    loop_device::LoopDevice,
    machine::{MIB, slots, status},
    settled::{settled, tally},
};

/// Interval between samples of the daemon's resource use.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(3);

/// Typical scraper requests.
const REQUESTS: [(&str, &str); 7] = [
    ("/metrics", ""),
    ("/metrics", PROTOBUF),
    ("/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n"),
    ("/metrics", "Accept: application/openmetrics-text; version=2.0.0\r\nAccept-Encoding: gzip\r\n"),
    ("/api/v1/snapshot", "Accept-Encoding: gzip\r\n"),
    ("/", ""),
    ("/-/ready", ""),
];

/// Resource use of the daemon.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    resident: u64,
    threads: u64,
    files: u64,
    slots: u64,
}

impl Usage {
    fn of(daemon: &Daemon) -> Self {
        Self {
            resident: status(daemon.pid(), "VmRSS:") << 10,
            threads: status(daemon.pid(), "Threads:"),
            files: fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count() as u64,
            slots: Figures::scrape(daemon.address).value("biolat_series_slots", &[]) as u64,
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            resident: self.resident.max(other.resident),
            threads: self.threads.max(other.threads),
            files: self.files.max(other.files),
            slots: self.slots.max(other.slots),
        }
    }
}

/// Amount of load put on the daemon.
#[derive(Debug, Default)]
struct Work {
    ios: AtomicU64,
    devices: AtomicU64,
    scrapes: AtomicU64,
    attacks: AtomicU64,
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn counts_everything_without_growth() {
    let minutes: f64 = std::env::var("BIOLAT_SOAK_MINUTES").map_or(0.5, |minutes| minutes.parse().unwrap());
    let duration = Duration::from_secs_f64(60.0 * minutes);
    let steady = LoopDevice::attach("steady", true);
    let changing = LoopDevice::attach("changing", true);
    let daemon =
        Daemon::start(&["--interval", "500ms", "--device", &format!("{},{}", steady.name, changing.name)]);
    let address = daemon.address;
    let before = settled(&daemon, &steady.name);
    let (stop, work) = (StopFlag::default(), Work::default());
    let began = Instant::now();
    let mut samples = Vec::new();
    thread::scope(|scope| {
        let _stop = stop.set_on_drop();
        scope.spawn(|| repeat(&stop, &work.ios, 110, 20, || apply_load(&steady)));
        scope.spawn(|| {
            let mut file = ["a", "b"].into_iter().cycle();
            repeat(&stop, &work.devices, 1, 200, || replace(&changing, file.next().unwrap()));
        });
        scope.spawn(|| {
            let mut request = REQUESTS.into_iter().cycle();
            repeat(&stop, &work.scrapes, 1, 50, || {
                let (path, headers) = request.next().unwrap();
                let answer = http::get(address, path, headers).unwrap();
                assert!(answer.status == 200 && !answer.body.is_empty(), "{path}: {}", answer.head);
            });
        });
        scope.spawn(|| {
            let mut held = Vec::new();
            repeat(&stop, &work.attacks, 1, 20, || attack(address, &mut held));
        });
        while began.elapsed() < duration {
            thread::sleep(SAMPLE_INTERVAL);
            let usage = Usage::of(&daemon);
            println!("{:>5} s: {usage:?}, {work:?}", began.elapsed().as_secs());
            samples.push(usage);
        }
    });
    let after = settled(&daemon, &steady.name);
    let growth = tally(&steady.name, &before, &after);
    println!("{:?} accounted, {} missed", growth.completions, growth.missed);
    assert_eq!(growth.unaccounted, 0, "completions that are neither counted nor missed");
    assert_eq!(after.figures.value("biolat_collect_failures_total", &[]), 0.0, "{:?}", daemon.log());

    // The first quarter is a warm-up that fills caches.
    let (early, late) = samples[samples.len() / 4..].split_at(samples.len() * 3 / 8);
    let most = |samples: &[Usage]| samples.iter().copied().fold(Usage::default(), Usage::max);
    let (early, late) = (most(early), most(late));
    println!("at most {early:?} in the first half, {late:?} in the second");
    assert!(late.resident as f64 <= early.resident as f64 * 1.1 + 4.0 * MIB, "memory grew");
    assert!(late.threads <= early.threads.max(12), "the number of threads grew");
    assert!(late.files <= early.files.max(350), "the number of descriptors grew");
    assert!(late.slots <= slots(4) + 2 * slots(4), "the number of slots grew");
}

/// Repeats the work until the flag is set, and adds `each` to the count every time.
fn repeat(stop: &StopFlag, count: &AtomicU64, each: u64, pause_ms: u64, mut work: impl FnMut()) {
    while !stop.is_set() {
        work();
        count.fetch_add(each, Relaxed);
        thread::sleep(Duration::from_millis(pause_ms));
    }
}

fn apply_load(device: &LoopDevice) {
    let target = Target::open(&device.path());
    target.read(70);
    target.write(40);
}

fn replace(device: &LoopDevice, file: &str) {
    device.detach();
    device.attach_another(file);
    Target::open(&device.path()).read(20);
}

/// Opens one hostile client, cycling through the kinds. Some stay connected.
fn attack(address: SocketAddr, held: &mut Vec<TcpStream>) {
    const HOSTILE: [&[u8]; 6] = [
        b"",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost:",
        b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"\x16\x03\x01\x02\x00\xff\x00 \r\n\r\n",
    ];
    let number = held.len();
    if number >= 300 {
        held.clear();
        return;
    }
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(2)) else { return };
    let _ = stream.write_all(HOSTILE[number % HOSTILE.len()]);
    match number % 4 {
        0 => drop(stream.shutdown(Shutdown::Write)),
        1 => {
            let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
            let _ = stream.read(&mut [0; 100]);
        }
        _ => {}
    }
    held.push(stream);
}
