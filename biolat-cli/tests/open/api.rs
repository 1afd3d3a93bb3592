//! The API for a saved file.

use serde_json::{Value, json};

use crate::{
    file::{HOUR, SAVED, SavedFile},
    server::Open,
};

/// Splits a response into its head, without the requested range, and its intervals.
fn parts(mut answer: Value) -> (Value, Value) {
    let fields = answer.as_object_mut().unwrap();
    let intervals = fields.remove("intervals").unwrap_or_default();
    let _ = (fields.remove("from"), fields.remove("to"));
    (answer, intervals)
}

/// Compares two values, and reports where they first differ.
fn assert_same(path: &str, one: &Value, other: &Value) {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (place, (one, other)) in one.iter().zip(other).enumerate() {
                assert_same(&format!("{path}[{place}]"), one, other);
            }
        }
        (Value::Object(one), Value::Object(other)) if one.keys().eq(other.keys()) => {
            one.iter().for_each(|(name, one)| assert_same(&format!("{path}.{name}"), one, &other[name]));
        }
        _ => assert_eq!(one, other, "{path}"),
    }
}

#[test]
fn api_returns_what_the_file_contains() {
    let file = SavedFile::of(26 * HOUR, 0);
    let open = Open::start(&file.path);
    let expected = "serving the history of <i>db1</i>, saved at 2026-01-05 03:02:00, on http://127.0.0.1:";
    assert!(open.line.starts_with(expected) && open.line.ends_with("/ until Ctrl-C\n"), "{}", open.line);
    let (head, _) = parts(file.head["history"].clone());
    let all = format!("/api/v1/history?from={}&to={SAVED}", SAVED - 26 * HOUR);
    let (answered, intervals) = parts(open.json(&all));
    assert_eq!(answered, head);
    assert_same("", &intervals, &file.intervals.clone().into());
    // "Now" is the time when the file was saved.
    let last = open.json("/api/v1/history?from=-2h");
    assert_eq!(last["to"], json!(SAVED as f64));
    assert_same("", &parts(last).1, &file.intervals[24 * 60..].into());
    assert_same("", &open.json("/api/v1/snapshot"), &file.head["snapshot"]);
    assert_same("", &open.json("/api/v1/slow"), &file.head["slow"]);
}

#[test]
fn part_of_a_day_keeps_the_files_head() {
    let file = SavedFile::of(600, 6 * HOUR);
    let open = Open::start(&file.path);
    let (head, intervals) = parts(open.json("/api/v1/history?from=-26h"));
    assert_eq!(head, parts(file.head["history"].clone()).0);
    assert_same("", &intervals, &file.intervals.clone().into());
    let page = String::from_utf8(open.get("/").body).unwrap();
    let (from, to) = (SAVED - 6 * HOUR - 600, SAVED - 6 * HOUR);
    assert!(page.contains(&format!(
        "<html lang=\"en\" data-saved=\"{SAVED}\" data-from=\"{from}\" data-to=\"{to}\">"
    )));
}

#[test]
fn daemon_only_paths_are_not_found() {
    let file = SavedFile::of(600, 0);
    let open = Open::start(&file.path);
    let page = String::from_utf8(open.get("/").body).unwrap();
    for path in ["/metrics", "/api/v1/events", "/-/healthy", "/-/ready"] {
        let answer = open.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.body, b"not found: this is a saved history, not a daemon\n");
        assert!(!page.contains(&format!("href=\"{path}\"")), "{path}");
    }
    let unknown = String::from_utf8(open.get("/unknown").body).unwrap();
    assert_eq!(unknown, "not found; available paths: /api/v1/snapshot, /api/v1/slow, /api/v1/history, /\n");
}

/// A daemon that has not collected yet can already have its predecessor's history.
#[test]
fn a_file_without_a_snapshot_can_be_served() {
    let whole = SavedFile::of(600, 0);
    let mut head = whole.head.clone();
    (head["snapshot"], head["slow"]) = (Value::Null, Value::Null);
    let file = SavedFile::write(head, whole.intervals.clone());
    let open = Open::start(&file.path);
    let snapshot = open.json("/api/v1/snapshot");
    let host = &file.head["history"]["host"];
    assert_eq!(
        (&snapshot["host"], &snapshot["taken"], &snapshot["devices"]),
        (host, &json!(SAVED as f64), &json!([]))
    );
    let slow = open.json("/api/v1/slow");
    assert_eq!((&slow["ios"], &slow["threshold"]), (&json!([]), &Value::Null));
    assert_same("", &open.json("/api/v1/history?from=-1h")["intervals"], &file.intervals.clone().into());
}
