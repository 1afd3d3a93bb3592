//! The cost of a scrape: encoding a snapshot in each format, and a response over loopback, both the first for a snapshot and
//! later ones. Run by `cargo xtask bench scrape`.

use std::{
    ffi::OsString,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, bail};
use biolat_common::bucket::native_index;
use biolat_daemon::{
    expose::{ClassicBuckets, Format, HistogramFormat, HistogramKinds, ServerState, encode},
    http::{Limits, ServeConfig, Service, serve},
};
use biolat_model::{
    device::{Device, Group},
    histogram::Histogram,
    snapshot::{DeviceView, Inflight, Process, SeriesView, Snapshot},
};
use clap::Parser;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    command::{self, Usual},
    measure::Cost,
};

/// Measure the cost of a scrape
#[derive(Parser)]
#[command(name = "cargo xtask bench scrape", bin_name = "cargo xtask bench scrape")]
struct Options {
    #[command(flatten)]
    usual: Usual,
}

const DEVICES: [usize; 3] = [1, 21, 256];
/// Number of non-empty buckets in a histogram: the latencies of a drive under a varied load spread over six octaves.
const FILLED: usize = 48;
/// The daemon's defaults.
const HISTOGRAMS: HistogramFormat =
    HistogramFormat { schema: 3, kinds: HistogramKinds::Auto, classic: ClassicBuckets::Few };

struct Row {
    devices: usize,
    format: Format,
    bytes: usize,
    encoding: Cost,
    first: Duration,
    next: Duration,
}

pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    command::main(arguments, run)
}

fn run(options: &Options) -> Result<()> {
    let mut rows = Vec::new();
    for devices in DEVICES {
        for format in Format::ALL {
            rows.push(measure(devices, format)?);
        }
    }
    if options.usual.json {
        println!("{:#}", rows.iter().map(Row::to_json).collect::<Value>());
    } else {
        println!(
            "{:>7}  {:11}  {:>9}  {:>10}  {:>11}  {:>9}  {:>13}  {:>11}",
            "devices", "format", "bytes", "encode, ms", "allocations", "bytes", "first scrape", "next, ms"
        );
        for row in &rows {
            println!(
                "{:>7}  {:11}  {:>9}  {:>10.3}  {:>11}  {:>9}  {:>10.3} ms  {:>11.3}",
                row.devices,
                format!("{:?}", row.format),
                row.bytes,
                row.encoding.ms(),
                row.encoding.allocations,
                row.encoding.allocated_bytes,
                row.first.as_secs_f64() * 1e3,
                row.next.as_secs_f64() * 1e3,
            );
        }
    }
    if options.usual.check { check(&rows) } else { Ok(()) }
}

fn measure(devices: usize, format: Format) -> Result<Row> {
    let snapshot = snapshot(devices);
    let encoding = Cost::of(if devices > 100 { 20 } else { 100 }, || {
        encode(&snapshot, ServerState::default(), HISTOGRAMS, format)
    });
    let (first, next) = scrapes(&snapshot, format)?;
    Ok(Row {
        devices,
        format,
        bytes: encode(&snapshot, ServerState::default(), HISTOGRAMS, format).len(),
        encoding,
        first,
        next,
    })
}

/// Median time that a client waits for the first response for a snapshot, and for a later one.
fn scrapes(snapshot: &Snapshot, format: Format) -> Result<(Duration, Duration)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (snapshots, seen) = watch::channel(None);
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let service = Service::new(seen, ServeConfig { histograms: HISTOGRAMS, ..ServeConfig::default() });
    thread::scope(|scope| {
        scope.spawn(|| runtime.block_on(serve(vec![listener], service, Limits::default(), stopped)));
        // Dropped on return, whatever the outcome, which stops the server.
        let _stop = stop;
        let (mut first, mut next) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            snapshots.send_replace(Some(Arc::new(snapshot.clone())));
            first.push(scrape(address, format)?);
            next.push(scrape(address, format)?);
        }
        first.sort_unstable();
        next.sort_unstable();
        Ok((first[first.len() / 2], next[next.len() / 2]))
    })
}

fn scrape(address: SocketAddr, format: Format) -> Result<Duration> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).context("cannot connect to our own server")?;
    let accept = format.content_type();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: biolat\r\nConnection: close\r\nAccept: {accept}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if !answer.starts_with(b"HTTP/1.1 200") {
        bail!("our own server answers {}", String::from_utf8_lossy(&answer[..answer.len().min(60)]));
    }
    Ok(began.elapsed())
}

/// A snapshot with reads and writes of this many drives.
fn snapshot(devices: usize) -> Snapshot {
    let since = SystemTime::now();
    let histogram = |seed: usize| Histogram {
        zero: seed as u64,
        buckets: (0..FILLED)
            .map(|n| (native_index(8 + 60 + n), (seed * 977 + n * n * 31) as u64 + 1))
            .collect(),
        overflow: 0,
        sum_ns: 123_456_789_012 + seed as u128,
    };
    let series = |device: usize, op: &str| SeriesView {
        op: op.to_owned(),
        bytes: 123_456_789 * device as u64,
        histograms: [device, device + 1, device + 2, device + 3].map(histogram),
        ..SeriesView::default()
    };
    let view = |number: usize| DeviceView {
        device: Device {
            id: number as u64,
            name: format!("nvme{number}n1"),
            number: format!("259:{number}"),
            sequence: Some(number as u64),
            model: "A Model of a Drive 7.68TB".to_owned(),
            serial: format!("S64HNE0R{number:06}"),
            wwid: format!("eui.{number:032x}"),
            numa_node: Some(0),
            ..Device::default()
        },
        since,
        phases: [true; 4],
        series: vec![series(number, "read"), series(number, "write")],
        unseen: Group::ALL.map(|group| (group, 0)).into(),
        inflight: Inflight { is_exact: true, ..Inflight::default() },
        ..DeviceView::default()
    };
    Snapshot {
        taken: since,
        started: since,
        devices: (0..devices).map(view).collect(),
        lost: ["clock", "no_room", "recursion"].map(|reason| (reason.into(), 0)).into(),
        process: Some(Process::default()),
        online_cpus: Some(2),
        ..Snapshot::default()
    }
}

impl Row {
    fn to_json(&self) -> Value {
        json!({
            "devices": self.devices,
            "format": format!("{:?}", self.format),
            "bytes": self.bytes,
            "encoding": self.encoding.to_json(),
            "first_scrape_ms": self.first.as_secs_f64() * 1e3,
            "next_scrape_ms": self.next.as_secs_f64() * 1e3,
        })
    }
}

/// Bounds so wide that only a bug exceeds them.
fn check(rows: &[Row]) -> Result<()> {
    for row in rows {
        let bound = Duration::from_micros(2000 + 2000 * row.devices as u64);
        if row.encoding.cpu > bound {
            bail!("{} devices take {:.1?} to encode as {:?}", row.devices, row.encoding.cpu, row.format);
        }
    }
    Ok(())
}
