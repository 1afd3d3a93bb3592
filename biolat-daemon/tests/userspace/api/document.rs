//! `docs/api.md` lists every field and no others.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, UNIX_EPOCH},
};

use biolat_model::{
    api::{ApiHistory, ApiSlowLog, VERSION},
    cgroup::Identity,
    device::{Device, Holder, MultipathPath, Volume},
    histogram::Histogram,
    io_names::{IoFile, IoNames, IoProcess},
    period::{KeptFrom, Period, Summary},
    size_histogram::SizeHistogram,
    snapshot::{
        BandView, CpuSpread, DeviceView, Health, ProbeRuns, Process, SeriesView, SizesView, SlowIo, Snapshot,
        Stalled, TagWaits, WorkloadRoom, WorkloadUsage, WorkloadView,
    },
};
use serde_json::{Value, json};

/// Returns a snapshot with every field set. Uses the document's placeholders for keys that are kernel names.
fn everything() -> Value {
    let histogram = || Histogram { buckets: vec![(0, 1)], ..Histogram::default() };
    let series = SeriesView {
        histograms: [histogram(), histogram(), histogram(), histogram()],
        errors: [("{status}".into(), 1)].into(),
        sizes: Some(SizesView {
            requests: SizeHistogram { buckets: vec![(12, 1)], ..SizeHistogram::default() },
            bands: vec![BandView { device: histogram().into(), ..BandView::default() }],
        }),
        ..SeriesView::default()
    };
    let holder = Holder { device: String::new(), kind: String::new(), name: String::new(), depth: 1 };
    let device = DeviceView {
        device: Device {
            sequence: Some(0),
            numa_node: Some(0),
            path_of: Some(String::new()),
            path: Some(MultipathPath::default()),
            holders: vec![String::new()],
            stack: [holder].into(),
            volume: Some(Volume { on: vec![String::new()], ..Volume::default() }),
            ..Device::default()
        },
        phases: [true; 4],
        series: vec![series],
        tag_waits: Some(TagWaits::default()),
        spread: CpuSpread {
            completions: vec![1],
            effective_cpus: Some(0.0),
            largest_share: Some(0.0),
            off_node_share: Some(0.0),
        },
        nvme_events: [("{event}".into(), 1)].into(),
        ..DeviceView::default()
    };
    let usage = WorkloadUsage { latency: histogram().into(), ..WorkloadUsage::default() };
    let workload = WorkloadView::new("", &Identity::default(), UNIX_EPOCH);
    let snapshot = Snapshot {
        devices: vec![device],
        workloads: Some(vec![WorkloadView {
            usage: vec![usage],
            stalled: Some(Stalled::default()),
            ..workload
        }]),
        lost: [("{reason}".into(), 1)].into(),
        volume_losses: [("{reason}".into(), 1)].into(),
        health: Health {
            durations: histogram(),
            lost_tag_waits: Some(0),
            workload_room: Some(WorkloadRoom::default()),
            ..Health::default()
        },
        probe: Some(ProbeRuns { count: 0, time: Duration::ZERO }),
        process: Some(Process::default()),
        online_cpus: Some(1),
        ..Snapshot::default()
    };
    let mut value = serde_json::to_value(snapshot).unwrap();
    value["devices"][0]["unseen"] = json!({"{op}": 1});
    value
}

fn slow_log() -> ApiSlowLog {
    let io = SlowIo {
        number: 0,
        completed: UNIX_EPOCH,
        device: String::new(),
        op: String::new(),
        sector: 0,
        bytes: 0,
        status: "".into(),
        latencies: [Some(Duration::ZERO); 4],
        cpu: 0,
        workload: Some(String::new()),
        names: IoNames {
            class: Some("".into()),
            file_unknown: Some("".into()),
            process_unknown: Some("".into()),
            file: Some(IoFile { mount: Some(String::new()), ..IoFile::default() }),
            process: Some(IoProcess::default()),
        },
    };
    ApiSlowLog::of(&Snapshot { slow: [io].into(), ..Snapshot::default() }, Some(Duration::ZERO))
}

/// Returns a history with the same devices and I/Os as the other documents.
fn history() -> Value {
    let interval = Period {
        began: UNIX_EPOCH,
        ended: UNIX_EPOCH,
        length: Duration::ZERO,
        collections: 0,
        failures: 0,
        devices: Vec::new(),
        workloads: Some(Vec::new()),
        summary: vec![Summary {
            device: String::new(),
            op: String::new(),
            ios: 0,
            bytes: 0,
            errors: 0,
            slowest_seconds: 0.0,
        }],
        lost: [("{reason}".into(), 1)].into(),
        slow: Vec::new(),
        slow_dropped: 0,
    };
    let kept = KeptFrom {
        all: UNIX_EPOCH,
        ten_seconds: UNIX_EPOCH,
        collections: UNIX_EPOCH,
        breakdown: Some(UNIX_EPOCH),
    };
    let mut history = ApiHistory::of("", Duration::ZERO, [UNIX_EPOCH; 2], Some(kept));
    history.intervals.push(interval);
    let mut value = serde_json::to_value(history).unwrap();
    for list in ["devices", "workloads", "slow"] {
        value["intervals"][0][list] = json!(["as elsewhere"]);
    }
    value
}

/// Objects that can be null have their own row.
const MAY_BE_NULL: [&str; 9] = [
    "devices[].path",
    "devices[].volume",
    "workloads[].stalled",
    "daemon.workload_room",
    "devices[].tag_waits",
    "probe",
    "process",
    "ios[].file",
    "ios[].process",
];

fn fields(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    // Histograms are documented only once.
    let is_histogram = value.get("buckets").is_some();
    if is_histogram || MAY_BE_NULL.contains(&path) {
        found.insert(path.to_owned());
    }
    let path = if is_histogram { "histogram" } else { path };
    match value {
        Value::Object(members) if !members.is_empty() => {
            let dot = if path.is_empty() { "" } else { "." };
            members.iter().for_each(|(name, value)| fields(&format!("{path}{dot}{name}"), value, found));
        }
        Value::Array(elements) if !elements[0].is_number() => {
            elements.iter().for_each(|element| fields(&format!("{path}[]"), element, found));
        }
        Value::Object(_) | Value::Null => panic!("{path} has no example"),
        _ => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn every_field_is_documented() {
    assert_documented("Fields", &everything());
    assert_documented("Slow and failed I/Os", &serde_json::to_value(slow_log()).unwrap());
    assert_documented("History", &history());
}

fn assert_documented(title: &str, model: &Value) {
    let mut found = BTreeSet::new();
    fields("", model, &mut found);
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/api.md")).unwrap();
    let begin = format!("{title}\n");
    let section = document.split("\n## ").find(|section| section.starts_with(&begin)).unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let documented: Vec<_> = rows.map(|(field, _)| field.to_owned()).collect();
    assert_eq!(documented.iter().cloned().collect::<BTreeSet<_>>(), found);
    assert_eq!(documented.len(), found.len(), "duplicate field");
    assert!(section.contains(&format!("| `version` | {VERSION} |")));
}
