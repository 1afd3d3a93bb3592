//! The page of a server with a day of history, in a browser.

use serde_json::{Value, json};

use super::{
    browser::Browser,
    day::{DayServer, WORKLOADS},
};

/// Opens the page and waits for the day's strip.
pub(crate) fn open(day: &DayServer, fragment: &str, options: &Value) -> Browser {
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/{fragment}", day.address), options);
    browser.wait_for("window.biolat?.state.day?.length > 0");
    browser
}

/// Waits until the requested range has loaded.
pub(crate) fn loaded(browser: &mut Browser) {
    browser.wait_for("biolat.state.range && !biolat.state.loading && biolat.state.drawn > 0");
}

/// Returns the left, top, width and height of an element.
pub(crate) fn place(browser: &mut Browser, id: &str) -> [f64; 4] {
    let place = browser.evaluate(&format!(
        "(() => {{ const box = document.getElementById('{id}').getBoundingClientRect(); return [box.x, box.y, box.width, box.height]; }})()"
    ));
    serde_json::from_value(place).unwrap()
}

/// Asserts that the counts of the range match the growth of the counters between its first and its last collection.
pub(crate) fn assert_range_is_exact(browser: &mut Browser, day: &DayServer) {
    loaded(browser);
    let ends = browser.evaluate(
        "[Math.round(biolat.state.columns[0].from), Math.round(biolat.state.columns.at(-1).to), biolat.state.count]",
    );
    let [from, to, count]: [u64; 3] = serde_json::from_value(ends).unwrap();
    assert_eq!(count, day.ios(from, to), "{from} to {to}");
}

/// Asserts that the I/Os of both workloads, and of all sizes, add up to all I/Os of the range.
pub(crate) fn assert_workloads_and_sizes_add_up(browser: &mut Browser, day: &DayServer) {
    assert_range_is_exact(browser, day);
    let all = browser.evaluate("biolat.state.count").as_u64().unwrap();
    let mut counts = [0; 2];
    for (count, workload) in counts.iter_mut().zip(WORKLOADS) {
        let row = format!("document.querySelector('#who tbody button[title^=\"{workload}\"]')");
        browser.evaluate(&format!("{row}.click()"));
        browser.wait_for(&format!("biolat.state.workload === '{workload}' && !biolat.state.loading"));
        *count = browser.evaluate("biolat.state.count").as_u64().unwrap();
    }
    browser.click("#everyone");
    browser.wait_for("biolat.state.workload === null && !biolat.state.loading");
    assert!(
        counts.iter().sum::<u64>() == all && counts.iter().all(|count| *count > 0),
        "{counts:?} of {all}"
    );
    let sizes = "[...document.querySelectorAll('#sizes tbody tr:not([hidden])')].map(({ band }) => [band.range, band.all])";
    assert_eq!(browser.evaluate(sizes), json!([["4 to 16 KiB", all]]));
}
