//! The metrics in real consumers: Prometheus, promtool and the parsers of the Python client.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::support::{
    awake::Awake,
    daemon::{Daemon, program, wait_for},
    diskstats::READ,
    figures::Figures,
    http, load,
    loop_device::LoopDevice,
    mount::Mount,
    native::decode,
    prometheus::{ALERT_RULES, Prometheus},
    settled::settled,
};

/// Starts a daemon, and puts some load on a device.
fn loaded(name: &str) -> (LoopDevice, Daemon) {
    let device = LoopDevice::attach(name, true);
    let daemon = Daemon::start(&["--interval", "100ms", "--loop"]);
    load::mixed(&device.path());
    settled(&daemon, &device.name);
    (device, daemon)
}

fn scrape(daemon: &Daemon, accept: &str) -> Vec<u8> {
    let answer = http::get(daemon.address, "/metrics", accept).unwrap();
    assert_eq!(answer.status, 200);
    answer.body
}

/// Asserts that a program accepts the body without printing anything.
fn assert_accepts(program: &mut Command, body: &[u8]) {
    let mut child =
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    let output = child.wait_with_output().unwrap();
    let messages = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && messages.is_empty(), "{}", String::from_utf8_lossy(&messages));
}

#[test]
#[ignore = "needs root and promtool: cargo xtask test"]
fn promtool_accepts_metrics() {
    let (_device, daemon) = loaded("promtool");
    assert_accepts(Command::new("promtool").args(["check", "metrics"]), &scrape(&daemon, ""));
}

#[test]
#[ignore = "needs root and Python's prometheus_client: cargo xtask test"]
fn python_client_parses_metrics() {
    let (_device, daemon) = loaded("python");
    let python = std::env::var_os("BIOLAT_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let check = |module: &str, body: &[u8]| {
        let program = format!(
            "import sys\nfrom {module} import text_string_to_metric_families as parse\n\
             names = {{f.name: f for f in parse(sys.stdin.read())}}\n\
             assert len(names) > 20 and len(names['biolat_total_latency_seconds'].samples) > 60, names"
        );
        assert_accepts(Command::new(&python).args(["-c", &program]), body);
    };
    check("prometheus_client.parser", &scrape(&daemon, ""));
    let accept = "Accept: application/openmetrics-text; version=1.0.0\r\n";
    check("prometheus_client.openmetrics.parser", &scrape(&daemon, accept));
}

/// Returns the bounds of the bucket that holds a quantile. Prometheus versions interpolate differently within the bucket.
fn bucket_of_quantile(buckets: &[(i32, u64)], zero: u64, quantile: f64) -> (f64, f64) {
    let all = zero + buckets.iter().map(|(_, count)| count).sum::<u64>();
    let rank = quantile * all as f64;
    let mut cumulative = zero as f64;
    if cumulative >= rank {
        // If there is no other bucket, Prometheus does not know the sign of the values.
        let threshold = 2f64.powi(-20);
        return (if buckets.is_empty() { -threshold } else { 0.0 }, threshold);
    }
    for &(index, count) in buckets {
        cumulative += count as f64;
        if cumulative >= rank {
            return (2f64.powf(f64::from(index - 1) / 8.0), 2f64.powf(f64::from(index) / 8.0));
        }
    }
    panic!("no bucket holds the quantile {quantile}")
}

#[test]
#[ignore = "needs root and prometheus: cargo xtask test"]
fn prometheus_agrees_with_snapshot() {
    let device = LoopDevice::attach("prometheus", true);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let awake = Awake::all_cpus();
    load::mixed(&device.path());
    let figures = settled(&daemon, &device.name).figures;
    drop(awake);
    let prometheus = Prometheus::scraping(daemon.address);
    for phase in ["queue", "device", "total"] {
        for op in ["read", "write", "discard", "flush"] {
            let histogram = figures.histogram(phase, &device.name, op).unwrap();
            let series = format!("biolat_{phase}_latency_seconds{{device=\"{}\",op=\"{op}\"}}", device.name);
            let mut count = None;
            wait_for("Prometheus to have scraped", || {
                count = prometheus.query(&format!("histogram_count({series})"));
                count.is_some()
            });
            assert_eq!(count, Some(histogram.sample_count as f64), "count of {series}");
            let sum = prometheus.query(&format!("histogram_sum({series})")).unwrap();
            assert!((sum - histogram.sample_sum).abs() <= 1e-12 * sum.abs(), "sum of {series}");
            for quantile in [0.01, 0.5, 0.99] {
                if histogram.sample_count == 0 {
                    continue;
                }
                let answer = prometheus.query(&format!("histogram_quantile({quantile}, {series})")).unwrap();
                let (low, high) = bucket_of_quantile(&decode(histogram), histogram.zero_count, quantile);
                assert!(
                    low - 1e-9 <= answer && answer <= high + 1e-9,
                    "{quantile} of {series}: {answer} is not within {low} and {high}"
                );
            }
        }
    }
}

/// To Prometheus, a killed and restarted daemon is just a counter reset.
#[test]
#[ignore = "needs root and prometheus: cargo xtask test"]
fn prometheus_sees_restart_as_reset() {
    let device = LoopDevice::attach("reset", true);
    let name = device.name.as_str();
    let target = load::Target::open(&device.path());
    let first = Daemon::start(&["--interval", "100ms", "--device", name]);
    let prometheus = Prometheus::scraping(first.address);
    let series = format!("biolat_total_latency_seconds{{device=\"{name}\",op=\"read\"}}");
    let bytes = format!("biolat_io_bytes_total{{device=\"{name}\",op=\"read\"}}");
    let scraped = |figures: &Figures| {
        let count = figures.count(name, READ) as f64;
        let sees = || prometheus.query(&format!("histogram_count({series})")) == Some(count);
        wait_for("Prometheus to have scraped it", sees);
        count
    };
    target.read(3000);
    let before = scraped(&settled(&first, name).figures);
    let address = first.address.to_string();
    drop(first);
    target.read(400);
    let second = Daemon::start_command(Command::new(program()).args([
        "--listen",
        &address,
        "--interval",
        "100ms",
        "--device",
        name,
    ]));
    target.read(1000);
    let after = scraped(&settled(&second, name).figures);
    assert!(after < before && after >= 1000.0, "{before}, then {after}");
    assert_eq!(prometheus.query(&format!("resets({bytes}[1m])")), Some(1.0));
    // Older servers have no resets() for histograms. In all versions, the count after a reset is part of the increase.
    let grown = prometheus.query(&format!("histogram_count(increase({series}[1m]))")).unwrap();
    assert!(
        (after * 0.99..(before + after) * 1.5).contains(&grown),
        "{before}, then {after}: increase {grown}"
    );
    assert_eq!(prometheus.query(&format!("count({series})")), Some(1.0));
}

/// Returns the queries in docs/queries.md, one per line. Skips blocks with another word after `promql`, which need more, such as
/// errors or another exporter's metrics, and queries for failures by status, which have no result unless something fails.
fn documented_queries() -> Vec<String> {
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/queries.md")).unwrap();
    let blocks = document.split("```promql\n").skip(1).filter_map(|rest| rest.split("```").next());
    let queries = blocks.flat_map(str::lines).filter(|line| !line.starts_with('#'));
    queries.filter(|query| !query.contains("biolat_io_errors_total")).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs root and prometheus: cargo xtask test"]
fn documented_queries_return_data() {
    let (device, daemon) = loaded("queries");
    let native = Prometheus::scraping(daemon.address);
    let classic = Prometheus::start(daemon.address, &[]);
    let queries = documented_queries();
    assert!(queries.len() >= 10, "{queries:?}");
    let (mut by_native, mut by_classic) = (0, 0);
    for query in &queries {
        let (prometheus, answered) = if query.contains("_bucket")
            || query.contains("_seconds_count")
            || query.contains("_seconds_sum")
        {
            (&classic, &mut by_classic)
        } else {
            (&native, &mut by_native)
        };
        wait_for(query, || {
            load::Target::open(&device.path()).read(10);
            prometheus.query(query).is_some()
        });
        *answered += 1;
    }
    assert!(
        by_native >= 5 && by_classic >= 3,
        "{by_native} by native and {by_classic} by classic histograms"
    );
}

const ERRORS: u64 = 500;

/// A loop device whose file system has no room for the backing file, so writes fail.
struct FullDevice {
    device: LoopDevice,
    _mount: Mount,
}

/// A buffer for direct I/O, which requires alignment.
#[repr(align(4096))]
struct Block([u8; 4096]);

impl FullDevice {
    fn fail_writes(&self) {
        let direct = fs::OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(self.device.path());
        let (direct, block) = (direct.unwrap(), Block([1; 4096]));
        // The file system has room for the first few blocks.
        let failed = (0..).map(|number| direct.write_at(&block.0, number << 20 >> 4)).filter(Result::is_err);
        assert_eq!(failed.take(ERRORS as usize).count() as u64, ERRORS);
    }

    fn attach(name: &str) -> Self {
        let mount = Mount::new(name, &["-t", "tmpfs", "-o", "size=64k", "biolat-test"]);
        Self { device: LoopDevice::attach_in(mount.folder(), false), _mount: mount }
    }
}

/// Prometheus sees no increase in a counter that first appears with a nonzero value.
#[test]
#[ignore = "needs root and prometheus: cargo xtask test"]
fn burst_of_errors_raises_alert() {
    let full = FullDevice::attach("errors");
    let name = full.device.name.as_str();
    let daemon = Daemon::start(&["--interval", "500ms", "--device", name]);
    let prometheus = Prometheus::alerting("prometheus-errors", daemon.address, ALERT_RULES);
    let failed = format!("biolat_failed_ios_total{{device=\"{name}\"}}");
    wait_for("a scrape", || prometheus.query(&failed) == Some(0.0));
    let firing = || prometheus.firing("BlockDeviceErrors");
    assert!(firing().is_empty());
    full.fail_writes();
    wait_for("the alert", || !firing().is_empty());
    let alerts = firing();
    let label = |label: &str| alerts[0]["metric"][label].as_str().unwrap().to_owned();
    assert_eq!((label("device"), label("op"), alerts.len()), (name.to_owned(), "write".to_owned(), 1));
    // On a slow machine a collection can fall between the first and the last error.
    wait_for("all errors", || prometheus.query(&failed) == Some(ERRORS as f64));
    assert!(prometheus.query(&format!("increase({failed}[1m])")).unwrap() >= ERRORS as f64);
    daemon.fresh();
    let records = http::get(daemon.address, "/api/v1/slow", "").unwrap();
    let records: Value = serde_json::from_slice(&records.body).unwrap();
    let ios = records["ios"].as_array().unwrap();
    assert_eq!(ios.len() as u64 + records["dropped"].as_u64().unwrap(), ERRORS);
    assert!(ios.iter().all(|io| io["device"] == name && io["status"] != "ok"), "{ios:?}");
}
