//! The page's history under adverse conditions: a busy or restarted daemon, an invalid link, a clock that is set back, a removed
//! drive.

use serde_json::{Value, json};

use crate::support::{
    browser::Browser,
    daemon::wait_for,
    day::{DayServer, REMOVAL, REMOVED},
    day_page::{assert_range_is_exact, loaded, open},
};

const HISTORY: &str = "/api/v1/history";

fn click(browser: &mut Browser, seconds: u64) {
    browser.click(&format!("#ranges button[value='{seconds}']"));
}

/// Waits until both the heat map and the note contain this text.
fn wait_for_note(browser: &mut Browser, text: &str) {
    for id in ["nothing", "day-note"] {
        browser.wait_for(&format!("document.getElementById('{id}').innerText.includes('{text}')"));
    }
}

/// Returns the faults, except the browser's messages about failed requests.
fn faults(browser: &mut Browser) -> Vec<String> {
    browser.faults().into_iter().filter(|fault| !fault.starts_with("Failed to load resource")).collect()
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn shows_error_and_retries_busy_daemon() {
    let day = DayServer::start(1);
    let mut browser = open(&day, "", &json!({}));
    for (status, text, seconds) in
        [(503, "too many clients read the history\n", 600), (429, "too many checks\n", 7200)]
    {
        browser.answer(HISTORY, status, text);
        click(&mut browser, seconds);
        browser.wait_for("document.getElementById('nothing').textContent.startsWith('Loading')");
        browser.answer(HISTORY, 0, "");
        assert_range_is_exact(&mut browser, &day);
    }
    for (status, text, seconds, shown) in [
        (400, "bad request: from: give a time\n", 21_600, "read: bad request: from: give a time."),
        (502, "<html><b>proxy</b>", 93_600, "read: biolat responded with status 502."),
        (404, "not found", 600, "The history is off"),
    ] {
        browser.answer(HISTORY, status, text);
        click(&mut browser, seconds);
        wait_for_note(&mut browser, shown);
        assert_eq!(browser.evaluate("document.querySelectorAll('#nothing b, #day-note b').length"), 0);
        browser.answer(HISTORY, 0, "");
        // The page asks again with every new snapshot (there are none here), or when the user selects something.
        wait_for("the page asks again", || {
            browser.press("l");
            browser.evaluate("document.getElementById('day-note').hidden") == true
        });
        click(&mut browser, 7200);
        assert_range_is_exact(&mut browser, &day);
    }
    assert_eq!(faults(&mut browser), [""; 0]);
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn ignores_invalid_link() {
    let day = DayServer::start(1);
    let (begin, end) = (day.ended - 3600, day.ended);
    let link = |fragment: &str| open(&day, fragment, &json!({}));
    for nothing in
        [format!("#from={}&to={}", begin - 900, begin - 300), format!("#from={}&to={}", end + 300, end + 900)]
    {
        let mut browser = link(&nothing);
        browser
            .wait_for("document.getElementById('nothing').textContent.startsWith('No data for this time')");
        assert_eq!(browser.faults(), [""; 0], "{nothing}");
    }
    for everything in ["#from=0&to=1e300", "#last=Infinity", "#last=9e9&cell=Infinity,99999"] {
        let mut browser = link(everything);
        loaded(&mut browser);
        browser.wait_for(&format!("biolat.state.count === {}", day.all_ios));
        assert_eq!(browser.evaluate("document.getElementById('there').hidden"), true);
        assert_eq!(browser.faults(), [""; 0], "{everything}");
    }
    for live in ["#from=5&to=4", "#from=x&to=y", "#last=-1", "#from=-Infinity&to=Infinity", "#cell=5", "#%"] {
        let mut browser = link(live);
        assert_eq!(browser.evaluate("biolat.state.range"), Value::Null, "{live}");
        assert_eq!(browser.faults(), [""; 0], "{live}");
    }
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn page_loads_history_of_restarted_daemon() {
    let day = DayServer::start(26);
    let mut browser = open(&day, "#last=93600", &json!({}));
    loaded(&mut browser);
    browser.wait_for("biolat.state.columns.length > 300 && biolat.state.day.length > 700");
    let day = day.restart();
    let begin = day.ended - 600;
    // The old history is gone, and the new one is shown at once in more detail.
    browser.wait_for(&format!("biolat.state.day.length > 100 && biolat.state.day[0].from >= {begin} - 1"));
    browser.wait_for("biolat.state.columns.length > 100");
    assert_range_is_exact(&mut browser, &day);
    assert_eq!(browser.evaluate("biolat.state.count"), day.all_ios);
    assert_eq!(faults(&mut browser), [""; 0]);
}

/// Twenty minutes of wall-clock time occur twice.
#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn clock_set_back_keeps_sums() {
    let (day, set) = DayServer::with_clock_set_back();
    let mut browser = open(&day, "#last=7200", &json!({}));
    loaded(&mut browser);
    browser.wait_for(&format!("biolat.state.count === {}", day.all_ios));
    let columns = "biolat.state.columns.every(({ from, to }) => from < to)";
    assert_eq!(browser.evaluate(columns), true);
    // The rate is per elapsed second, not per second of wall-clock time.
    let rate = browser.text("#iops");
    let (value, _) = rate.split_once(" k").unwrap();
    let expected = day.all_ios as f64 / 3600.0 / 1000.0;
    assert!((value.parse::<f64>().unwrap() / expected - 1.0).abs() < 0.01, "{rate}, not {expected} k");
    // The strip also covers the time before and after the change.
    let ends = "[Math.min(...biolat.state.day.map(({ from }) => from)), Math.max(...biolat.state.day.map(({ to }) => to))]";
    let [from, to]: [f64; 2] = serde_json::from_value(browser.evaluate(ends)).unwrap();
    assert!(
        (from - (set - 1800) as f64).abs() < 2.0 && (to - day.ended as f64).abs() < 2.0,
        "{from} to {to}"
    );
    assert_eq!(browser.faults(), [""; 0]);
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn shows_removed_drive_in_history() {
    let day = DayServer::start(26);
    let name = format!("nvme{REMOVED}n1");
    let mut browser = open(&day, &format!("#last=7200&device={name}"), &json!({}));
    loaded(&mut browser);
    let last = "Math.max(...biolat.state.columns.filter(({ count }) => count > 0).map(({ to }) => to))";
    let last = browser.evaluate(last).as_f64().unwrap();
    let removed = (day.ended - REMOVAL) as f64;
    assert!((last - removed).abs() < 31.0, "{last}, not {removed}");
    let row = format!(
        "[...document.querySelectorAll('#devices tbody th')].some((row) => row.innerText === '{name}')"
    );
    assert_eq!(browser.evaluate(&row), true);
    browser.press("l");
    browser.wait_for("biolat.state.range === null && !biolat.state.loading");
    assert_eq!(browser.evaluate(&row), false);
    assert_eq!(browser.evaluate("document.getElementById('device').value"), format!("={name}"));
    assert_eq!(browser.faults(), [""; 0]);
}
