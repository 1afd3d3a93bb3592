//! Latency by size in the metrics, `biolat`'s findings and the dashboard panels, on two devices: only one has large requests that
//! are slower than their size explains.

use std::{
    collections::BTreeMap,
    f64::consts::SQRT_2,
    ops::RangeInclusive,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{
    biolat::Biolat,
    daemon::{Daemon, wait_for},
    figures::Figures,
    load::Target,
    nbd::Nbd,
    prometheus::{Prometheus, alert_rule_with, recording_rules_with},
};

const ALERT: &str = "BlockDeviceSlowForSize";

const DASHBOARD: &str = include_str!("../../../deploy/grafana/biolat.json");

/// Sizes in bytes, and their bands.
const SIZES: [(usize, &str); 3] = [(4 << 10, "le_4KiB"), (64 << 10, "le_64KiB"), (256 << 10, "le_256KiB")];

/// I/Os per size and op; `biolat` needs at least 30 for a comparison.
const ROUNDS: usize = 40;

/// Allowed total difference, in seconds, over all I/Os of a size: `biolat`'s probe reads the clock after the daemon's probe, and
/// an emulated CPU may have to wait in between.
const LATER: f64 = 0.02;

/// The panels that show latency by size, and the factor by which they can be off: a mean is exact, a percentile can be anywhere
/// in its half-octave bucket.
const PANELS: [(&str, f64); 2] =
    [("Mean device latency by size", 1.0), ("p99 device latency by size", SQRT_2)];

/// A busy emulator can add 20 ms to each request; even then, large ones take several times longer than their size explains.
fn slow_if_large(bytes: usize) -> Duration {
    Duration::from_millis(if bytes > 64 << 10 { 400 } else { 2 })
}

fn slow(_bytes: usize) -> Duration {
    Duration::from_millis(20)
}

/// A device, and the call durations in seconds by op and band.
struct Measured {
    device: Nbd,
    latency: fn(usize) -> Duration,
    calls: BTreeMap<(&'static str, &'static str), Vec<f64>>,
}

impl Measured {
    fn new(number: usize, latency: fn(usize) -> Duration) -> Self {
        Self { device: Nbd::attach(number, latency), latency, calls: BTreeMap::new() }
    }

    /// Reads and writes each size in turn, one request at a time.
    fn load(&mut self) {
        let target = Target::open(&self.device.path());
        for round in 0..ROUNDS {
            for (bytes, band) in SIZES {
                let place = (round as u64) << 20;
                let mut measure = |op, call: &dyn Fn()| {
                    let began = Instant::now();
                    call();
                    self.calls.entry((op, band)).or_default().push(began.elapsed().as_secs_f64());
                };
                measure("read", &|| target.try_read_at(place, bytes).unwrap());
                measure("write", &|| target.write_at(place, bytes));
            }
        }
    }

    /// Returns the possible latencies of an op and band: from the server's latency to the longest call.
    fn range(&self, op: &str, band: &str) -> RangeInclusive<f64> {
        let (bytes, _) = SIZES.into_iter().find(|(_, name)| *name == band).unwrap();
        let longest = self.calls[&(op, band)].iter().copied().fold(0.0, f64::max);
        (self.latency)(bytes).as_secs_f64()..=longest
    }

    /// Checks the number and the sum of the latencies of each op and band.
    fn check(&self, figures: &Figures) {
        let device = self.device.name.as_str();
        let missed = figures.missed(device);
        for (&(op, band), calls) in &self.calls {
            let bands = figures.bands(device, op);
            assert_eq!(bands.len(), SIZES.len(), "{device}: bands of {op}s");
            let (_, latencies) = bands.into_iter().find(|(name, _)| *name == band).unwrap();
            let (count, sum) = (latencies.sample_count, latencies.sample_sum);
            let (least, called) = (*self.range(op, band).start(), calls.iter().sum::<f64>());
            println!(
                "{device} {op} {band}: {count} I/Os, mean {:.2} ms; the server takes {:.0} ms, the calls {:.2} ms",
                mean(figures, device, op, band) * 1e3,
                least * 1e3,
                called / calls.len() as f64 * 1e3
            );
            assert!(
                count <= ROUNDS as u64 && count + missed >= ROUNDS as u64,
                "{device} {op} {band}: {count}"
            );
            assert!(sum >= count as f64 * least, "{device} {op} {band}: {sum} s for {count} times {least} s");
            assert!(sum <= called, "{device} {op} {band}: {sum} s, but the calls took {called} s");
        }
    }
}

/// Returns the mean device latency of an op and band, in seconds.
fn mean(figures: &Figures, device: &str, op: &str, band: &str) -> f64 {
    let bands = figures.bands(device, op);
    let (_, latencies) = bands.into_iter().find(|(name, _)| *name == band).unwrap();
    latencies.sample_sum / latencies.sample_count as f64
}

/// Returns the findings about slow sizes.
fn findings(text: &str) -> Vec<String> {
    let findings = text.split("Findings in").nth(1).unwrap_or_else(|| panic!("{text}"));
    let findings = findings.replace("\n  ", " ");
    findings.lines().filter(|line| line.contains("what the size explains")).map(str::to_owned).collect()
}

/// Checks the wording and the figures of the finding about an op.
fn check_finding(finding: &str, figures: &Figures, device: &str, op: &str) {
    let (large, small) = (mean(figures, device, op, "le_256KiB"), mean(figures, device, op, "le_64KiB"));
    // The large size is four times the small one, which has the best throughput.
    let factor = large / small / 4.0;
    let words = finding.split(|separator: char| separator.is_whitespace());
    let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    let [64.0, 256.0, reported_large, 16.0, 64.0, reported_small, reported_factor] = numbers[..] else {
        panic!("{finding}")
    };
    let expected = format!(
        "- {device}: {op}s of 64 to 256 KiB take {reported_large:.0} ms (mean) where those of 16 to 64 KiB take "
    );
    assert!(finding.trim().starts_with(&expected), "{finding:?}, expected {expected:?}");
    for (reported, known) in [(reported_large / 1e3, large), (reported_small / 1e3, small)] {
        let expected = 0.99 * known..1.01 * known + LATER / ROUNDS as f64;
        assert!(expected.contains(&reported), "{finding}: {reported} s, expected {expected:?}");
    }
    assert!((reported_factor - factor).abs() <= 1.0, "{finding}: {factor} times");
}

/// Starts a Prometheus that scrapes the daemon and evaluates the alert every second.
fn prometheus(daemon: &Daemon) -> Prometheus {
    let alert = alert_rule_with(ALERT, &[("for: 15m\n", "for: 1s\n")]);
    let recording = recording_rules_with("recording.yml", "1s", "[20s]");
    let rules = [("recording.yml", recording.as_str()), ("alert.yml", &alert)];
    let prometheus = Prometheus::in_guest("prometheus-sizes", daemon.address, &rules);
    wait_for("a scrape", || !prometheus.vector("biolat_device_info").is_empty());
    prometheus
}

/// Returns the query of a panel, as Grafana sends it with one device selected.
fn panel(title: &str, device: &str) -> String {
    let json: Value = serde_json::from_str(DASHBOARD).unwrap();
    let rows = json["panels"].as_array().unwrap().iter();
    let mut panels = rows.filter_map(|row| row["panels"].as_array()).flatten();
    let query = panels.find(|panel| panel["title"] == title).unwrap()["targets"][0]["expr"].as_str().unwrap();
    let query = query.replace("$__rate_interval", "5m").replace("$__range", "5m").replace("$device", device);
    ["$cluster", "$node", "$model", "$op"].iter().fold(query, |query, variable| query.replace(variable, ".*"))
}

/// Checks the latency of each op and band in a panel.
fn check_panel((title, width): (&str, f64), prometheus: &Prometheus, measured: &Measured) {
    let query = panel(title, &measured.device.name);
    let mut series = Vec::new();
    wait_for(&query, || {
        series = prometheus.vector(&query);
        series.len() == measured.calls.len()
    });
    for series in &series {
        let label = |name: &str| series["metric"][name].as_str().unwrap();
        let seconds: f64 = series["value"][1].as_str().unwrap().parse().unwrap();
        let range = measured.range(label("op"), label("size"));
        println!("{title}: {} {} {:.2} ms", label("op"), label("size"), seconds * 1e3);
        assert!(
            seconds >= range.start() / width && seconds <= range.end() * width,
            "{title}: {series}, expected {range:?}"
        );
    }
}

/// Asserts that the alert has fired for both ops of this device and the slow size, and for nothing else.
fn check_alert(prometheus: &Prometheus, slow: &Measured) {
    let fired = format!("max_over_time(ALERTS{{alertname=\"{ALERT}\",alertstate=\"firing\"}}[5m])");
    wait_for(&fired, || prometheus.vector(&fired).len() >= 2);
    for series in prometheus.vector(&fired) {
        let label = |name: &str| series["metric"][name].as_str().unwrap();
        assert_eq!((label("device"), label("size")), (slow.device.name.as_str(), "le_256KiB"), "{series}");
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn reports_device_slow_for_large_requests() {
    let (mut large, mut all) = (Measured::new(0, slow_if_large), Measured::new(1, slow));
    let devices = [large.device.name.clone(), all.device.name.clone()];
    // Leaves out classic histograms, which are thousands of series.
    let daemon =
        Daemon::start(&["--interval", "500ms", "--format", "native", "--device", &devices.join("|")]);
    let prometheus = prometheus(&daemon);
    let running = Biolat::start("size-latency", &["hist", "-d", &devices.join(",")]);
    thread::scope(|scope| {
        scope.spawn(|| large.load());
        scope.spawn(|| all.load());
    });
    let text = running.end();
    let figures = daemon.fresh();
    large.check(&figures);
    all.check(&figures);

    let findings = findings(&text);
    println!("{findings:#?}");
    assert_eq!(findings.len(), 2, "{text}");
    for (finding, op) in findings.iter().zip(["read", "write"]) {
        check_finding(finding, &figures, &large.device.name, op);
    }
    for panel in PANELS {
        check_panel(panel, &prometheus, &large);
        check_panel(panel, &prometheus, &all);
    }
    check_alert(&prometheus, &large);
}
