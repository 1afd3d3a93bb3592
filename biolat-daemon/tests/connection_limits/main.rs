//! Connection limits: a thousand abusive clients at a time, with regular scrapes in between. The server runs in its own process,
//! so the kernel reports its memory use.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails the test")]

#[path = "../support/mod.rs"]
mod support;

use std::{
    fs,
    future::Future,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use biolat_daemon::{
    http::{Limits, Service, serve},
    listen,
    web_config::WebConfig,
};
use biolat_history::{HistoryLimits, SharedHistory};
use biolat_model::histogram::Histogram;
use biolat_system::c_library;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    sync::{Mutex, MutexGuard, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{
    TlsConnector,
    rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use support::certificates::{Authority, Folder};
use support::snapshots::{serve_config, snapshot};

/// A scrape of this many devices is about 800 KiB.
const DEVICES: usize = 100;
const ATTACKERS: usize = 1000;
/// Round-trip time of a regular client: the delay between its connection and its request. Where clients authenticate, the server
/// can tell them from attackers, so even a distant client keeps its connection.
const CLIENT_DELAY: Duration = Duration::from_millis(20);
const DISTANT_CLIENT_DELAY: Duration = Duration::from_millis(200);
const MAX_SCRAPE_TIME: Duration = Duration::from_secs(1);
/// Allowed growth of the server's memory: 256 connections with a few 16 KiB buffers each, and fragmentation.
const MAX_GROWTH: u64 = 10 << 20;
/// Interval between snapshots of a `renewing` server.
const RENEWAL: Duration = Duration::from_millis(100);
const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
const AUTHORIZATION: &str = "Authorization: Basic YWxpY2U6aHVudGVyMg==\r\n"; // alice:hunter2

/// Duration of an attack: `BIOLAT_ATTACK_SECONDS`.
fn attack_time() -> Duration {
    let seconds = std::env::var("BIOLAT_ATTACK_SECONDS").map_or(3, |seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds)
}

/// Serializes the tests, because each one uses the whole machine.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Sets the open file limit to `wanted`, or to the hard limit if that is lower.
fn limit_files(wanted: u64) -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum.unwrap_or(u64::MAX).min(wanted);
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).unwrap();
    current
}

/// Runs the server process for the other tests, with the given web config, if any.
#[test]
#[ignore = "started by the other tests"]
fn run_test_server() {
    let Some(config) = std::env::var_os("BIOLAT_TEST_SERVE") else { return };
    c_library::share_one_heap();
    let renewed_devices = std::env::var("BIOLAT_TEST_RENEWS").ok().map(|devices| devices.parse().unwrap());
    if let Ok(files) = std::env::var("BIOLAT_TEST_FILES") {
        limit_files(files.parse().unwrap());
    }
    let address = std::env::var("BIOLAT_TEST_LISTEN").unwrap_or("127.0.0.1:0".to_owned());
    let listener = listen::open(&[address.parse().unwrap()], []).unwrap().remove(0);
    println!("\nserving {}", listener.local_addr().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (snapshots, seen) = watch::channel(Some(Arc::new(snapshot(renewed_devices.unwrap_or(DEVICES)))));
        let limits = match renewed_devices {
            Some(_) => {
                tokio::spawn(async move {
                    loop {
                        sleep(RENEWAL).await;
                        snapshots.send_modify(|last| *last = last.as_deref().cloned().map(Arc::new));
                    }
                });
                Limits::of_interval(RENEWAL)
            }
            None => Limits::default(),
        };
        let (_stop, stopped) = watch::channel(false);
        let mut service = Service::new(seen, serve_config());
        if std::env::var_os("BIOLAT_TEST_HISTORY").is_some() {
            service = service.with_history(history());
        }
        if !config.is_empty() {
            service = service.with_web_config(WebConfig::open(config.as_ref()).unwrap());
        }
        serve(vec![listener.try_into().unwrap()], service, limits, stopped).await;
    });
}

/// A few minutes of a large host's history: a 15 MB response.
fn history() -> SharedHistory {
    let limits = HistoryLimits { age: Duration::from_secs(3600), bytes: 16 << 20 };
    let history = SharedHistory::new(limits, Duration::ZERO);
    let mut last = snapshot(DEVICES / 4);
    for number in 1..=100 {
        last.taken += Duration::from_secs(5);
        for series in last.devices.iter_mut().flat_map(|view| &mut view.series) {
            let grown = |index| (index, number * (number + 1) / 2);
            series.histograms =
                [(); 4].map(|()| Histogram { buckets: (-100..60).map(grown).collect(), ..Histogram::new() });
        }
        history.record(&Arc::new(last.clone()), Duration::from_secs(5 * number));
    }
    history
}

const TLS: &str = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";

/// Returns a folder with a server certificate, and the authority that issued it.
fn certificates(name: &str) -> (Folder, Authority) {
    let (folder, authority) = (Folder::new(&format!("abuse-{name}")), Authority::new("authority"));
    authority.issue("server").write(&folder);
    (folder, authority)
}

struct Server {
    child: Child,
    /// Address for scrapes.
    address: SocketAddr,
    /// Address for attacks.
    attacked: SocketAddr,
    tls: Option<TlsConnector>,
    _folder: Folder,
    _alone: MutexGuard<'static, ()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a server without TLS or a password.
    async fn plain(name: &str) -> Self {
        Self::start(Folder::new(&format!("abuse-{name}")), "", None, None).await
    }

    /// Starts a plain server with a low limit on open files.
    async fn with_files(name: &str, files: u64) -> Self {
        Self::start(
            Folder::new(&format!("abuse-{name}")),
            "",
            None,
            Some(("BIOLAT_TEST_FILES", files.to_string())),
        )
        .await
    }

    /// Starts a server that publishes ten snapshots per second with this many devices.
    async fn renewing(name: &str, devices: usize) -> Self {
        let renews = Some(("BIOLAT_TEST_RENEWS", devices.to_string()));
        Self::start(Folder::new(&format!("abuse-{name}")), "", None, renews).await
    }

    /// Starts a server with a history.
    async fn with_history(name: &str) -> Self {
        let history = Some(("BIOLAT_TEST_HISTORY", "1".to_owned()));
        Self::start(Folder::new(&format!("abuse-{name}")), "", None, history).await
    }

    /// Starts a server on IPv4 and IPv6; attacks use IPv6. Returns `None` if the kernel lacks IPv6.
    async fn dual_stack(name: &str) -> Option<Self> {
        std::net::TcpListener::bind("[::1]:0").ok()?;
        let any = Some(("BIOLAT_TEST_LISTEN", "[::]:0".to_owned()));
        let mut server = Self::start(Folder::new(&format!("abuse-{name}")), "", None, any).await;
        server.attacked.set_ip(Ipv6Addr::LOCALHOST.into());
        Some(server)
    }

    /// Starts a server with TLS and a password.
    async fn guarded(name: &str) -> Self {
        let (folder, authority) = certificates(name);
        let hash = bcrypt::hash("hunter2", 10).unwrap();
        let config = folder.write("web.yml", &format!("{TLS}basic_auth_users:\n  alice: {hash}\n"));
        let tls = authority.client().with_no_client_auth();
        Self::start(folder, config.to_str().unwrap(), Some(TlsConnector::from(Arc::new(tls))), None).await
    }

    /// Starts a server that requires client certificates. Also returns a client with a certificate from another authority.
    async fn certified(name: &str) -> (Self, TlsConnector) {
        let (folder, authority) = certificates(name);
        folder.write("authority.pem", authority.pem());
        let client_auth = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: authority.pem\n";
        let config = folder.write("web.yml", &format!("{TLS}{client_auth}"));
        let client = |issuer: &Authority| {
            let issued = issuer.issue("client");
            let chain = vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
            let tls = authority.client().with_client_auth_cert(chain, key).unwrap();
            TlsConnector::from(Arc::new(tls))
        };
        let (known, unknown) = (client(&authority), client(&Authority::new("another")));
        (Self::start(folder, config.to_str().unwrap(), Some(known), None).await, unknown)
    }

    async fn start(
        folder: Folder,
        config: &str,
        tls: Option<TlsConnector>,
        environment: Option<(&str, String)>,
    ) -> Self {
        let alone = ALONE.lock().await;
        // Each attacker needs a file descriptor.
        assert!(
            limit_files(u64::MAX) > 2 * ATTACKERS as u64,
            "the open file limit is too low: raise it with ulimit -n"
        );
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "run_test_server", "--ignored", "--nocapture"])
            .env("BIOLAT_TEST_SERVE", config)
            // The daemon sets this on its first thread; tests run on other threads.
            .env("GLIBC_TUNABLES", "glibc.malloc.arena_max=1")
            .envs(environment)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address =
            lines.find_map(|line| line.unwrap().strip_prefix("serving ").map(|a| a.parse().unwrap()));
        let attacked: SocketAddr = address.unwrap();
        let address = (Ipv4Addr::LOCALHOST, attacked.port()).into();
        Self { child, address, attacked, tls, _folder: folder, _alone: alone }
    }

    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    fn files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Time that the server and this process spent waiting for a CPU because of other load: for each, the longest wait of any
    /// thread.
    fn cpu_wait(&self) -> Duration {
        let of_process = |process: &str| {
            let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
            let schedstats = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
            let waits = schedstats.filter_map(|text| text.split_whitespace().nth(1)?.parse().ok());
            Duration::from_nanos(waits.max().unwrap_or_default())
        };
        of_process(&self.child.id().to_string()) + of_process("self")
    }

    /// Does a full scrape. Returns its duration, less the time lost to other load on the machine.
    async fn scrape(&self) -> Result<Duration, String> {
        let (began, waited) = (Instant::now(), self.cpu_wait());
        let scraped = async {
            let stream = TcpStream::connect(self.address).await?;
            sleep(if self.tls.is_some() { DISTANT_CLIENT_DELAY } else { CLIENT_DELAY }).await;
            match &self.tls {
                None => exchange(stream, &format!("{SCRAPE}\r\n")).await,
                Some(tls) => {
                    let name = Ipv4Addr::LOCALHOST.into();
                    exchange(tls.connect(name, stream).await?, &format!("{SCRAPE}{AUTHORIZATION}\r\n")).await
                }
            }
        };
        let answer =
            timeout(Duration::from_secs(20), scraped).await.map_err(|_| "none in 20 s".to_owned())?;
        let answer = answer.map_err(|error| error.to_string())?;
        let whole = answer.starts_with(b"HTTP/1.1 200") && answer.len() > 1 << 19;
        let beginning = String::from_utf8_lossy(&answer[..answer.len().min(200)]);
        let took = began.elapsed().saturating_sub(self.cpu_wait().saturating_sub(waited));
        if whole { Ok(took) } else { Err(format!("{} bytes: {beginning}", answer.len())) }
    }

    /// Scrapes regularly for this long while the attackers repeat their attack. Compares the server's memory before and during
    /// the attack.
    async fn withstands<A: Future<Output = ()> + Send + 'static>(
        &self,
        what: &str,
        lasting: Duration,
        attack: impl Fn(SocketAddr, u64) -> A + Clone + Send + 'static,
    ) {
        for _ in 0..3 {
            self.scrape().await.unwrap();
        }
        let before = self.resident();
        let attacks = Arc::new(AtomicU64::new(0));
        let mut attackers = JoinSet::new();
        for number in 0..ATTACKERS as u64 {
            let (attack, address, attacks) = (attack.clone(), self.attacked, Arc::clone(&attacks));
            attackers.spawn(async move {
                for round in 0.. {
                    attack(address, number + (round << 32)).await;
                    attacks.fetch_add(1, Relaxed);
                    sleep(Duration::from_secs(1)).await;
                }
            });
        }
        let (began, mut slowest, mut scrapes, mut most, mut files) =
            (Instant::now(), Duration::ZERO, 0, before, 0);
        while began.elapsed() < lasting {
            sleep(Duration::from_millis(50)).await;
            let took = self.scrape().await.unwrap_or_else(|error| panic!("{what}: scrape failed: {error}"));
            (slowest, scrapes) = (slowest.max(took), scrapes + 1);
            (most, files) = (most.max(self.resident()), files.max(self.files()));
        }
        while let Some(ended) = attackers.try_join_next() {
            ended.unwrap();
        }
        attackers.shutdown().await;
        let grown = most - before;
        println!(
            "{what}: {scrapes} scrapes, the slowest took {slowest:?}; {} attacks; {} KiB before, {} KiB more at the \
             most, {files} files",
            attacks.load(Relaxed),
            before >> 10,
            grown >> 10,
        );
        assert!(slowest < MAX_SCRAPE_TIME, "{what}: the slowest scrape took {slowest:?}");
        assert!(grown < MAX_GROWTH, "{what}: memory grew by {grown} bytes");
        assert!(files < 320, "{what}: {files} open files");
        self.scrape().await.unwrap();
    }
}

/// Sends a request and reads until the connection is closed.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, send: &str) -> std::io::Result<Vec<u8>> {
    stream.write_all(send.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Connects from an attacker's address, with a small receive buffer.
async fn connect(address: SocketAddr, number: u64) -> Option<TcpStream> {
    let socket = if address.is_ipv6() {
        TcpSocket::new_v6().unwrap()
    } else {
        let socket = TcpSocket::new_v4().unwrap();
        // Half of the attackers share an address; the rest have one each.
        let [.., high, low] = number.to_be_bytes();
        let from = if number.is_multiple_of(2) { [127, 0, 0, 2] } else { [127, 1, high, low] };
        socket.bind((from, 0).into()).unwrap();
        socket
    };
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(address).await.ok()
}

/// Sends these bytes, then idles until the server closes the connection.
async fn send_and_idle(address: SocketAddr, number: u64, send: &[u8]) {
    let Some(mut stream) = connect(address, number).await else { return };
    let _ = stream.write_all(send).await;
    let _ = stream.read(&mut [0]).await;
}

/// Sends these bytes slowly, one at a time.
async fn send_slowly(address: SocketAddr, number: u64, send: &[u8]) {
    let Some(mut stream) = connect(address, number).await else { return };
    for byte in send.iter().cycle() {
        if stream.write_all(&[*byte]).await.is_err() {
            return;
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Sends a request this many times, and reads the responses one byte at a time.
async fn read_slowly(address: SocketAddr, number: u64, request: &str, times: usize) {
    let Some(mut stream) = connect(address, number).await else { return };
    let requests = request.repeat(times);
    let _ = timeout(Duration::from_millis(500), stream.write_all(requests.as_bytes())).await;
    while matches!(stream.read(&mut [0]).await, Ok(1)) && matches!(stream.take_error(), Ok(None)) {
        sleep(Duration::from_millis(500)).await;
    }
}

/// Sends these bytes as fast as the server reads them, and reads the responses.
async fn send_fast(address: SocketAddr, number: u64, send: &[u8]) {
    let Some(stream) = connect(address, number).await else { return };
    let (mut from, mut to) = stream.into_split();
    let reading = async {
        let mut some = [0; 4096];
        while matches!(from.read(&mut some).await, Ok(read) if read > 0) {}
    };
    let _ = timeout(Duration::from_secs(2), async { tokio::join!(reading, to.write_all(send)) }).await;
}

/// A reproducible pseudo-random number generator (xorshift).
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        for (left, shift) in [(true, 13), (false, 7), (true, 17)] {
            self.0 ^= if left { self.0 << shift } else { self.0 >> shift };
        }
        (self.0 >> 11) as usize % end
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    /// Returns a slightly corrupted request.
    fn request(&mut self) -> Vec<u8> {
        const PARTS: [&str; 12] = [
            "GET ",
            "HEAD ",
            "/metrics",
            " HTTP/1.1",
            " HTTP/1.0",
            "\r\n",
            "\r\n\r\n",
            "Host: x\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Connection: keep-alive\r\n",
            "Accept: application/openmetrics-text;q=\r\n",
        ];
        let mut request = format!("{SCRAPE}Accept-Encoding: gzip\r\n\r\n").into_bytes();
        for _ in 0..=self.below(6) {
            let at = self.below(request.len());
            match self.below(5) {
                0 => request[at] = self.below(256) as u8,
                1 => drop(request.remove(at)),
                2 => request.truncate(at.max(1)),
                3 => drop(request.splice(at..at, PARTS[self.below(PARTS.len())].bytes())),
                _ => {
                    let length = self.below(2000);
                    drop(request.splice(at..at, self.bytes(length)));
                }
            }
            if request.is_empty() {
                request.push(0);
            }
        }
        request
    }
}

#[tokio::test]
async fn scrapes_succeed_with_idle_clients() {
    let server = Server::plain("waiting").await;
    server
        .withstands("idle", attack_time(), |to, number| async move { send_and_idle(to, number, b"").await })
        .await;
    let half = |to, number| async move {
        send_and_idle(to, number, format!("{SCRAPE}X-Long: {}", "a".repeat(15_000)).as_bytes()).await;
    };
    server.withstands("an incomplete head", attack_time(), half).await;
    server
        .withstands("a slow head", attack_time(), |to, number| async move {
            send_slowly(to, number, SCRAPE.as_bytes()).await
        })
        .await;
    let request = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n";
    let idles = move |to, number| async move { send_slowly(to, number, request).await };
    server.withstands("idle between requests", attack_time(), idles).await;
}

#[tokio::test]
async fn scrapes_succeed_with_few_files() {
    let server = Server::with_files("files", 64).await;
    // All from one address, because 32 addresses would be entitled to all 32 connections.
    server
        .withstands("idle, 64 files", attack_time(), |to, _| async move { send_and_idle(to, 0, b"").await })
        .await;
}

#[tokio::test]
async fn scrapes_succeed_with_slow_readers() {
    let server = Server::plain("reading").await;
    let request = format!("{SCRAPE}\r\n").replace("Connection: close\r\n", "");
    let once = request.clone();
    let slow = move |to, number| {
        let request = once.clone();
        async move { read_slowly(to, number, &request, 1).await }
    };
    server.withstands("slow readers", attack_time(), slow).await;
    let json = request.replace("/metrics", "/api/v1/snapshot");
    let slow = move |to, number| {
        let json = json.clone();
        async move { read_slowly(to, number, &json, 1).await }
    };
    server.withstands("slow readers of JSON", attack_time(), slow).await;
    let pipelined = move |to, number| {
        let request = request.clone();
        async move { read_slowly(to, number, &request, 1000).await }
    };
    server.withstands("pipelined requests", attack_time(), pipelined).await;
}

/// Eight readers get a response; the rest are told to retry.
#[tokio::test]
async fn scrapes_succeed_with_history_readers() {
    let server = Server::with_history("history").await;
    let request = |query: &str| format!("GET /api/v1/history?{query} HTTP/1.1\r\nHost: x\r\n\r\n");
    let (all, zipped) =
        (request("from=0"), request("from=0").replace("\r\n\r\n", "\r\nAccept-Encoding: gzip\r\n\r\n"));
    for (what, request, times) in [
        ("slow readers of the history", &all, 1),
        ("slow readers of the compressed history", &zipped, 1),
        ("pipelined requests for the history", &all, 10),
    ] {
        let slow = {
            let request = request.clone();
            move |to, number| {
                let request = request.clone();
                async move { read_slowly(to, number, &request, times).await }
            }
        };
        server.withstands(what, attack_time(), slow).await;
    }
    // Reads as fast as possible, so there is always something to encode.
    let fast = move |to, number| {
        let all = all.clone();
        async move { send_fast(to, number, all.as_bytes()).await }
    };
    server.withstands("fast readers of the history", attack_time(), fast).await;
    let ranges = move |to, number| async move {
        let mut numbers = Numbers::new(number);
        let length = numbers.below(60);
        let query = numbers.bytes(length).iter().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let step = numbers.below(1 << 40);
        let request = request(&format!("from={query}&to=-{step}s&step={step}"));
        send_fast(to, number, request.as_bytes()).await;
    };
    server.withstands("invalid ranges of the history", attack_time(), ranges).await;
}

/// Each stream announces ten new snapshots per second.
#[tokio::test]
async fn scrapes_succeed_with_event_streams() {
    let server = Server::renewing("events", DEVICES).await;
    let request = "GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n";
    let unread = move |to, number| async move {
        let Some(mut stream) = connect(to, number).await else { return };
        let _ = stream.write_all(request.as_bytes()).await;
        // Reads nothing, but notices when the server closes the connection.
        let _ = timeout(2 * attack_time(), async {
            while stream.take_error().is_ok_and(|error| error.is_none()) {
                sleep(Duration::from_millis(500)).await;
            }
        })
        .await;
    };
    server.withstands("unread streams", 2 * attack_time(), unread).await;
    let slow = move |to, number| async move { read_slowly(to, number, request, 1).await };
    server.withstands("slowly read streams", attack_time(), slow).await;
    let pipelined = move |to, number| async move { read_slowly(to, number, request, 1000).await };
    server.withstands("pipelined streams", attack_time(), pipelined).await;
    // Opens new connections as fast as possible.
    let brief = move |to, number| async move {
        for round in 0..10 {
            let Some(mut stream) = connect(to, number + round).await else { return };
            let _ = stream.write_all(request.as_bytes()).await;
            let _ = stream.read(&mut [0; 1024]).await;
        }
    };
    server.withstands("short-lived streams", attack_time(), brief).await;
}

/// Each response keeps its snapshot until its time limit: 2 s, checked once a second. The responses for thirty snapshots take 100
/// MiB.
#[tokio::test]
async fn slow_readers_release_old_snapshots() {
    let server = Server::renewing("snapshots", 400).await;
    server.scrape().await.unwrap();
    let before = server.resident();
    let (mut readers, mut most) = (JoinSet::new(), before);
    for _ in 0..100 {
        let (address, request) = (server.address, format!("{SCRAPE}\r\n"));
        readers.spawn(async move { read_slowly(address, 0, &request, 1).await });
        sleep(RENEWAL).await;
        most = most.max(server.resident());
    }
    readers.shutdown().await;
    let (began, mut after) = (Instant::now(), most);
    while after >= before + MAX_GROWTH && began.elapsed() < Duration::from_secs(20) {
        sleep(Duration::from_secs(1)).await;
        server.scrape().await.unwrap();
        after = server.resident();
    }
    println!(
        "readers of a hundred snapshots: {} KiB before, at most {} KiB more, {} KiB afterwards",
        before >> 10,
        (most - before) >> 10,
        after >> 10
    );
    // Encoding needs several times the size of a body, which is 3 MiB.
    let limit = Limits::default().body_bytes as u64 + (16 << 20);
    assert!(most - before < MAX_GROWTH + limit, "memory grew by {} bytes", most - before);
    assert!(after < before + MAX_GROWTH, "{after} bytes afterwards, {before} before");
}

#[tokio::test]
async fn scrapes_succeed_during_invalid_requests() {
    let server = Server::plain("nonsense").await;
    let long = |begin: &str| Arc::<[u8]>::from([begin.as_bytes(), &vec![b'a'; 1 << 20]].concat());
    for (what, send) in [
        ("long headers", long(&format!("{SCRAPE}X-Long: "))),
        ("long paths", long("GET /")),
        ("endless bodies", long("GET /-/healthy HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")),
    ] {
        let pour = move |to, number| {
            let send = Arc::clone(&send);
            async move { send_fast(to, number, &send).await }
        };
        server.withstands(what, attack_time(), pour).await;
    }
    let garbage = |to, number| async move { send_fast(to, number, &Numbers::new(number).bytes(4000)).await };
    server.withstands("garbage", attack_time(), garbage).await;
    let fuzz = |to, number| async move { send_fast(to, number, &Numbers::new(number).request()).await };
    server.withstands("fuzzed requests", Duration::from_secs(10), fuzz).await;
}

#[tokio::test]
async fn scrapes_succeed_with_unauthenticated_clients() {
    let server = Server::guarded("guarded").await;
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    server
        .withstands("no handshake", attack_time(), |to, number| async move {
            send_and_idle(to, number, b"").await
        })
        .await;
    let half = move |to, number| async move { send_and_idle(to, number, &hello).await };
    server.withstands("an incomplete handshake", attack_time(), half).await;
    let garbage = |to, number| async move {
        send_fast(to, number, &[&[0x16][..], &Numbers::new(number).bytes(4000)].concat()).await
    };
    server.withstands("garbage instead of a handshake", attack_time(), garbage).await;
    let tls = server.tls.clone().unwrap();
    let idles = move |to, number| {
        let tls = tls.clone();
        async move {
            // Handshakes cost CPU time on the client side too, so start about three hundred per second.
            sleep(Duration::from_millis(2 * (number & 0xffff_ffff))).await;
            let Some(stream) = connect(to, number).await else { return };
            if let Ok(mut stream) = tls.connect(Ipv4Addr::LOCALHOST.into(), stream).await {
                let _ = stream.read(&mut [0]).await;
            }
        }
    };
    server.withstands("idle after the handshake", attack_time(), idles).await;
}

/// All attackers are in one network; the scrapes come from another.
#[tokio::test]
async fn scrapes_succeed_with_ipv6_clients() {
    let Some(server) = Server::dual_stack("ipv6").await else {
        println!("skipped: this kernel has no IPv6");
        return;
    };
    let idle = |to, number| async move { send_and_idle(to, number, b"GET /metrics HTTP/1.1\r\n").await };
    server.withstands("an incomplete head over IPv6", attack_time(), idle).await;
    let slow = |to, number| async move { read_slowly(to, number, &format!("{SCRAPE}\r\n"), 1).await };
    server.withstands("slow readers over IPv6", attack_time(), slow).await;
    let fuzz = |to, number| async move { send_fast(to, number, &Numbers::new(number).request()).await };
    server.withstands("fuzzed requests over IPv6", attack_time(), fuzz).await;
}

/// Clients with a certificate from another authority, and clients without one.
#[tokio::test]
async fn scrapes_succeed_with_untrusted_clients() {
    let (server, unknown_client) = Server::certified("certificates").await;
    let half = |to, number| async move { send_and_idle(to, number, &[0x16, 3, 1, 2, 0, 1]).await };
    server.withstands("no client certificate", attack_time(), half).await;
    let unknown = move |to, number: u64| {
        let unknown_client = unknown_client.clone();
        async move {
            // Handshakes cost CPU time on the client side too, so start about three hundred per second.
            sleep(Duration::from_millis(number % ATTACKERS as u64 * 3)).await;
            let Some(stream) = connect(to, number).await else { return };
            // With TLS 1.3, a client finds out that it was rejected only when it reads.
            if let Ok(mut stream) = unknown_client.connect(Ipv4Addr::LOCALHOST.into(), stream).await {
                let _ = stream.write_all(SCRAPE.as_bytes()).await;
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer).await;
                assert!(answer.is_empty(), "a client without a valid certificate got a response");
            }
        }
    };
    server.withstands("certificates of another authority", attack_time(), unknown).await;
}

/// The first valid password arrives after another address has been guessing for some time.
#[tokio::test]
async fn scrapes_succeed_during_password_guessing() {
    let server = Server::guarded("guesses").await;
    let mut guessers = JoinSet::new();
    for number in 0..100 {
        let (address, tls) = (server.address, server.tls.clone().unwrap());
        guessers.spawn(async move {
            for round in 0.. {
                let guess = async {
                    let socket = TcpSocket::new_v4()?;
                    socket.bind("127.0.0.2:0".parse().unwrap())?;
                    let stream =
                        tls.connect(Ipv4Addr::LOCALHOST.into(), socket.connect(address).await?).await?;
                    let guess = base64::Engine::encode(
                        &base64::prelude::BASE64_STANDARD,
                        format!("alice:{number}.{round}"),
                    );
                    exchange(stream, &format!("{SCRAPE}Authorization: Basic {guess}\r\n\r\n")).await
                };
                if let Ok(answer) = guess.await {
                    assert!(answer.starts_with(b"HTTP/1.1 401") || answer.starts_with(b"HTTP/1.1 429"));
                }
                sleep(Duration::from_millis(500)).await;
            }
        });
    }
    sleep(Duration::from_secs(2)).await;
    let first = server.scrape().await.unwrap();
    let mut slowest = Duration::ZERO;
    for _ in 0..30 {
        slowest = slowest.max(server.scrape().await.unwrap());
        sleep(Duration::from_millis(50)).await;
    }
    println!("guesses: the first scrape took {first:?}, the slowest later one {slowest:?}");
    assert!(first < MAX_SCRAPE_TIME && slowest < MAX_SCRAPE_TIME, "{first:?}, {slowest:?}");
    if let Some(Err(error)) = guessers.try_join_next() {
        panic!("{error}");
    }
}
