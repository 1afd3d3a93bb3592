//! `docs/api.md` names every field, and none that is not there.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, UNIX_EPOCH},
};

use biolat_model::{
    api::{ApiHistory, ApiSlowLog, VERSION},
    device::MultipathPath,
    histogram::Histogram,
    period::{Period, Summary},
    size_histogram::SizeHistogram,
    snapshot::{
        BandView, DeviceView, Inflight, ProbeRuns, SeriesView, SizesView, SlowIo, Snapshot, WorkloadUsage,
        WorkloadView,
    },
};
use serde_json::Value;

/// One of everything. Where keys are names of the kernel's, they are what the document calls them.
fn everything() -> Snapshot {
    let histogram = || Histogram { buckets: vec![(0, 1)], ..Histogram::default() };
    let op = Op {
        op: String::new(),
        bytes: 0,
        errors: [("{status}".to_owned(), 1)].into(),
        requeues: 0,
        admission: histogram(),
        queue: histogram(),
        device: histogram(),
        total: histogram(),
        sizes: Some(SizesView {
            requests: SizeHistogram { buckets: vec![(12, 1)], ..SizeHistogram::default() },
            bands: vec![BandView { size: String::new(), device: histogram().into() }],
        }),
    };
    let device = DeviceView {
        name: String::new(),
        model: String::new(),
        serial: String::new(),
        firmware: String::new(),
        transport: String::new(),
        scheduler: String::new(),
        rotational: false,
        holders: vec![String::new()],
        path: Some(MultipathPath {
            of: String::new(),
            transport: String::new(),
            address: String::new(),
            state: String::new(),
        }),
        since: 0.0,
        phases: vec![String::new()],
        lacks: String::new(),
        ops: vec![op],
        unseen: [("{op}".to_owned(), 1)].into(),
        inflight: Some(Inflight::default()),
        completions: vec![1],
    };
    let usage = WorkloadUsage {
        device: String::new(),
        op: String::new(),
        bytes: 0,
        errors: 0,
        queue_seconds: 0.0,
        device_seconds: 0.0,
        total: histogram().into(),
    };
    let daemon = Daemon {
        collections: 0,
        collection_seconds: 0.0,
        failures: 0,
        overruns: 0,
        slots: 0,
        map_bytes: 0,
        cpu_seconds: 0.0,
        resident_bytes: 0,
        probe: Some(ProbeRuns { runs: 0, seconds: 0.0 }),
    };
    Snapshot {
        version: VERSION,
        biolat: String::new(),
        host: String::new(),
        taken: 0.0,
        started: 0.0,
        interval: 0.0,
        devices: vec![device],
        workloads: Some(vec![WorkloadView { usage: vec![usage], ..WorkloadView::default() }]),
        lost: [("{reason}".to_owned(), 1)].into(),
        slow_dropped: 0,
        daemon,
    }
}

fn slow_log() -> ApiSlowLog {
    let io = SlowIo {
        number: 0,
        completed: 0.0,
        device: String::new(),
        op: String::new(),
        sector: 0,
        bytes: 0,
        status: String::new(),
        latency: ApiSlowLatency::default(),
        cpu: 0,
        workload: None,
    };
    ApiSlowLog {
        version: VERSION,
        biolat: String::new(),
        host: String::new(),
        taken: 0.0,
        started: 0.0,
        interval: 0.0,
        threshold: None,
        dropped: 0,
        ios: vec![io],
    }
}

/// Devices and I/Os are those of the other documents.
fn history() -> Value {
    let interval = Period {
        began: 0.0,
        taken: 0.0,
        seconds: 0.0,
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
        lost: [("{reason}".to_owned(), 1)].into(),
        slow: Vec::new(),
        slow_dropped: 0,
    };
    let mut history = ApiHistory::of("", Duration::ZERO, [UNIX_EPOCH; 2], None);
    history.intervals.push(interval);
    let mut value = serde_json::to_value(history).unwrap();
    for list in ["devices", "workloads", "slow"] {
        value["intervals"][0][list] = Value::Array(vec![Value::Null]);
    }
    value
}

fn fields(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    // Histograms are explained once.
    let is_histogram = value.get("buckets").is_some();
    if is_histogram || path == "daemon.probe" || path == "devices[].path" {
        found.insert(path.to_owned());
    }
    let path = if is_histogram { "histogram" } else { path };
    match value {
        Value::Object(members) => {
            let dot = if path.is_empty() { "" } else { "." };
            members.iter().for_each(|(name, value)| fields(&format!("{path}{dot}{name}"), value, found));
        }
        Value::Array(elements) if !elements[0].is_number() => {
            elements.iter().for_each(|element| fields(&format!("{path}[]"), element, found));
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn every_field_is_in_the_document() {
    assert_documented("Fields", &serde_json::to_value(everything()).unwrap());
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
    assert_eq!(documented.len(), found.len(), "a field twice");
    assert!(section.contains(&format!("| `version` | {VERSION} |")));
}
