//! Tests of a whole fleet: the seed determines it, and its ground truth is correct.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use biolat_daemon::expose::{Format, HistogramFormat, ServerState, encode};

use crate::model::{DriveName, Fleet, Kind, Scenario, work::Work};

const DAY: Duration = Duration::from_hours(24);
const FAULTS: &str = include_str!("../../../scenarios/faults.yml");
const INNOCENT: &str = include_str!("../../../scenarios/innocent.yml");

fn start() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn fleet(seed: u64, scenario: &str) -> Fleet {
    Fleet::new(20, 12, seed, &scenario.parse().unwrap(), start(), 7 * DAY)
}

/// Returns the metrics that Prometheus would scrape.
fn exposed(seed: u64, steps: u32) -> Vec<u8> {
    let mut fleet = Fleet::new(2, 3, seed, &FAULTS.parse().unwrap(), start(), DAY);
    let mut exposed = Vec::new();
    for node in &mut fleet.nodes {
        for step in 1..=steps {
            node.advance(start() + Duration::from_mins(10) * step / steps);
        }
        let snapshot = node.snapshot();
        exposed.extend(encode(
            &snapshot,
            ServerState::default(),
            HistogramFormat::default(),
            Format::Protobuf,
        ));
    }
    exposed
}

#[test]
fn same_seed_gives_same_bytes() {
    assert!(exposed(1, 2) == exposed(1, 2));
    assert!(exposed(1, 2) != exposed(2, 2), "another seed, another fleet");
    // The model's own steps are whole minutes, however it is advanced.
    assert!(exposed(1, 10) == exposed(1, 2));
}

#[test]
fn fleet_has_every_event_of_its_scenario() {
    let faults = fleet(3, FAULTS).events;
    let kinds =
        |events: &[crate::model::Event]| events.iter().map(|event| event.kind).collect::<BTreeSet<_>>();
    assert!(kinds(&faults).is_superset(&BTreeSet::from([
        Kind::Constant,
        Kind::Size,
        Kind::Rising,
        Kind::Stalls,
        Kind::Path,
        Kind::Backplane,
        Kind::Firmware,
    ])));
    let innocent = fleet(3, INNOCENT).events;
    assert!(innocent.iter().all(|event| !event.is_fault));
    assert_eq!(kinds(&innocent).len(), 6);
    assert!(Fleet::new(1, 1, 1, &Scenario::none(), start(), DAY).events.is_empty());
}

#[test]
fn events_name_existing_drives_and_times_within_the_run() {
    let fleet = fleet(4, FAULTS);
    let drives: BTreeSet<_> = fleet
        .nodes
        .iter()
        .flat_map(|node| {
            node.snapshot().devices.into_iter().map(|view| DriveName {
                cluster: node.cluster().to_owned(),
                node: node.name().to_owned(),
                device: view.device.name,
            })
        })
        .collect();
    assert_eq!(drives.len(), 240, "each has a unique name");
    for event in &fleet.events {
        assert!(!event.drives.is_empty() && event.drives.iter().all(|drive| drives.contains(drive)));
        assert!(start() <= event.from && event.from < event.to && event.to <= start() + 7 * DAY);
        assert!(event.factor >= 1.0 && event.usual_ios_per_second > 0.0, "{event:?}");
        let sizes = if event.kind == Kind::Size { 3 } else { 6 };
        assert_eq!(event.sizes.len(), sizes, "{event:?}");
        assert_eq!(event.op.is_some(), event.kind == Kind::Size);
    }
    for (n, event) in fleet.events.iter().enumerate() {
        for other in &fleet.events[..n] {
            let same_time = event.from < other.to && other.from < event.to;
            let same_drive = event.drives.iter().any(|drive| other.drives.contains(drive));
            assert!(!(same_time && same_drive), "{event:?} and {other:?}");
        }
    }
}

#[test]
fn restart_resets_counters() {
    let scenario = "events: [{kind: restart, per_thousand_drives: 1, hours: [0.1, 0.1]}]";
    let mut fleet = Fleet::new(1, 3, 1, &scenario.parse().unwrap(), start(), Duration::from_hours(2));
    let at = fleet.events[0].from;
    let node = &mut fleet.nodes[0];
    node.advance(at - Duration::from_mins(1));
    assert_eq!(node.snapshot().started, start());
    let ios = |node: &crate::model::Node| -> u64 {
        let snapshot = node.snapshot();
        let series = snapshot.devices.iter().flat_map(|view| &view.series);
        series.map(|series| series.histograms[3].count()).sum()
    };
    let before = ios(node);
    node.advance(at + Duration::from_mins(1));
    let snapshot = node.snapshot();
    assert!(snapshot.started >= at && snapshot.devices.iter().all(|view| view.since == snapshot.started));
    assert!(ios(node) < before / 2, "{before} before and {} after", ios(node));
}

#[test]
fn firmware_event_changes_reported_firmware() {
    let scenario = "events: [{kind: firmware, per_thousand_drives: 1, hours: [1, 1], share: [1, 1]}]";
    let mut fleet = Fleet::new(1, 6, 1, &scenario.parse().unwrap(), start(), Duration::from_hours(4));
    let event = fleet.events[0].clone();
    let node = &mut fleet.nodes[0];
    for (at, firmware) in [(event.from, "1.0"), (event.to, "2.0"), (event.to + Duration::from_mins(1), "1.0")]
    {
        node.advance(at);
        for view in node.snapshot().devices {
            let is_affected = event.drives.iter().any(|drive| drive.device == view.device.name);
            assert_eq!(view.device.firmware, if is_affected { firmware } else { "1.0" });
        }
    }
}

/// The drive is idle for two hours before it wakes, and then does only a few I/Os.
#[test]
fn waking_drive_was_idle_and_does_little() {
    let scenario =
        "events: [{kind: wakes, per_thousand_drives: 1, hours: [1, 1], share: [0.5, 0.5], factor: [2, 2]}]";
    let mut fleet = Fleet::new(4, 3, 1, &scenario.parse().unwrap(), start(), Duration::from_hours(24));
    let event = fleet.events[0].clone();
    let node = fleet.nodes.iter_mut().find(|node| node.name() == event.drives[0].node).unwrap();
    node.record_work_only();
    let place = node.drives().iter().position(|drive| drive.name() == event.drives[0].device).unwrap();
    let mut ios_until = |time: SystemTime| {
        node.advance(time);
        node.works()[place].ops.iter().map(|op| op.all().count).sum::<f64>()
    };
    let hour = Duration::from_hours(1);
    let [usual_from, usual_to, idle, woken, after] =
        [event.from - 3 * hour, event.from - 2 * hour, event.from, event.to, event.to + hour]
            .map(&mut ios_until);
    let usual = usual_to - usual_from;
    assert!(idle - usual_to < 0.05 * usual, "{} I/Os in two hours, usually {usual} in one", idle - usual_to);
    assert!((woken - idle - 1800.0).abs() < 200.0 + 0.01 * usual, "{} I/Os", woken - idle);
    assert!(after - woken > 0.2 * usual);
}

/// Sums drawn directly match the sums of histograms.
#[test]
fn work_matches_histograms() {
    let fleet = || Fleet::new(3, 4, 5, &Scenario::none(), start(), DAY);
    let end = start() + Duration::from_hours(6);
    for (mut whole, mut quick) in fleet().nodes.into_iter().zip(fleet().nodes) {
        quick.record_work_only();
        whole.advance(end);
        quick.advance(start() + Duration::from_hours(3));
        let before = quick.works();
        quick.advance(end);
        for (work, before) in quick.works().iter().zip(&before) {
            let seconds = |work: &Work| work.ops.iter().map(|op| op.all().seconds).sum::<f64>();
            let (sum, all) = (seconds(before) + seconds(&work.since(before)), seconds(work));
            assert!(all > seconds(before) && (sum / all - 1.0).abs() < 1e-9, "{sum} s and {all} s");
        }
        for (view, work) in whole.snapshot().devices.iter().zip(quick.works()) {
            for (series, op) in view.series.iter().zip(work.ops) {
                let device = &series.histograms[2];
                let (ios, bytes, seconds) = (op.all().count, op.bytes, op.all().seconds);
                let is_near = |one: f64, other: f64, of: f64| (one - other).abs() <= of * other;
                // Allows for the deviation of this many I/Os, and for a heavy tail.
                let noise = 5.0 / (ios + 1.0).sqrt();
                assert!(is_near(ios, device.count() as f64, noise), "{ios} and {}", device.count());
                assert!(
                    is_near(bytes, series.bytes as f64, 0.01 + 3.0 * noise),
                    "{bytes} and {}",
                    series.bytes
                );
                let expected = device.sum_seconds();
                assert!(is_near(seconds, expected, 0.02 + 10.0 * noise), "{seconds} s and {expected} s");
            }
        }
    }
}

#[test]
fn rejects_scenarios_with_unknown_keys() {
    assert!(
        "events: [{kind: constant, hours: [1, 2], per_thousand_drives: 1, factors: 2}]"
            .parse::<Scenario>()
            .is_err()
    );
    assert!("events: [{kind: broken, hours: [1, 2], per_thousand_drives: 1}]".parse::<Scenario>().is_err());
}
