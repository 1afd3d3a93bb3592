//! A device that hangs: I/Os are in flight and none completes. Also a busy device, which must not look hung.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use biolat_common::series::Phase;
use serde_json::{Value, json};

use crate::support::{
    awake::Awake,
    browser::Browser,
    daemon::{Daemon, biolat, wait_for},
    diskstats::{READ, Stat, WRITE},
    figures::{Figures, grown, index_of},
    freezable::Freezable,
    http,
    inflight::{Shown, assert_oldest, check_churn, since_epoch, wait_until_clear},
    load::{StopFlag, Target, keep_busy},
    loop_device::LoopDevice,
    prometheus::{Prometheus, alert_rules_with},
    settled::{compare, settled},
    slow_log::slow_ios,
};

/// Number of writes that hang.
const WRITES: u64 = 4;

/// Duration of the hang.
const HANG: Duration = Duration::from_secs(4);

const BLOCK: u64 = 4096;

/// Asserts that the metrics show the writes submitted at this time, and no other I/O in flight.
fn assert_hung(figures: &Figures, device: &str, submitted: Duration) {
    // The tolerance is one interval plus 50 ms.
    assert_oldest(figures, device, submitted, 0.25);
    let shown = Shown::of(figures, device);
    assert_eq!((shown.reads, shown.writes), (0, WRITES), "{shown:?}");
}

fn assert_hung_in_the_api(daemon: &Daemon, device: &str, at_least: Duration) {
    let answer = http::get(daemon.address, "/api/v1/snapshot", "").unwrap();
    let snapshot: Value = serde_json::from_slice(&answer.body).unwrap();
    let devices = snapshot["devices"].as_array().unwrap();
    let inflight = &devices.iter().find(|found| found["name"] == device).unwrap()["inflight"];
    assert_eq!((&inflight["read"], &inflight["write"]), (&0.into(), &WRITES.into()), "{inflight}");
    assert_eq!(inflight["exact"], true);
    assert!(inflight["oldest_seconds"].as_f64().unwrap() >= at_least.as_secs_f64(), "{inflight}");
}

fn assert_hung_in_hist(daemon: &Daemon, device: &str) {
    let host = daemon.address.to_string();
    let output = Command::new(biolat()).args(["hist", "--host", &host, "1", "1"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = format!("{device}: {WRITES} I/Os in flight, none completed in ");
    let line = text.lines().find(|line| line.starts_with(&expected));
    assert!(line.is_some_and(|line| line.contains("s, the oldest for ")), "{text}");
}

/// Writes one block at the offset of `number`. Returns the duration in seconds.
fn timed_write(device: &LoopDevice, number: u64) -> f64 {
    let target = Target::open(&device.path());
    let began = Instant::now();
    target.write_at(number << 20, BLOCK as usize);
    began.elapsed().as_secs_f64()
}

#[test]
#[ignore = "needs root, ext4 and fsfreeze: cargo xtask test"]
fn detects_hung_device_in_one_collection() {
    let (hung, busy) = (Freezable::attach("hung"), LoopDevice::attach("busy", true));
    let (device, name) = (&hung.device, hung.device.name.as_str());
    let daemon =
        Daemon::start(&["--interval", "200ms", "--device", &format!("{name}|{}", busy.name), "--slow", "1s"]);
    let _awake = Awake::all_cpus();
    Target::open(&device.path()).write(1);
    let (before, busy_before) = (settled(&daemon, name), settled(&daemon, &busy.name));
    wait_until_clear(&daemon, name);
    let stop = StopFlag::default();
    let latencies: Vec<_> = thread::scope(|scope| {
        let stopper = stop.set_on_drop();
        scope.spawn(|| keep_busy(&busy.path(), &stop));
        let frozen = hung.freeze();
        let submitted = since_epoch();
        let writers: Vec<_> =
            (0..WRITES).map(|number| scope.spawn(move || timed_write(device, number))).collect();
        wait_for("the writes to be in flight", || Stat::of(name).in_flight() == WRITES);

        let first = daemon.fresh();
        assert_hung(&first, name, submitted);
        let until_one_second = (submitted + Duration::from_secs(1)).saturating_sub(since_epoch());
        thread::sleep(until_one_second);
        assert_hung_in_hist(&daemon, name);
        assert_hung_in_the_api(&daemon, name, Duration::from_secs(1));
        thread::sleep((submitted + HANG).saturating_sub(since_epoch()));
        let last = daemon.fresh();
        assert_hung(&last, name, submitted);
        for group in [READ, WRITE] {
            assert!(last.count(&busy.name, group) > first.count(&busy.name, group), "{}", group.name);
        }
        assert!(Shown::of(&last, &busy.name).oldest < 1.0);
        drop(frozen);
        drop(stopper);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });

    let after = settled(&daemon, name);
    for device in [name, &busy.name] {
        wait_until_clear(&daemon, device);
    }
    let growth = compare(name, &before, &after);
    assert_eq!((growth.of(WRITE), growth.missed), (WRITES, 0));
    let expected: f64 = latencies.iter().sum();
    let measured = growth.seconds("total", "write");
    assert!((expected - 0.4..expected).contains(&measured), "{measured} s, {latencies:?}");
    let buckets = grown(
        before.figures.histogram("total", name, "write"),
        after.figures.histogram("total", name, "write").unwrap(),
    );
    let long = buckets.iter().filter(|(index, _)| *index >= index_of(HANG.as_secs_f64()));
    assert_eq!(long.map(|(_, count)| count).sum::<u64>(), WRITES, "{buckets:?}");
    for (over, count) in [("0.125", WRITES), ("1", WRITES), ("8", 0)] {
        let slow = |figures: &Figures| {
            figures.value("biolat_slow_ios_total", &[("device", name), ("over", over)]) as u64
        };
        assert_eq!(slow(&after.figures) - slow(&before.figures), count, "over {over} s");
    }
    let busy_after = settled(&daemon, &busy.name);
    compare(&busy.name, &busy_before, &busy_after).assert_few_missed();

    let mut records = slow_ios(&daemon, name);
    records.sort_by_key(|record| record.sector);
    assert_eq!(records.len() as u64, WRITES, "{records:?}");
    for ((record, latency), number) in records.iter().zip(&latencies).zip(0..) {
        let found = (record.sector, record.bytes.into(), record.op.as_str(), &*record.status);
        assert_eq!(found, (number << 11, BLOCK, "write", "ok"));
        let total = record.latencies[Phase::Total as usize].unwrap().as_secs_f64();
        assert!(
            (latency - 0.1..=*latency).contains(&total),
            "{total} s, but the writer measured {latency} s"
        );
    }
}

#[test]
#[ignore = "needs root and fio: cargo xtask test"]
fn busy_device_does_not_look_hung() {
    let devices = ["churn-1", "churn-2"].map(|name| LoopDevice::attach(name, true));
    let [first, second] = devices.each_ref().map(|device| (device.name.as_str(), device.path()));
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &format!("{}|{}", first.0, second.0)]);
    check_churn(&daemon, &[first, second]);
}

#[test]
#[ignore = "needs root, ext4, fsfreeze and prometheus: cargo xtask test"]
fn hung_device_raises_alert() {
    let (hung, busy) = (Freezable::attach("alert"), LoopDevice::attach("no-alert", true));
    let (device, name) = (&hung.device, hung.device.name.as_str());
    let daemon = Daemon::start(&["--interval", "500ms", "--device", &format!("{name}|{}", busy.name)]);
    // Fires after 4 s instead of a minute.
    let rules = alert_rules_with("BlockDeviceHung", &[("> 30\n", "> 3\n"), ("for: 30s\n", "for: 1s\n")]);
    let prometheus = Prometheus::alerting("prometheus-alerts", daemon.address, &rules);
    let age = format!("biolat_oldest_inflight_seconds{{device=\"{name}\"}}");
    wait_for("a scrape", || prometheus.query(&age) == Some(0.0));
    let firing = || prometheus.firing("BlockDeviceHung");
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        scope.spawn(|| keep_busy(&busy.path(), &stop));
        let _frozen = hung.freeze();
        scope.spawn(|| timed_write(device, 0));
        wait_for("the alert", || !firing().is_empty());
        let alerts = firing();
        assert_eq!(alerts.len(), 1, "{alerts:?}");
        assert_eq!(
            (&alerts[0]["metric"]["device"], &alerts[0]["metric"]["severity"]),
            (&name.into(), &"critical".into())
        );
        let age = prometheus.query(&age).unwrap();
        assert!((3.0..15.0).contains(&age), "{age} s");
    });
    wait_for("the end of the alert", || firing().is_empty());
    assert!(prometheus.query(&age).unwrap() < 1.0);
}

/// The page marks I/Os that have been in flight for more than 10 s.
#[test]
#[ignore = "needs root, ext4, fsfreeze, chromium and Playwright: cargo xtask test"]
fn page_names_hung_device() {
    let hung = Freezable::attach("page-hung");
    let (device, name) = (&hung.device, hung.device.name.as_str());
    let daemon = Daemon::start(&["--interval", "200ms", "--device", name]);
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/", daemon.address), &json!({}));
    browser.wait_for("window.biolat?.state.drawn > 1 && document.getElementById('hung').hidden");
    thread::scope(|scope| {
        let _frozen = hung.freeze();
        scope.spawn(|| timed_write(device, 0));
        thread::sleep(Duration::from_secs(10));
        browser.wait_for("!document.getElementById('hung').hidden");
        let banner = browser.text("#hung");
        assert!(banner.contains(&format!("{name}: 1 I/O in flight, none completed for 1")), "{banner}");
    });
    browser.wait_for("document.getElementById('hung').hidden");
    assert_eq!(browser.faults(), [""; 0]);
}
