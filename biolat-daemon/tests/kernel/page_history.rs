//! The last day on the page, in a real browser: incidents and their times can be found quickly. The history is synthetic.

use serde_json::json;

use crate::support::{
    browser::Browser,
    day::{DayServer, ERRORS, FAILED_WRITES, GAP, GAP_LENGTH, MEMORY, RESTART, STALL, STALLED, WORKLOADS},
    day_page::{assert_range_is_exact, assert_workloads_and_sizes_add_up, loaded, open, place},
};

const DAY: u64 = 26 * 3600;

/// Returns the point on the strip for this time.
fn on_strip(browser: &mut Browser, time: f64) -> [f64; 2] {
    let [left, top, width, _] = place(browser, "day");
    let ends = browser.evaluate("[biolat.state.day[0].from, biolat.state.day.at(-1).to]");
    let [from, to]: [f64; 2] = serde_json::from_value(ends).unwrap();
    [left + (time - from) / (to - from) * width, top + 20.0]
}

/// Returns the midpoint times of the strip's columns for which an expression is true.
fn times(browser: &mut Browser, test: &str) -> Vec<f64> {
    let times = browser.evaluate(&format!(
        "biolat.state.day.filter((column) => {test}).map(({{ from, to }}) => (from + to) / 2)"
    ));
    serde_json::from_value(times).unwrap()
}

/// Whether the strip has an element's colour within a pixel of a point, at any height.
fn has_colour(browser: &mut Browser, [left, _]: [f64; 2], of: &str) -> bool {
    let [strip, ..] = place(browser, "day");
    let x = left - strip;
    browser.evaluate(&format!(
        "(() => {{ const canvas = document.getElementById('day'), copy = new OffscreenCanvas(3, canvas.height).getContext('2d'); \
         copy.drawImage(canvas, {} - Math.round({x}), 0); \
         const {{ data }} = copy.getImageData(0, 0, 3, canvas.height), wanted = getComputedStyle(document.getElementById('{of}')).color; \
         for (let at = 0; at < data.length; at += 4) if (`rgb(${{data[at]}}, ${{data[at + 1]}}, ${{data[at + 2]}})` === wanted) return true; \
         return false; }})()",
        1
    )) == true
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn finds_stall_on_strip() {
    let day = DayServer::start(26);
    let ago = |seconds: u64| (day.ended - seconds) as f64;
    let mut browser = open(&day, "", &json!({"scheme": "light"}));
    browser.wait_for("biolat.state.day.length > 700");
    // Incidents stand out at the right time, and nothing else does.
    let near = |times: &[f64], ago: f64| times.len() == 1 && (times[0] - ago).abs() < 120.0;
    let stalls = times(&mut browser, "column.slowest > 1");
    assert!(near(&stalls, ago(STALL)), "{stalls:?}");
    let errors = times(&mut browser, &format!("column.errors === {FAILED_WRITES}"));
    assert!(near(&errors, ago(ERRORS)), "{errors:?}");
    assert_eq!(times(&mut browser, "column.errors > 0").len(), 1);
    for (time, of) in [(stalls[0], "day-stall"), (errors[0], "day-failed"), (ago(RESTART), "day-start")] {
        let point = on_strip(&mut browser, time);
        assert!(has_colour(&mut browser, point, of), "{of}");
        let point = on_strip(&mut browser, ago(STALL + 3600));
        assert!(!has_colour(&mut browser, point, of), "{of} also appears elsewhere");
    }
    let gap = ago(GAP - GAP_LENGTH / 2);
    assert_eq!(times(&mut browser, &format!("column.from < {gap} && column.to > {gap}")), [0.0; 0]);

    // Hovering shows time, device and latency; a click selects the ten minutes around that time.
    let [left, top] = on_strip(&mut browser, stalls[0]);
    browser.hover(left, top);
    let reading = browser.text("#day-reading");
    assert!(reading.ends_with("nvme3n1 read up to 4.00 s"), "{reading}");
    browser.drag(&[[left + 3.0, top]]);
    loaded(&mut browser);
    let range = browser.evaluate("biolat.state.range");
    let [from, to] = ["from", "to"].map(|end| range[end].as_f64().unwrap());
    assert!(from < stalls[0] && stalls[0] < to && (to - from - 600.0).abs() < 2.0, "{range}");
    // The same works with the keyboard.
    browser.press("l");
    browser.evaluate("document.getElementById('day').focus()");
    browser.press("ArrowLeft");
    assert!(browser.text("#day-reading").ends_with("12 errors"));
    browser.press("ArrowLeft");
    assert_eq!(browser.text("#day-reading"), reading);
    browser.press("Enter");
    loaded(&mut browser);
    assert_eq!(browser.evaluate("biolat.state.range"), range);
    assert_cell_has_ios(&mut browser, &day);
    assert_eq!(browser.faults(), [""; 0]);
}

/// Clicking the cell of the stalled reads shows them, as does a link to the cell.
fn assert_cell_has_ios(browser: &mut Browser, day: &DayServer) {
    let (drive, ios, latency) = STALLED;
    let index = (latency.log2() * 8.0).ceil();
    assert_eq!(browser.evaluate(&format!("biolat.state.cells[{index}]")), ios);
    let [left, top, ..] = place(browser, "heat");
    let row = top + browser.evaluate(&format!("biolat.row({index})")).as_f64().unwrap();
    let count = format!("{ios} I/Os of");
    let found = (60..700).step_by(10).map(|x| left + f64::from(x)).find(|x| {
        browser.hover(*x, row);
        browser.evaluate("document.getElementById('reading').textContent").as_str().unwrap().contains(&count)
    });
    browser.drag(&[[found.expect("no cell contains the reads"), row]]);
    let table = "document.getElementById('there-slow').tBodies[0].rows";
    browser.wait_for(&format!("{table}.length === {ios}"));
    let who = "[...document.getElementById('there-who').tBodies[0].rows].map((row) => [...row.cells].slice(0, 3).map((cell) => cell.textContent))";
    assert_eq!(browser.evaluate(who), json!([[format!("nvme{drive}n1"), "read", ios.to_string()]]));
    let cells = browser.evaluate(&format!("[...{table}[0].cells].slice(1).map((cell) => cell.innerText)"));
    let expected = [
        "nvme3n1",
        "read",
        "b>.service",
        "–",
        "–",
        "ok",
        "4.00 s",
        "–",
        "3.00 µs",
        "4.00 s",
        "4 KiB",
        "2048",
        "3",
    ];
    assert_eq!(cells, json!(expected));
    assert_eq!(browser.evaluate("document.querySelectorAll('#there b, #devices i').length"), 0);
    let link = browser.evaluate("location.hash").as_str().unwrap().to_owned();
    let options = json!({"width": 390, "height": 844, "scheme": "dark"});
    let mut other = open(day, &link, &options);
    other.wait_for(&format!("{table}.length === {ios}"));
    assert_eq!(other.evaluate("document.documentElement.scrollWidth"), 390);
    assert_eq!(other.text("#there-of"), browser.text("#there-of"));
    assert_eq!(other.faults(), [""; 0]);
    browser.press("Escape");
    browser.press("Escape");
    assert_eq!(browser.evaluate("document.getElementById('there').hidden"), true);
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn selects_range() {
    let day = DayServer::start(26);
    let mut browser = open(&day, "", &json!({}));
    for (seconds, columns) in [(600, 120), (7200, 240), (21_600, 180), (DAY, 306)] {
        browser.click(&format!("#ranges button[value='{seconds}']"));
        browser.wait_for(&format!("biolat.state.range.last === {seconds}"));
        assert_range_is_exact(&mut browser, &day);
        let drawn = browser.evaluate("biolat.state.drawn").as_u64().unwrap();
        assert!(drawn.abs_diff(columns) <= 2, "{seconds} s: {drawn} columns");
        assert_eq!(browser.evaluate("location.hash"), format!("#last={seconds}"));
        let [from, to]: [f64; 2] = serde_json::from_value(
            browser.evaluate("[biolat.state.columns[0].from, biolat.state.columns.at(-1).to]"),
        )
        .unwrap();
        assert!((to - day.ended as f64).abs() < 1.0 && (to - from - seconds as f64).abs() < 300.0);
    }
    // Selects a range with the mouse, then goes back.
    let [left, top, ..] = place(&mut browser, "heat");
    let times = "[300, 500].map((x) => biolat.time(x))";
    let expected: [f64; 2] = serde_json::from_value(browser.evaluate(times)).unwrap();
    browser.drag(&[[left + 300.0, top + 100.0], [left + 500.0, top + 130.0]]);
    assert_range_is_exact(&mut browser, &day);
    let range = browser.evaluate("biolat.state.range");
    for (end, expected) in [("from", expected[0]), ("to", expected[1])] {
        assert!((range[end].as_f64().unwrap() - expected).abs() < 1.5, "{range}: {expected}");
    }
    browser.back();
    browser.wait_for(&format!("biolat.state.range.last === {DAY}"));
    loaded(&mut browser);
    // Selects a range with the keyboard.
    browser.evaluate("document.getElementById('heat').focus()");
    for key in ["ArrowLeft", "Shift+ArrowLeft", "Shift+ArrowLeft"] {
        browser.press(key);
    }
    let wanted = browser.evaluate(
        "({ from: Math.floor(biolat.state.columns.at(-4).from), to: Math.ceil(biolat.state.columns.at(-2).to) })",
    );
    browser.press("Enter");
    browser.wait_for("biolat.state.range.from > 0");
    assert_eq!(browser.evaluate("biolat.state.range"), wanted);
    assert_range_is_exact(&mut browser, &day);
    assert_cell_link_keeps_range(&day);
    // Selects a device and op in the range, then goes live again.
    browser.select("#device", "nvme3n1");
    browser.press("o");
    browser.wait_for("biolat.state.device === 'nvme3n1' && biolat.state.op === 'read'");
    assert!(browser.evaluate("location.hash").as_str().unwrap().contains("device=nvme3n1"));
    browser.press("l");
    browser.wait_for("biolat.state.range === null");
    assert_eq!(browser.faults(), [""; 0]);
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn shows_workloads_and_sizes_of_stall() {
    let day = DayServer::with_breakdowns(MEMORY);
    let from = day.ended - STALL - 300;
    let mut browser = open(&day, &format!("#from={from}&to={}", from + 600), &json!({}));
    assert_workloads_and_sizes_add_up(&mut browser, &day);
    let who = "[...document.querySelectorAll('#who tbody button')].map(({ title }) => title.split(' (')[0])";
    assert_eq!(browser.evaluate(who), json!(WORKLOADS));
    assert_eq!(browser.text("#who-note"), "");
    assert!(browser.text("#who-of").contains(", 10 min, "), "{}", browser.text("#who-of"));
    // Only the reading workload is in the stall's cell.
    browser.click("#who tbody tr:nth-child(2)");
    browser.wait_for(&format!("biolat.state.workload === '{}' && !biolat.state.loading", WORKLOADS[1]));
    let slow = "Object.entries(biolat.state.cells).filter(([cell]) => cell > 0)";
    assert_eq!(browser.evaluate(slow), json!([]));
    browser.click("#who tbody tr:nth-child(1)");
    browser.wait_for(&format!("biolat.state.workload === '{}' && !biolat.state.loading", WORKLOADS[0]));
    let (_, ios, latency) = STALLED;
    assert_eq!(browser.evaluate(slow), json!([[format!("{:.0}", latency.log2() * 8.0), ios]]));
    assert_eq!(browser.faults(), [""; 0]);
}

/// Workloads and sizes are the first to be dropped from the history.
#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn reports_dropped_workloads_and_sizes() {
    let day = DayServer::with_breakdowns(15 << 19);
    let mut browser = open(&day, &format!("#last={DAY}"), &json!({}));
    assert_range_is_exact(&mut browser, &day);
    for note in ["#who-note", "#sizes-note"] {
        let text = browser.text(note);
        assert!(text.starts_with("No longer in the history: ") && text.ends_with(" of this time."), "{text}");
    }
    browser.click("#ranges button[value='600']");
    browser.wait_for("biolat.state.range.last === 600");
    assert_workloads_and_sizes_add_up(&mut browser, &day);
    assert_eq!(browser.text("#who-note"), "");
    assert_eq!(browser.faults(), [""; 0]);
}

/// The link's range stays fixed even if the range ended "now", because the link will be opened later.
fn assert_cell_link_keeps_range(day: &DayServer) {
    let mut browser = open(day, &format!("#last={DAY}"), &json!({}));
    loaded(&mut browser);
    browser.evaluate("document.getElementById('heat').focus()");
    browser.press("ArrowLeft");
    browser.press("Enter");
    browser.wait_for("document.getElementById('there-note').textContent.startsWith('No')");
    let link = browser.evaluate("location.hash").as_str().unwrap().to_owned();
    assert!(!link.contains("last="), "{link}");
    let mut other = open(day, &link, &json!({}));
    loaded(&mut other);
    other.wait_for("document.getElementById('there-note').textContent.startsWith('No')");
    for shown in ["biolat.state.columns", "document.getElementById('there').innerText"] {
        assert_eq!(other.evaluate(shown), browser.evaluate(shown), "{link}");
    }
    assert_eq!(browser.evaluate("biolat.state.range"), json!({"last": DAY}));
}

/// Here the page requests parts of 40 s: a minute whose midpoint is in none of them must still count once.
#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn short_ranges_of_long_intervals_are_exact() {
    let day = DayServer::start(26);
    for begin in [0, 7, 13, 25, 36, 47] {
        let from = day.ended - STALL + begin;
        let mut browser = open(&day, &format!("#from={from}&to={}", from + 150), &json!({}));
        assert_range_is_exact(&mut browser, &day);
    }
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn draws_whole_day_quickly() {
    let day = DayServer::with_breakdowns(MEMORY);
    let mut browser = open(&day, "", &json!({}));
    browser.evaluate(
        "window.tasks = []; new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration))) \
         .observe({ type: 'longtask' }); window.began = performance.now()",
    );
    browser.click(&format!("#ranges button[value='{DAY}']"));
    browser.wait_for(&format!("biolat.state.range?.last === {DAY}"));
    loaded(&mut browser);
    println!("read and drawn after {} ms", browser.evaluate("Math.round(performance.now() - began)"));
    println!("tasks of {} ms", browser.evaluate("tasks.splice(0)"));
    // Other programs can delay some of the draws.
    let times: Vec<f64> = (0..5)
        .map(|turn| {
            let drawn = browser.evaluate("biolat.state.draws").as_u64().unwrap();
            browser.press(["2", "3"][turn % 2]);
            browser.wait_for(&format!("biolat.state.draws > {drawn}"));
            browser.evaluate("biolat.state.drawSeconds").as_f64().unwrap()
        })
        .collect();
    println!("drawn in {times:?} s");
    assert!(times.iter().copied().fold(f64::INFINITY, f64::min) < 0.3, "{times:?}");
    // Hovering over cells does not redraw the page.
    let [left, top, ..] = place(&mut browser, "heat");
    browser.evaluate("tasks.splice(0)");
    let drawn = browser.evaluate("biolat.state.draws");
    for step in 0..60 {
        browser.hover(left + 80.0 + f64::from(step) * 10.0, top + 200.0);
    }
    assert_eq!(browser.evaluate("biolat.state.draws"), drawn);
    println!("tasks of {} ms while 60 cells were read", browser.evaluate("tasks.splice(0)"));
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn page_reports_disabled_history() {
    let off = DayServer::without_history();
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/#last=7200", off.address), &json!({}));
    browser.wait_for("document.getElementById('day-note')?.textContent !== ''");
    assert!(browser.text("#day-note").contains("--history off"));
    assert!(browser.text("#nothing").contains("--history off"));
    let disabled = "[...document.querySelectorAll('#ranges button')].map(({ disabled }) => disabled)";
    browser.wait_for(&format!("JSON.stringify({disabled}) === '[false,true,true,true,true]'"));

    // A history that began an hour ago.
    let day = DayServer::start(1);
    let mut browser = open(&day, "", &json!({}));
    let began = (day.ended - 3600) as f64;
    let clock = browser.evaluate(&format!("new Date({began} * 1000).toTimeString().slice(0, 5)"));
    browser.wait_for("document.getElementById('day-title').textContent !== 'The last day'");
    // The title includes the date if the history began yesterday.
    let title = browser.text("#day-title");
    assert!(
        title.to_lowercase().starts_with("since ") && title.ends_with(clock.as_str().unwrap()),
        "{title}"
    );
    browser.click(&format!("#ranges button[value='{DAY}']"));
    assert_range_is_exact(&mut browser, &day);
    assert!((browser.evaluate("biolat.state.columns[0].from").as_f64().unwrap() - began).abs() < 1.0);
    browser
        .open(&format!("http://{}/#from={}&to={}", day.address, began - 9000.0, began - 5000.0), &json!({}));
    browser.wait_for("document.getElementById('nothing').textContent.includes('the history begins at')");
    assert_eq!(browser.faults(), [""; 0]);
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn shows_worst_minutes_without_scripts() {
    let day = DayServer::start(26);
    let mut browser = Browser::start();
    let options = json!({"script": false, "width": 390, "height": 844});
    browser.open(&format!("http://{}/", day.address), &options);
    assert!(browser.text("#plain h2").starts_with("The worst minutes since "));
    let first = browser.text("#plain h2 + div tbody tr:first-child");
    let cells: Vec<_> = first.split('\t').map(str::trim).collect();
    assert_eq!(cells[1..4], ["nvme3n1", "read", "4.00 s"], "{first}");
    assert!(browser.text("#plain h2 + div").contains("nvme5n1\twrite"));
    assert_eq!(browser.faults(), [""; 0]);
}
