//! Tests detection scores with a hand-written ground truth.

use std::collections::BTreeMap;

use crate::{
    alerts::Episode,
    detection::{Mistake, Score, Truth},
    remote_write::Labels,
};

const HOUR: i64 = 3_600_000;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Returns ten drives of one node. The first five are of model `a`.
fn drives() -> Vec<Labels> {
    let drive = |number: usize| {
        let model = if number < 5 { "a" } else { "b" };
        labels(&[("cluster", "c"), ("instance", "n"), ("device", &format!("d{number}")), ("model", model)])
    };
    (0..10).map(drive).collect()
}

fn episode(device: &str, op: &str, from: i64, to: i64) -> Episode {
    Episode { labels: labels(&[("cluster", "c"), ("device", device), ("op", op)]), from, to }
}

fn event(kind: &str, is_fault: bool, drives: &[usize], from: i64, to: i64) -> Truth {
    Truth { kind: kind.to_owned(), is_fault, drives: drives.iter().copied().collect(), from, to }
}

fn score(episodes: &[Episode], truth: &[Truth]) -> Score {
    Score::new("A", episodes, truth, &drives(), 0..168 * HOUR)
}

#[test]
fn fault_is_found_during_it_and_an_hour_after() {
    let truth = [event("constant", true, &[1], 10 * HOUR, 12 * HOUR)];
    for (from, to, found) in
        [(8, 9, false), (9, 10, false), (8, 11, true), (11, 12, true), (12, 14, true), (13, 14, false)]
    {
        let score = score(&[episode("d1", "read", from * HOUR, to * HOUR)], &truth);
        assert_eq!(score.faults["constant"].found == 1, found, "{from} to {to}");
        assert_eq!(score.false_alarms == 0, found, "{from} to {to}");
    }
}

#[test]
fn alarm_for_another_drive_is_false() {
    let truth = [event("constant", true, &[1], 0, 10 * HOUR)];
    let score = score(&[episode("d2", "read", HOUR, 2 * HOUR)], &truth);
    assert_eq!(
        (score.alarms, score.false_alarms, score.precision(), score.recall()),
        (1, 1, Some(0.0), Some(0.0))
    );
    assert_eq!(score.false_alarms_by_kind["none"], 1);
    // One false alarm in a week with ten drives.
    assert!((score.false_alarms_per_thousand_drives_and_week - 100.0).abs() < 1e-9);
    let mistake = |missed: Option<&str>, device: &str, hours: f64, minutes: f64| Mistake {
        missed: missed.map(str::to_owned),
        drive: format!("c n {device} a"),
        drives: 1,
        hours,
        minutes,
    };
    assert_eq!(score.mistakes, [mistake(Some("constant"), "d1", 0.0, 600.0), mistake(None, "d2", 1.0, 60.0)]);
}

#[test]
fn false_alarms_are_counted_by_innocent_event() {
    let truth =
        [event("scrub", false, &[2, 3], 0, 10 * HOUR), event("wakes", false, &[2], 20 * HOUR, 21 * HOUR)];
    let score =
        score(&[episode("d2", "read", HOUR, 2 * HOUR), episode("d4", "read", HOUR, 2 * HOUR)], &truth);
    assert_eq!(score.false_alarms_by_kind, BTreeMap::from([("none".to_owned(), 1), ("scrub".to_owned(), 1)]));
    assert_eq!(score.recall(), None);
}

#[test]
fn overlapping_ops_of_a_drive_are_one_alarm() {
    let episodes = [
        episode("d1", "read", 0, 2 * HOUR),
        episode("d1", "write", HOUR, 3 * HOUR),
        episode("d1", "read", 5 * HOUR, 6 * HOUR),
        episode("d2", "read", 0, HOUR),
    ];
    assert_eq!(score(&episodes, &[]).alarms, 3);
}

#[test]
fn alert_for_a_model_is_about_all_its_drives() {
    let of_model = Episode { labels: labels(&[("cluster", "c"), ("model", "a")]), from: HOUR, to: 2 * HOUR };
    let truth =
        [event("firmware", true, &[3, 4, 5], 0, 10 * HOUR), event("constant", true, &[6], 0, 10 * HOUR)];
    let score = score(&[of_model], &truth);
    let firmware = &score.faults["firmware"];
    assert_eq!((firmware.found, firmware.drives, firmware.found_drives), (1, 3, 2));
    assert_eq!(score.faults["constant"].found, 0);
    assert_eq!((score.false_alarms, score.recall()), (0, Some(0.5)));
}

#[test]
fn delay_ends_with_the_first_alarm() {
    let truth = [
        event("constant", true, &[1], 10 * HOUR, 20 * HOUR),
        event("constant", true, &[2], 10 * HOUR, 20 * HOUR),
        event("constant", true, &[3], 10 * HOUR, 20 * HOUR),
    ];
    let episodes = [
        episode("d1", "read", 11 * HOUR, 12 * HOUR),
        episode("d1", "read", 14 * HOUR, 15 * HOUR),
        episode("d2", "read", 13 * HOUR, 14 * HOUR),
        // It fired before the fault.
        episode("d3", "read", 9 * HOUR, 11 * HOUR),
    ];
    assert_eq!(score(&episodes, &truth).faults["constant"].median_minutes, Some(60.0));
}
