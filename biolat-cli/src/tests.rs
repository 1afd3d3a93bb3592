//! Documents from other hosts can contain anything, and are shown without a panic or a control character.

use std::time::Duration;

use biolat_client::parse;
use biolat_model::{
    api::ApiSlowLog,
    device::Group,
    snapshot::{Inflight, SlowIo, Snapshot},
};
use biolat_system::terminal::Terminal;
use biolat_testing::samples;
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use super::{
    breakdown::Breakdown,
    everything,
    findings::findings,
    json_line,
    slow_line::line,
    text::{self, TextStyle},
    window::Window,
};

fn valid() -> Snapshot {
    let histogram = || samples::histogram(3, &[(-80, 400), (-40, 300), (16, 2)], 1, 60.0);
    let mut op = samples::op("read", 4096, histogram(), histogram(), histogram());
    op.errors.insert("medium".into(), 2);
    op.sizes = Some(samples::sizes(&[("le_4KiB", &[(12, 400)], 1e-4), ("gt_1MiB", &[(22, 300)], 0.1)]));
    let mut device = samples::device("sda", 9.0, vec![op]);
    device.unseen.insert(Group::Read, 7);
    device.inflight = Inflight { reads: 1, writes: 2, oldest: Duration::from_secs_f64(31.0), is_exact: true };
    device.spread.completions = vec![0, 400, 300];
    let usage = || {
        ["read", "discard"]
            .map(|op| samples::usage("sda", op, 3000, 1e-3, if op == "read" { 9e-3 } else { 1.0 }))
    };
    let workloads = ["/", "/a/b", "other"].map(|cgroup| samples::workload(cgroup, usage().into()));
    Snapshot { workloads: Some(workloads.into()), ..samples::snapshot(100.0, vec![device]) }
}

/// The output of `biolat hist -P`, `sizes`, `cpus` and `who` for two snapshots.
fn text_of(before: &Snapshot, after: &Snapshot) -> String {
    let terminal = Terminal { color: false, unicode: true, is_terminal: true };
    let numbers = terminal.numbers(false);
    let window = Window::between(before, after);
    let style = TextStyle { terminal, width: 80, numbers, fine: true };
    let tables = Breakdown { phases: Vec::new(), ..everything() };
    let texts = [every_block(), tables].map(|breakdown| text::window(&window, &breakdown, &style));
    texts.concat() + &findings(&window, numbers).join("\n")
}

/// The output of `biolat slow` for an I/O.
fn slow_line(io: &SlowIo) -> String {
    let terminal = Terminal { color: false, unicode: true, is_terminal: true };
    line(io, terminal, terminal.numbers(false), usize::MAX)
}

fn every_block() -> Breakdown {
    Breakdown { sizes: false, cpus: None, who: false, ..everything() }
}

/// Reads a response and shows it if it is valid. Nothing may panic or send control characters to the terminal.
fn read_and_show(answer: &[u8]) {
    match parse::<Snapshot>(answer) {
        Ok(read) => {
            for (before, after) in [(&valid(), &read), (&read, &valid()), (&read, &read)] {
                let text = text_of(before, after);
                assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
                assert_eq!(json_line(before, after).lines().count(), 1);
            }
        }
        Err(error) => {
            let error = format!("{error:#}");
            assert!(!error.contains(char::is_control), "{error:?}");
        }
    }
}

/// The same for a log of slow I/Os.
fn read_and_show_log(answer: &[u8]) {
    match parse::<ApiSlowLog>(answer) {
        Ok(log) => {
            let text: String = log.ios.iter().map(slow_line).collect();
            assert!(!text.contains(char::is_control), "{text:?}");
        }
        Err(error) => {
            let error = format!("{error:#}");
            assert!(!error.contains(char::is_control), "{error:?}");
        }
    }
}

/// Replaces one value within a document.
fn mutate(value: &mut Value, place: usize, new: &Value) {
    let children = match value {
        Value::Object(members) => members.values_mut().collect::<Vec<_>>(),
        Value::Array(elements) => elements.iter_mut().collect(),
        _ => Vec::new(),
    };
    let count = children.len();
    match children.into_iter().nth(place % count.max(1)) {
        Some(child) => mutate(child, place / count, new),
        None => *value = new.clone(),
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(|number| json!(number)),
        any::<i32>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        any::<String>().prop_map(|text| json!(text)),
        Just(json!("a\u{1b}[2J\r\n")),
        Just(json!([[16, 1], [-80, 2], [-80, u64::MAX]])),
        Just(json!({"a\u{1b}[2J": 3})),
        Just(Value::Null),
    ]
}

/// Makes each count as large as possible.
fn enlarge_counts(value: &mut Value) {
    match value {
        Value::Array(elements) => match &mut elements[..] {
            // A bucket.
            [Value::Number(_), count] => enlarge_counts(count),
            elements => elements.iter_mut().for_each(enlarge_counts),
        },
        Value::Object(members) => {
            members
                .iter_mut()
                .filter(|(name, _)| *name != "version")
                .for_each(|(_, value)| enlarge_counts(value));
        }
        Value::Number(number) if number.is_u64() => *value = u64::MAX.into(),
        _ => {}
    }
}

#[test]
fn sums_saturate() {
    let mut json = serde_json::to_value(valid()).unwrap();
    enlarge_counts(&mut json);
    let json = serde_json::to_vec(&json).unwrap();
    let read = parse::<Snapshot>(&json).unwrap();
    assert_eq!(read.devices[0].series[0].histograms[3].count(), u64::MAX);
    read_and_show(&json);
}

#[test]
fn shows_a_valid_answer() {
    let json = serde_json::to_vec(&valid()).unwrap();
    assert_eq!(parse::<Snapshot>(&json).unwrap(), valid());
    read_and_show(&json);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn survives_changed_bytes(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut json = serde_json::to_vec(&valid()).unwrap();
        for (place, byte) in changes {
            let place = place.index(json.len());
            json[place] = byte;
        }
        read_and_show(&json);
    }

    #[test]
    fn survives_changed_values(changes in vec((any::<usize>(), any_value()), 1..4)) {
        let mut json = serde_json::to_value(valid()).unwrap();
        for (place, new) in &changes {
            mutate(&mut json, *place, new);
        }
        read_and_show(&serde_json::to_vec(&json).unwrap());
    }

    #[test]
    fn survives_changed_values_of_a_log(changes in vec((any::<usize>(), any_value()), 1..4)) {
        let log = samples::slow_log(vec![samples::slow_io(1, "sda"), samples::slow_io(2, "sdb")]);
        let mut json = serde_json::to_value(log).unwrap();
        for (place, new) in &changes {
            mutate(&mut json, *place, new);
        }
        read_and_show_log(&serde_json::to_vec(&json).unwrap());
    }
}
