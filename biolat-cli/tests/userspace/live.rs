//! Live windows, from servers with synthetic snapshots.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Output, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use biolat_common::{
    bucket::cell,
    size::{BAND_CELLS, band_cell},
};
use biolat_daemon::{
    http::{ServeConfig, Service},
    web_config::WebConfig,
};
use biolat_model::{
    band_histogram::BandHistogram,
    cgroup::Identity,
    size_histogram::SizeHistogram,
    snapshot::{BandView, SizesView, Snapshot, WorkloadUsage, WorkloadView},
};
use flate2::{Compression, write::GzEncoder};
use rustix::process::Signal;

use crate::support::{
    certificates::{Authority, Folder},
    command, ends_on_ctrl_c, fails, interrupt, run, run_in_400_mib,
    server::BackgroundServer,
    server_of,
    snapshots::{serve_config, snapshot},
    text, unwrapped,
};

/// Reads and bytes per collection.
pub(crate) const READS: u64 = 40;
const BYTES: u64 = 4096 * READS;

const TLS: &str = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";

/// The snapshot of a collection: each adds reads that take a millisecond.
pub(crate) fn collection(number: u64, started: SystemTime) -> Snapshot {
    let mut snapshot = snapshot(1);
    snapshot.started = started;
    snapshot.interval = Duration::from_millis(200);
    snapshot.taken = started + Duration::from_millis(200 * number);
    for _ in 0..number {
        snapshot.health.durations.zero += 1;
    }
    let view = &mut snapshot.devices[0];
    view.since = started;
    for histogram in &mut view.series[0].histograms {
        histogram.buckets = vec![(-80, READS * number)];
        histogram.sum_ns = u128::from(READS * number) * 900_000;
    }
    view.series[0].bytes = BYTES * number;
    view.series[0].sizes = Some(sizes(READS * number));
    view.spread.completions = vec![0, READS * number];
    snapshot.workloads = Some(vec![workload(READS * number, started)]);
    snapshot
}

/// This many requests of 4 KiB.
fn sizes(count: u64) -> SizesView {
    let requests = SizeHistogram { zero: 0, buckets: vec![(12, count)], overflow: 0 };
    SizesView { requests, bands: vec![BandView { size: "le_4KiB".into(), device: latencies(count) }] }
}

fn latencies(count: u64) -> BandHistogram {
    let mut cells = [0; BAND_CELLS];
    cells[band_cell(cell(900_000))] = count;
    BandHistogram::from_cells(&cells, u128::from(count) * 900_000)
}

/// A service that has done this many reads.
fn workload(count: u64, since: SystemTime) -> WorkloadView {
    let usage = WorkloadUsage {
        device: "nvme0n1".into(),
        op: "read".into(),
        bytes: 4096 * count,
        errors: 0,
        queue_ns: 0,
        device_ns: u128::from(count) * 900_000,
        latency: latencies(count),
    };
    let identity = Identity::default();
    WorkloadView { usage: vec![usage], ..WorkloadView::new("/system.slice/db.service", &identity, since) }
}

/// A daemon with a collection every 200 ms, for as long as the process lives.
pub(crate) fn biolat(config: Option<&Path>) -> SocketAddr {
    let web_config = config.map(|path| WebConfig::open(path).unwrap());
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let server = BackgroundServer::start(Some(collection(1, started)), move |seen| {
        let config = ServeConfig { interval: Duration::from_millis(200), ..serve_config() };
        let service = Service::new(seen, config);
        match web_config {
            Some(web_config) => service.with_web_config(web_config),
            None => service,
        }
    });
    let address = server.address;
    server.keep_sending(2, move |number| collection(number, started));
    address
}

/// Shows at most one window.
fn once(arguments: &[&str]) -> Output {
    run(&[arguments, &["200ms", "1"]].concat())
}

fn shows_the_reads(output: &Output) {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("p50 935 us"), "{stdout}{stderr}");
}

#[test]
fn windows_are_whole_collections() {
    let address = biolat(None).to_string();
    let output = run(&["hist", "--host", &address, "-j", "400ms", "3"]);
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    let mut last = 0.0;
    for line in &lines {
        let block = &line["blocks"][0];
        // Each has two collections, or more if this machine was slow, and all of their I/Os.
        let collections = (line["seconds"].as_f64().unwrap() / 0.2).round() as u64;
        assert!(collections >= 2, "{line}");
        assert_eq!(block["ios"], READS * collections);
        assert_eq!(block["bytes"], BYTES * collections);
        let device = &block["latency"]["device"];
        assert_eq!(device["count"], READS * collections);
        assert_eq!(device["buckets"][0][2], READS * collections);
        assert_eq!(device["buckets"][0][1], 0.0009765625);
        assert!((device["p99"].as_f64().unwrap() - 935e-6).abs() < 1e-6, "{device}");
        assert!(line["ended"].as_f64().unwrap() > last);
        last = line["ended"].as_f64().unwrap();
    }
    let stderr = text(&output.stderr);
    assert!(stderr.contains(&format!("on example at http://{address}, interval 200 ms")), "{stderr}");
}

#[test]
fn measures_for_a_given_length() {
    let output = run(&["who", "--for", "400ms", "-j", "--host", &biolat(None).to_string()]);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(line["seconds"].as_f64().unwrap() > 0.39, "{line}");
    fails(&run(&["worst", "--for", "5m"]), &["--for is the length of a range that begins at --at"]);
}

#[test]
fn top_prints_json_without_a_terminal() {
    let output = once(&["top", "-j", "--host", &biolat(None).to_string()]);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let blocks = line["blocks"].as_array().unwrap();
    assert_eq!((blocks.len(), &blocks[0]["device"]), (1, &"nvme0n1".into()));
    assert!(blocks[0]["ios"].as_u64().unwrap() >= READS, "{line}");
}

#[test]
fn prints_tables_by_size_and_cpu() {
    let address = biolat(None).to_string();
    for (table, lines) in [
        ("sizes", &["nvme0n1 read: device latency by size\n", "  up to 4 KiB  ", "  900 us  "][..]),
        ("cpus", &["  CPU 1  ", "  100 % ***", "effective CPUs 1.0"]),
    ] {
        let stdout = text(&once(&[table, "--host", &address]).stdout);
        for line in lines {
            assert!(stdout.contains(line), "{line} is not in:\n{stdout}");
        }
        assert!(!stdout.contains("every device and op"), "{stdout}");
    }
    let json = |table| -> serde_json::Value {
        serde_json::from_slice(&once(&[table, "--host", &address, "-j"]).stdout).unwrap()
    };
    let sizes = json("sizes");
    let ios = &sizes["blocks"][0]["ios"];
    assert_eq!(&sizes["sizes"][0]["requests"][0], &serde_json::json!([2048, 4096, ios]));
    assert_eq!(&sizes["sizes"][0]["bands"][0]["count"], ios);
    let cpus = json("cpus");
    assert_eq!(cpus["cpus"], serde_json::json!({"nvme0n1": [0, cpus["blocks"][0]["ios"]]}));
}

#[test]
fn prints_tables_by_workload() {
    let address = biolat(None).to_string();
    let output = once(&["who", "--host", &address]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", text(&output.stderr));
    for line in ["nvme0n1: workloads by share of the drive's time\n", "db.service", "  100 % ***"] {
        assert!(stdout.contains(line), "{line} is not in:\n{stdout}");
    }
    assert!(!stdout.contains("every device and op"), "{stdout}");
    let output = once(&["who", "--host", &address, "-j"]);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (who, block) = (&line["who"][0], &line["blocks"][0]);
    assert_eq!((&who["cgroup"], &who["share"]), (&"/system.slice/db.service".into(), &1.0.into()));
    assert_eq!((&who["ios"], &who["bytes"]), (&block["ios"], &block["bytes"]));
}

/// An older daemon, or one with `--sizes off` or `--workloads off`.
#[test]
fn reports_what_a_daemon_does_not_count() {
    let older = Snapshot { interval: Duration::from_millis(200), ..snapshot(1) };
    let body = serde_json::to_vec(&older).unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let address = server_of([head.as_bytes(), &body].concat().leak()).to_string();
    for json in [&[][..], &["-j"]] {
        let run = |table| once(&[&[table, "--host", &address], json].concat());
        fails(&run("sizes"), &["no sizes are counted there: that biolat-daemon runs with --sizes off"]);
        fails(&run("cpus"), &["completions by CPU are unknown there"]);
        fails(&run("who"), &["no workloads are counted there: that biolat-daemon runs with --workloads off"]);
    }
}

/// The host can be given after the command, before it, or in the environment, in this order of precedence.
#[test]
fn accepts_the_host_in_three_places() {
    let (address, wrong) = (biolat(None).to_string(), "127.0.0.1:1");
    let who = ["who", "200ms", "1"];
    for (host, arguments) in [
        (None, &["--host", &address, who[0], who[1], who[2]][..]),
        (None, &[who[0], "--host", &address, who[1], who[2]]),
        (None, &["--host", wrong, who[0], who[1], who[2], "--host", &address]),
        (Some(&*address), &who),
        (Some(wrong), &["--host", &address, who[0], who[1], who[2]]),
        (Some(wrong), &[who[0], "--host", &address, who[1], who[2]]),
        (Some(""), &["--host", &address, who[0], who[1], who[2]]),
    ] {
        let mut command = command(arguments);
        let output = command.envs(host.map(|host| ("BIOLAT_HOST", host))).output().unwrap();
        let stdout = text(&output.stdout);
        assert!(output.status.success(), "{host:?}, {arguments:?}: {}", text(&output.stderr));
        let about = format!("on example at http://{address}, interval 200 ms");
        assert!(unwrapped(&stdout).contains(&about), "{stdout}");
        assert!(stdout.contains("workloads by share of the drive's time"), "{stdout}");
    }
}

#[test]
fn reports_a_window_shorter_than_the_daemons_interval() {
    let address = biolat(None).to_string();
    let output = run(&["hist", "--host", &address, "100ms", "3"]);
    shows_the_reads(&output);
    let stdout = text(&output.stdout);
    // A window has two collections if this machine was slow.
    let words = unwrapped(&stdout);
    let expected = "ms instead of 100 ms: that biolat-daemon collects every 200 ms (its --interval)";
    assert!(words.contains(expected), "{stdout}");
    assert!(!stdout.contains("no I/O"), "{stdout}");
    assert!(stdout.is_ascii() && stdout.lines().all(|line| line.len() <= 80), "{stdout}");
    assert_eq!(stdout.matches("every device and op: device latency").count(), 3, "{stdout}");
    assert!(stdout.contains("Nothing stands out"), "{stdout}");
}

#[test]
fn ctrl_c_prints_the_window_and_succeeds() {
    let address = biolat(None).to_string();
    for arguments in [&["hist", "--host", &address][..], &["hist", "--host", &address, "1h"]] {
        let child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        thread::sleep(Duration::from_millis(1500));
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        shows_the_reads(&output);
        assert!(text(&output.stdout).contains("Findings in"), "{}", text(&output.stdout));
    }
}

#[test]
fn ctrl_c_works_while_the_server_is_silent() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let child =
        command(&["hist", "--host", &address]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (_connection, _) = silent.accept().unwrap();
    ends_on_ctrl_c(child);
}

/// A full pipe without a reader, like a terminal stopped with Ctrl-S.
#[test]
fn ctrl_c_works_while_the_output_is_stalled() {
    let address = biolat(None).to_string();
    let (_reader, writer) = io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    // More than fits in the pipe: the write blocks until the test ends.
    thread::spawn(move || filler.write_all(&[b'x'; 2 << 20]));
    let mut child = command(&["hist", "--host", &address, "200ms"])
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .spawn()
        .unwrap();
    // Until the process handles the signal, the default action applies.
    let handles_signals = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::INT.as_raw() - 1)) != 0
    };
    while !handles_signals() {
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn exits_quietly_on_a_closed_pipe() {
    let address = biolat(None).to_string();
    let mut child: Child = command(&["hist", "--host", &address, "200ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("biolat-daemon "));
    drop(lines);
    let began = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn authenticates_with_passwords() {
    let folder = Folder::new("cli-passwords");
    let hash = bcrypt::hash("geheim: @%", 5).unwrap();
    let config = folder.write("web.yml", &format!("basic_auth_users:\n  alice: {hash}\n"));
    let address = biolat(Some(&config));
    let url = format!("http://{address}");
    let file = folder.write("password", "geheim: @%\n");
    let user = ["hist", "--host", &url, "--user", "alice", "200ms", "1"];
    shows_the_reads(&command(&user).env("BIOLAT_PASSWORD", "geheim: @%").output().unwrap());
    shows_the_reads(&run(&[&user[..], &["--password-file", file.to_str().unwrap()]].concat()));
    let whole = format!("http://alice:geheim%3a%20%40%25@{address}");
    shows_the_reads(&run(&["hist", "--host", &whole, "200ms", "1"]));
    shows_the_reads(
        &command(&["hist", "--host", &whole, "200ms", "1"])
            .env("BIOLAT_PASSWORD", "another's")
            .output()
            .unwrap(),
    );
    fails(&once(&["hist", "--host", &url]), &["requires a password", "--user", "BIOLAT_PASSWORD"]);
    fails(&run(&user), &["no password for alice"]);
    let wrong = command(&user).env("BIOLAT_PASSWORD", "falsch").output().unwrap();
    fails(&wrong, &["rejects this user name and password"]);
    assert!(!text(&wrong.stderr).contains("falsch"));
    fails(&run(&[&user[..], &["--password-file", "/nonexistent"]].concat()), &["cannot read /nonexistent"]);
}

#[test]
fn verifies_tls_certificates() {
    let folder = Folder::new("cli-tls");
    let authority = Authority::new("biolat's own");
    authority.issue("server").write(&folder);
    let trusted = folder.write("authority.pem", authority.pem());
    let trusted = trusted.to_str().unwrap();
    let untrusted = folder.write("untrusted.pem", Authority::new("another").pem());
    let config = folder.write("web.yml", TLS);
    let address = biolat(Some(&config));
    let url = format!("https://{address}");
    shows_the_reads(&run(&["hist", "--host", &url, "--ca-file", trusted, "200ms", "1"]));
    // The server's own certificate works as well as a CA's.
    let own = folder.0.join("server.pem");
    shows_the_reads(&run(&["hist", "--host", &url, "--ca-file", own.to_str().unwrap(), "200ms", "1"]));
    for by in
        [&["hist", "--host", &url][..], &["hist", "--host", &url, "--ca-file", untrusted.to_str().unwrap()]]
    {
        fails(&once(by), &["no TLS connection to", "CA that is not trusted here", "--ca-file"]);
    }
    // The user intends to use TLS: without it, a password would be sent in plain text.
    fails(
        &once(&["hist", "--host", &address.to_string(), "--ca-file", trusted]),
        &["--ca-file requires TLS", "give https://"],
    );
    let other_name = format!("https://localhost:{}", address.port());
    for file in [trusted, own.to_str().unwrap()] {
        fails(&once(&["hist", "--host", &other_name, "--ca-file", file]), &["for another name"]);
    }
    fails(
        &run(&["hist", "--host", &url, "--ca-file", config.to_str().unwrap()]),
        &["contains no PEM certificate"],
    );
    fails(&once(&["hist", "--host", &format!("https://{}", biolat(None))]), &["does not speak TLS"]);
    fails(&once(&["hist", "--host", &format!("http://{address}")]), &["answers 400"]);
}

#[test]
fn rejects_expired_certificates() {
    let folder = Folder::new("cli-expired");
    let authority = Authority::new("biolat's own");
    authority.issue_expired("server").write(&folder);
    let config = folder.write("web.yml", TLS);
    let url = format!("https://{}", biolat(Some(&config)));
    let trusted = folder.write("authority.pem", authority.pem());
    for file in [trusted, folder.0.join("server.pem")] {
        fails(&once(&["hist", "--host", &url, "--ca-file", file.to_str().unwrap()]), &["has expired"]);
    }
}

#[test]
fn rejects_hostile_responses() {
    // 64 KiB of gzip that unpack to 64 MiB of JSON.
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(b"{\"version\":1,\"biolat\":\"1\",\"devices\":[").unwrap();
    for _ in 0..64 {
        packed.write_all(&b"\"\",".repeat(350_000)).unwrap();
    }
    let packed = packed.finish().unwrap();
    let idle = Snapshot { interval: Duration::ZERO, ..collection(1, SystemTime::now()) };
    for (body, encoding, expected) in [
        (packed, "gzip", "the answer is larger than 16 MiB"),
        (serde_json::to_vec(&idle).unwrap(), "identity", "malformed answer: it collects every 0 s"),
    ] {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let answer = [head.as_bytes(), &body].concat();
        let began = Instant::now();
        let address = server_of(answer.leak()).to_string();
        let output = run_in_400_mib("\"$0\" hist --host \"$1\" 200ms 1", &[&address]);
        fails(&output, &[expected]);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

/// Endless or malformed responses: each results in a one-line error, promptly.
#[test]
fn gives_up_on_endless_responses() {
    // Larger than any limit.
    let endless = |head: &str, more: &[u8]| [head.as_bytes(), &more.repeat((18 << 20) / more.len())].concat();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(b"{\"version\":1}").unwrap();
    let mut half = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n".to_vec();
    half.extend(&packed.finish().unwrap()[..12]);
    for answer in [
        endless("HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        endless("HTTP/1.1 200 OK\r\nX: ", b"y"),
        endless("HTTP/1.1 ", b"2"),
        endless("HTTP/1.1 200 OK\r\n\r\n", b"[{\"version\":1},"),
        endless("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n", b" "),
        endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\n[[[[\r\n"),
        endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", b"["),
        endless("HTTP/1.1 500 Oops\r\n\r\n", b"broken "),
        endless("", b"HTTP/1.1 100 Continue\r\n\r\n"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}".to_vec(),
        half,
    ] {
        let (address, began) = (server_of(answer.leak()), Instant::now());
        fails(&once(&["hist", "--host", &address.to_string()]), &[]);
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    }
}

#[test]
fn explains_incompatible_servers() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fails(
        &once(&["hist", "--host", &free.to_string()]),
        &["Connection refused", "is biolat-daemon running there"],
    );
    for (bytes, expected) in [
        (
            &b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"[..],
            "it is not biolat-daemon, or a version older than",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "not a biolat snapshot"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nhello",
            "closed the connection in the middle of its answer",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 35\r\n\r\n{\"version\":2,\"biolat\":\"9.1\",\"x\":[]}\n",
            "biolat 9.1 there has version 2 of the API",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 29\r\n\r\n{\"version\":1,\"biolat\":\"0.1\"}\n", "malformed"),
        (b"HTTP/1.1 302 Found\r\nLocation: https://x\r\nContent-Length: 0\r\n\r\n", "redirects to https://x"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 6\r\n\r\nbroken", "500 Internal Server Error: broken"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer"),
        (b"", "does not answer"),
    ] {
        let output = once(&["hist", "--host", &server_of(bytes).to_string()]);
        fails(&output, &[expected]);
    }
}
