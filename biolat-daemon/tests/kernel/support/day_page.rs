//! The page of a server with the history of a day, in a browser.

use serde_json::Value;

use super::{browser::Browser, day::DayServer};

/// Opens the page, and waits for the strip of the day.
pub(crate) fn open(day: &DayServer, fragment: &str, options: &Value) -> Browser {
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/{fragment}", day.address), options);
    browser.wait_for("window.biolat?.state.day?.length > 0");
    browser
}

/// Waits for the range that was asked for.
pub(crate) fn loaded(browser: &mut Browser) {
    browser.wait_for("biolat.state.range && !biolat.state.loading && biolat.state.drawn > 0");
}

/// Left, top, width and height of an element.
pub(crate) fn place(browser: &mut Browser, id: &str) -> [f64; 4] {
    let place = browser.evaluate(&format!(
        "(() => {{ const box = document.getElementById('{id}').getBoundingClientRect(); return [box.x, box.y, box.width, box.height]; }})()"
    ));
    serde_json::from_value(place).unwrap()
}

/// The counts of a range are those of the counters between its first and its last collection.
pub(crate) fn is_exact(browser: &mut Browser, day: &DayServer) {
    loaded(browser);
    let ends = browser.evaluate(
        "[Math.round(biolat.state.columns[0].from), Math.round(biolat.state.columns.at(-1).to), biolat.state.count]",
    );
    let [from, to, count]: [u64; 3] = serde_json::from_value(ends).unwrap();
    assert_eq!(count, day.ios(from, to), "{from} to {to}");
}
