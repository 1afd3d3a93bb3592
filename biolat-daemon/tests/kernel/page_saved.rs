//! A saved history, dragged into the page of another daemon.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use crate::support::{
    browser::Browser,
    day::{DayServer, MEMORY, STALL, STALLED},
    day_page::{is_exact, loaded, who_and_sizes},
    http,
};

/// What `report --save` would write of the two hours around the stall, and how many intervals it has.
fn lines(day: &DayServer) -> Vec<String> {
    let get = |path: &str| -> Value {
        serde_json::from_slice(&http::get(day.address, path, "").unwrap().body).unwrap()
    };
    let middle = day.ended - STALL;
    let mut history = get(&format!("/api/v1/history?from={}&to={}", middle - 3600, middle + 3600));
    let intervals = history.as_object_mut().unwrap().remove("intervals").unwrap();
    let intervals = intervals.as_array().unwrap();
    let mut snapshot = get("/api/v1/snapshot");
    snapshot["host"] = "<b>db\u{202e}1</b>".into();
    let head = json!({
        "format": "biolat history",
        "format_version": 1,
        "saved": day.ended,
        "history": history,
        "snapshot": snapshot,
        "slow": null,
    });
    let end = json!({"end": {"intervals": intervals.len()}});
    [&head].into_iter().chain(intervals).chain([&end]).map(Value::to_string).collect()
}

fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("biolat-{}-{name}", std::process::id()));
    fs::write(&path, bytes).unwrap();
    path
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Drops a file, and waits until the page says so.
fn drop_file(browser: &mut Browser, name: &str, bytes: &[u8], says: &str) {
    let path = write(name, bytes);
    browser.drop_file(&path);
    browser.wait_for(&format!("document.getElementById('day-note').textContent.includes('{says}')"));
    fs::remove_file(path).unwrap();
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn a_saved_history_is_shown_as_the_own_one() {
    let day = DayServer::broken_down(MEMORY);
    let lines = lines(&day);
    let text = lines.join("\n") + "\n";
    let other = DayServer::without_history();
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/", other.address), &json!({}));
    browser.wait_for("document.getElementById('day-note')?.textContent.includes('--history off')");
    browser.faults();

    // Compressed or not.
    for (name, bytes) in [("day.gz", gzip(&text)), ("day.jsonl", text.clone().into_bytes())] {
        let path = write(name, &bytes);
        browser.drop_file(&path);
        browser.wait_for("biolat.state.day?.length > 100 && document.getElementById('day-note').hidden");
        fs::remove_file(path).unwrap();
        who_and_sizes(&mut browser, &day);
        assert_eq!(browser.text("#host"), "<b>db\u{fffd}1</b>");
        assert!(browser.text("#state").ends_with(name));
        let stalls = browser.evaluate("biolat.state.day.filter(({ slowest }) => slowest > 1)");
        assert_eq!(stalls.as_array().unwrap().len(), 1, "{stalls}");
        assert_eq!(stalls[0]["slowest"].as_f64(), Some(STALLED.2));
        assert_eq!(stalls[0]["name"], "nvme3n1 read");
        // By keyboard to the ten minutes around.
        browser.evaluate("document.getElementById('day').focus()");
        browser.press("ArrowLeft");
        browser.press("Enter");
        browser.wait_for("biolat.state.range.from > 0");
        loaded(&mut browser);
        is_exact(&mut browser, &day);
        browser.wait_for(&format!("document.querySelectorAll('#slow tbody tr').length === {}", STALLED.1));
        assert_eq!(browser.evaluate("location.hash"), "");
        browser.click("#pause");
        browser.wait_for("biolat.state.range === null && !biolat.state.paused");
        browser.wait_for("document.getElementById('host').textContent === 'storage-1'");
    }

    drop_file(&mut browser, "text", b"no history", "is not a history");
    let foreign = r#"{"format":"other","format_version":1}"#.as_bytes();
    drop_file(&mut browser, "foreign", foreign, "is not a history");
    let newer = text.replacen("\"format_version\":1", "\"format_version\":2", 1);
    drop_file(&mut browser, "newer", newer.as_bytes(), "a newer biolat");
    drop_file(&mut browser, "head", lines[0].as_bytes(), "has no intervals");
    assert_eq!(browser.text("#host"), "storage-1");
    let torn = gzip(&text);
    drop_file(&mut browser, "torn.gz", &torn[..torn.len() / 2], "is damaged");
    loaded(&mut browser);
    is_exact(&mut browser, &day);
    let faults: Vec<_> = browser.faults().into_iter().filter(|fault| !fault.contains("404")).collect();
    assert_eq!(faults, [""; 0]);
}

/// Few kilobytes that are hundreds of megabytes, and would take the browser's memory or its time.
#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn hostile_files_are_refused_in_seconds() {
    let other = DayServer::without_history();
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/", other.address), &json!({}));
    browser.wait_for("document.getElementById('day-note')?.textContent.includes('--history off')");
    let head = json!({
        "format": "biolat history", "format_version": 1, "saved": 1_767_582_120.0, "slow": null, "snapshot": null,
        "history": {"version": 1, "biolat": "0.1.0", "host": "db1", "interval": 5.0, "from": 0.0, "to": 1_767_582_120.0},
    });
    let interval = json!({
        "began": 1_767_582_000.0, "taken": 1_767_582_060.0, "seconds": 60, "collections": 12, "failures": 0, "devices": [],
        "lost": {}, "slow": [], "slow_dropped": 0,
    });
    let many = format!("{head}\n{}", format!("{interval}\n").repeat(3_000_000));
    let spaces = " ".repeat(512 << 20);
    let only_spaces = gzip(&spaces);
    for (name, bytes, says) in [
        ("many.gz", gzip(&many), "is too large for a browser: it is shown up to"),
        ("spaces.gz", only_spaces, "is not a history"),
        ("line.gz", gzip(&format!("{head}\n{interval}\n{spaces}")), "is too large for a browser"),
    ] {
        let began = Instant::now();
        drop_file(&mut browser, name, &bytes, says);
        let took = began.elapsed();
        println!("{name}, {} KiB: {took:.1?}", bytes.len() >> 10);
        assert!(took < Duration::from_secs(20), "{name}: {took:?}");
    }
}
