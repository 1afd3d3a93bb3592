//! The page of a saved file, in a real browser.

use serde_json::{Value, json};

use crate::{
    browser::Browser,
    file::{HOST, HOUR, SAVED, STALL, STALLED, STALLS, SavedFile, WORKLOADS},
    server::Open,
};

/// Opens the page and waits for it to load.
fn open(server: &Open, fragment: &str, options: &Value) -> Browser {
    let mut browser = Browser::start();
    let mut options = options.clone();
    options["scheme"] = "light".into();
    browser.open(&format!("http://{}/{fragment}", server.address), &options);
    browser.wait_for("window.biolat?.state.day?.length > 0");
    loaded(&mut browser);
    browser
}

/// Waits for the chosen range to load.
fn loaded(browser: &mut Browser) {
    browser.wait_for("biolat.state.range && !biolat.state.loading && biolat.state.drawn > 0");
}

fn shown(browser: &mut Browser) -> [u64; 3] {
    loaded(browser);
    let ends = "[biolat.state.columns[0].from, biolat.state.columns.at(-1).to, biolat.state.count]";
    serde_json::from_value::<[f64; 3]>(browser.evaluate(ends)).unwrap().map(|number| number as u64)
}

fn is_visible(browser: &mut Browser, selector: &str) -> bool {
    browser.evaluate(&format!("document.querySelector('{selector}').checkVisibility()")) == true
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn shows_the_whole_file() {
    let file = SavedFile::of(26 * HOUR, 0);
    let mut server = Open::start(&file.path);
    let mut browser = open(&server, "", &json!({}));
    let all = file.ios(SAVED - 26 * HOUR, SAVED);
    assert_eq!(shown(&mut browser), [SAVED - 26 * HOUR, SAVED, all]);

    // The page shows the host, and that the figures are not live.
    assert_eq!(browser.text("#host"), HOST);
    assert_eq!(browser.text("#state"), "saved history, not live");
    let time = browser.evaluate(&format!("new Date({SAVED}000).toTimeString().slice(0, 8)"));
    let (age, time) = (browser.text("#age"), time.as_str().unwrap());
    assert!(age.starts_with("saved at 2026-01-0") && age.ends_with(time), "{age}");
    assert_eq!(browser.evaluate("document.title"), format!("{HOST}, saved · biolat"));
    for hidden in ["#pause", "#span", "#banner", "#hung", "#cpus-at", "#day-note"] {
        assert!(!is_visible(&mut browser, hidden), "{hidden}");
    }
    let ranges =
        "[...document.querySelectorAll('#ranges button')].map(({ textContent }) => textContent).join()";
    assert_eq!(browser.evaluate(ranges), "all,10 min,2 h,6 h");
    browser.press(" ");
    assert_eq!(browser.evaluate("biolat.state.paused"), false);

    // The workloads add up to all I/O, and all requests are in one size band.
    let mut ios = [0; 2];
    for (count, workload) in ios.iter_mut().zip(WORKLOADS) {
        browser
            .evaluate(&format!("document.querySelector('#who tbody button[title^=\"{workload}\"]').click()"));
        browser.wait_for(&format!("biolat.state.workload === '{workload}' && !biolat.state.loading"));
        *count = browser.evaluate("biolat.state.count").as_u64().unwrap();
    }
    browser.click("#everyone");
    browser.wait_for("biolat.state.workload === null && !biolat.state.loading");
    assert!(ios.iter().sum::<u64>() == all && ios.iter().all(|count| *count > 0), "{ios:?} of {all}");
    let sizes =
        "[...document.querySelectorAll('#sizes tbody tr:not([hidden])')].map(({ band }) => band.range)";
    assert_eq!(browser.evaluate(sizes), json!(["4 to 16 KiB"]));
    assert_eq!(browser.evaluate("document.querySelectorAll('#devices tbody tr').length"), 3);

    // Go to the stall by keyboard: the page shows ten minutes around it, with its I/Os.
    let stalls = browser.evaluate("biolat.state.day.filter(({ slowest }) => slowest > 1)");
    assert_eq!(stalls.as_array().unwrap().len(), 1, "{stalls}");
    assert_eq!(
        (stalls[0]["slowest"].as_f64(), &stalls[0]["name"]),
        (Some(4.0), &json!(format!("{STALLED} read")))
    );
    browser.evaluate("document.getElementById('day').focus()");
    browser.press("ArrowLeft");
    browser.press("Enter");
    browser.wait_for(&format!("biolat.state.range.from > {}", SAVED - STALL - 600));
    let [from, to, count] = shown(&mut browser);
    assert!(from < SAVED - STALL && SAVED - STALL < to && to - from < 900, "{from} to {to}");
    assert_eq!(count, file.ios(from, to));
    browser.wait_for(&format!("document.querySelectorAll('#slow tbody tr').length === {STALLS}"));
    let link = browser.evaluate("location.hash").as_str().unwrap().to_owned();
    let mut other = open(&server, &link, &json!({"width": 390, "height": 844}));
    assert_eq!(shown(&mut other), [from, to, count]);
    assert_eq!(other.evaluate("document.documentElement.scrollWidth"), 390);
    drop(other);
    // The two hours before the file was saved, then everything again.
    browser.click("#ranges button[value='7200']");
    browser.wait_for("biolat.state.range.last === 7200");
    let last = [SAVED - 2 * HOUR, SAVED, file.ios(SAVED - 2 * HOUR, SAVED)];
    assert_eq!(shown(&mut browser), last);
    browser.press("l");
    browser.wait_for("biolat.state.range.last === undefined");
    assert_eq!(shown(&mut browser), [SAVED - 26 * HOUR, SAVED, all]);
    assert_eq!(browser.evaluate("location.hash"), "");
    assert_eq!(browser.faults(), [""; 0]);

    // After the server exits, the page sends no requests and shows no error.
    assert!(server.interrupt().success());
    let asked = "performance.getEntriesByType('resource').length";
    let before = browser.evaluate(asked);
    browser.evaluate("new Promise((resume) => { setTimeout(resume, 7000); })");
    assert_eq!(browser.evaluate(asked), before);
    assert!(!is_visible(&mut browser, "#banner"));
    assert_eq!(browser.faults(), [""; 0]);
}

/// Twenty minutes of a day, saved hours later.
#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn shows_a_whole_part_of_a_day() {
    let file = SavedFile::of(1200, STALL - 600);
    let server = Open::start(&file.path);
    let mut browser = open(&server, "", &json!({}));
    let to = SAVED - STALL + 600;
    assert_eq!(shown(&mut browser), [to - 1200, to, file.ios(0, SAVED)]);
    let strip = "[biolat.state.day[0].from, biolat.state.day.at(-1).to]";
    assert_eq!(browser.evaluate(strip), json!([to - 1200, to]));
    // The range never exceeds the file.
    browser.press("-");
    browser.press("+");
    browser.press("+");
    browser.press("+");
    browser.wait_for(&format!("biolat.state.range.to === {to} && biolat.state.range.from === {}", to - 1200));
    assert_eq!(shown(&mut browser), [to - 1200, to, file.ios(0, SAVED)]);
    assert_eq!(browser.faults(), [""; 0]);
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn lists_the_worst_minutes_without_scripts() {
    let file = SavedFile::of(26 * HOUR, 0);
    let server = Open::start(&file.path);
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/", server.address), &json!({"script": false}));
    let text = browser.text("#plain");
    for expected in [
        "The history of <i>db1</i>, saved at 2026-01-05 03:02:00; not live.",
        "The worst minutes since 2026-01-04 01:02:00",
        &format!("2026-01-04 18:01:00\t{STALLED}\tread\t4.00 s"),
    ] {
        assert!(text.contains(expected), "{text}");
    }
    assert!(!text.contains("Reload"));
}
