//! The live page in a real browser, with a real daemon and devices under load: it agrees with `/metrics`.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use biolat_model::snapshot::Snapshot;
use serde_json::{Value, json};

use crate::support::{
    browser::Browser,
    daemon::{Daemon, program, wait_for},
    diskstats::READ,
    figures::{Figures, grown, index_of, quantile_index},
    http,
    load::{StopFlag, Target},
    loop_device::LoopDevice,
    run,
    settled::settled,
};

/// The page's index of the zero bucket.
const ZERO: i32 = -160;

/// Two devices, and a daemon that shows only them.
struct PageSetup {
    one: LoopDevice,
    other: LoopDevice,
    daemon: Daemon,
}

impl PageSetup {
    fn new() -> Self {
        let (one, other) = (LoopDevice::attach("page-one", true), LoopDevice::attach("page-other", true));
        let devices = format!("{}|{}", one.name, other.name);
        let daemon = Daemon::start(&["--interval", "200ms", "--node-name", "node1", "--device", &devices]);
        settled(&daemon, &one.name);
        settled(&daemon, &other.name);
        Self { one, other, daemon }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.daemon.address)
    }

    /// Opens the page in a browser, before any load.
    fn browser(&self) -> Browser {
        let mut browser = Browser::start();
        browser.open(&self.url(), &json!({}));
        browser.wait_for("window.biolat?.state.drawn > 1");
        browser
    }
}

/// Returns the growth between two scrapes, by the page's bucket index.
fn cells(before: &Figures, after: &Figures, phase: &str, device: &str, op: &str) -> BTreeMap<String, u64> {
    let Some(now) = after.histogram(phase, device, op) else { return BTreeMap::new() };
    let then = before.histogram(phase, device, op);
    let mut cells = grown(then, now);
    cells.push((ZERO, now.zero_count - then.map_or(0, |then| then.zero_count)));
    cells
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(index, count)| (index.to_string(), count))
        .collect()
}

fn total(cells: &BTreeMap<String, u64>) -> u64 {
    cells.values().sum()
}

/// Returns the bucket that holds a quantile of these cells.
fn quantile_of(cells: &BTreeMap<String, u64>, quantile: f64) -> i32 {
    let mut cells: Vec<_> = cells.iter().map(|(index, count)| (index.parse().unwrap(), *count)).collect();
    cells.sort_unstable();
    quantile_index(&cells, quantile)
}

/// Asserts that a text is the middle of a bucket, to three digits.
fn assert_near(text: &str, index: i32, what: &str) {
    if index == ZERO {
        return assert_eq!(text, "≤ 0.95 µs", "{what}");
    }
    let middle = 2f64.powf((f64::from(index) - 0.5) / 8.0);
    let (value, unit) = text.split_once(' ').unwrap_or_else(|| panic!("{what}: {text}"));
    let scale = match unit {
        "µs" => 1e-6,
        "ms" => 1e-3,
        _ => 1.0,
    };
    let seconds = value.parse::<f64>().unwrap() * scale;
    assert!((seconds / middle - 1.0).abs() < 0.006, "{what}: {text}, not {middle} s");
}

/// JavaScript: whether a bucket's row contains a colour of the palette.
const COLOUR: &str = "(index) => { \
    const canvas = document.getElementById('heat'), ratio = canvas.width / canvas.clientWidth; \
    const row = Math.round(biolat.row(index) * ratio); \
    const copy = new OffscreenCanvas(canvas.width, 1).getContext('2d', { willReadFrequently: true }); \
    copy.drawImage(canvas, 0, -row); \
    const { data } = copy.getImageData(0, 0, canvas.width, 1); \
    const palette = new Set(biolat.palette); \
    for (let at = 0; at < data.length; at += 4) if (palette.has(`rgb(${data[at]},${data[at + 1]},${data[at + 2]})`)) return true; \
    return false; }";

/// Waits until the page's heat map has exactly these counts.
fn wait_for_heat_map(browser: &mut Browser, what: &str, expected: &BTreeMap<String, u64>) {
    let mut state = Value::Null;
    let began = Instant::now();
    while state["cells"] != json!(expected) {
        assert!(
            began.elapsed() < Duration::from_secs(15),
            "{what}: the page shows {state:#}, not {expected:#?}"
        );
        thread::sleep(Duration::from_millis(50));
        state = browser.evaluate("biolat.state");
    }
    // The percentiles next to the heat map are computed from the same counts.
    let quantiles = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)].map(|(id, quantile)| {
        let index = quantile_of(expected, quantile);
        assert_near(&browser.text(&format!("#{id}")), index, what);
        index
    });
    // The fullest cell that no percentile line crosses is visible on the canvas. When latencies vary widely, a line is as wide as
    // several rows.
    let is_free = |index: &i32| quantiles.iter().all(|quantile| index.abs_diff(*quantile) > 4);
    let cells = expected.iter().map(|(index, count)| (index.parse::<i32>().unwrap(), count));
    if let Some((peak, _)) = cells.filter(|(index, _)| is_free(index)).max_by_key(|(_, count)| **count) {
        // It is drawn in the next frame.
        while browser.evaluate(&format!("({COLOUR})({peak})")) != true {
            assert!(began.elapsed() < Duration::from_secs(15), "{what}: bucket {peak} is not drawn");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Returns how many reads the audit found that the probe had missed: some kernels run no BPF programs for a few completions.
fn missed_reads(before: &Figures, after: &Figures, device: &str) -> u64 {
    after.missed_of(device, READ) - before.missed_of(device, READ)
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn heat_map_agrees_with_metrics() {
    let setup = PageSetup::new();
    let before = setup.daemon.fresh();
    let mut browser = setup.browser();
    // The page also works with credentials in the URL, as used with a proxy.
    browser.open(&setup.url().replace("//", "//user:password@"), &json!({}));
    browser.wait_for("window.biolat?.state.drawn > 1");
    assert_eq!(browser.evaluate("document.title"), "node1 · biolat");
    assert_eq!(browser.text("#host"), "node1");
    let (one, other) = (Target::open(&setup.one.path()), Target::open(&setup.other.path()));
    let began = Instant::now();
    one.read(700);
    let longest = began.elapsed().as_secs_f64();
    one.write(300);
    other.read(200);
    settled(&setup.daemon, &setup.one.name);
    settled(&setup.daemon, &setup.other.name);
    let after = setup.daemon.fresh();

    browser.select("#device", &setup.one.name);
    browser.click("#ops button[value='=read']");
    for (key, phase) in [("1", "queue"), ("2", "device"), ("3", "total")] {
        browser.press(key);
        browser.wait_for(&format!("biolat.state.latency === '{phase}'"));
        let expected = cells(&before, &after, phase, &setup.one.name, "read");
        let missed = missed_reads(&before, &after, &setup.one.name);
        assert!(total(&expected) + missed >= 700 && missed <= 7, "{missed} missed of {expected:?}");
        wait_for_heat_map(&mut browser, phase, &expected);
        assert!(browser.text("#title").starts_with(phase));
    }
    // The reads were sequential: half of the 700 took at most 1/350 of the total time.
    let reads = cells(&before, &after, "total", &setup.one.name, "read");
    let median = quantile_of(&reads, 0.5);
    assert!((index_of(1e-6)..=index_of(longest / 350.0)).contains(&median), "{median} of {longest} s");

    browser.press("o");
    wait_for_heat_map(&mut browser, "writes", &cells(&before, &after, "total", &setup.one.name, "write"));
    browser.click("#ops button[value='=read']");
    browser.select("#device", &setup.other.name);
    let reads = cells(&before, &after, "total", &setup.other.name, "read");
    let missed = missed_reads(&before, &after, &setup.other.name);
    assert!((200..700).contains(&(total(&reads) + missed)) && missed <= 4, "{missed} missed of {reads:?}");
    wait_for_heat_map(&mut browser, "the other device", &reads);
    browser.select("#device", "all");
    let mut both = cells(&before, &after, "total", &setup.one.name, "read");
    for (cell, count) in reads {
        *both.entry(cell).or_default() += count;
    }
    wait_for_heat_map(&mut browser, "both devices", &both);

    // The columns do not overlap, and contain every I/O.
    let state = browser.evaluate("biolat.state");
    let columns = state["columns"].as_array().unwrap();
    let sum: u64 = columns.iter().map(|column| column["count"].as_u64().unwrap()).sum();
    assert_eq!(sum, total(&both));
    assert!(columns.windows(2).all(|pair| pair[0]["to"].as_f64() <= pair[1]["from"].as_f64()));
    assert_cells_show_counts(&mut browser, &both);
    assert_table_is_sorted(&mut browser, &setup, &before, &after);
    assert_eq!(browser.faults(), [""; 0]);
}

/// A non-empty cell shows its count when selected by keyboard or mouse.
fn assert_cells_show_counts(browser: &mut Browser, counts: &BTreeMap<String, u64>) {
    browser.evaluate("document.getElementById('heat').focus()");
    browser.press("ArrowRight");
    let mut found = false;
    for _ in 0..200 {
        let reading = browser.text("#reading");
        let lines: Vec<_> = reading.lines().collect();
        assert!(lines.len() == 3 && lines[1].contains(" to "), "{reading}");
        found = lines[2].contains("I/O") && !lines[2].starts_with("no ") && !lines[2].starts_with('0');
        if found {
            break;
        }
        browser.press("ArrowLeft");
    }
    assert!(found, "no cell shows a count of {counts:?}");
    // Hovering over the same cell shows the same count.
    let reading = browser.text("#reading");
    let place = browser.evaluate(
        "(() => { const box = document.getElementById('cell').getBoundingClientRect(); \
         return [box.x + box.width / 2, box.y + box.height / 2]; })()",
    );
    browser.press("Escape");
    assert_eq!(browser.evaluate("document.getElementById('reading').hidden"), true);
    browser.press(" ");
    browser.hover(place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
    let pointed = browser.text("#reading");
    assert_eq!(reading.lines().nth(1), pointed.lines().nth(1));
    browser.press(" ");
}

/// The device with the highest p99 comes first; the values agree with the metrics.
fn assert_table_is_sorted(browser: &mut Browser, setup: &PageSetup, before: &Figures, after: &Figures) {
    let p99 = |device: &str| quantile_of(&cells(before, after, "total", device, "read"), 0.99);
    let mut expected = [(p99(&setup.one.name), &setup.one.name), (p99(&setup.other.name), &setup.other.name)];
    expected.sort_by(|(one, first), (other, second)| other.cmp(one).then(first.cmp(second)));
    for (row, (index, name)) in expected.into_iter().enumerate() {
        let row = format!("#devices tbody tr:nth-child({})", row + 1);
        assert_eq!(browser.text(&format!("{row} th")), *name);
        assert_near(&browser.text(&format!("{row} td[data-column=p99]")), index, name);
        browser.click(&row);
        browser.wait_for(&format!("biolat.state.device === '{name}'"));
    }
    for (key, device) in [("k", Some(expected[0].1)), ("ArrowDown", Some(expected[1].1)), ("j", None)] {
        browser.press(key);
        browser.wait_for(&format!("biolat.state.device === {}", json!(device)));
    }
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn page_reconnects_to_lost_daemon() {
    let setup = PageSetup::new();
    let mut browser = setup.browser();
    let address = setup.daemon.address;
    let target = Target::open(&setup.one.path());
    target.read(100);
    browser.wait_for("biolat.state.count >= 95 && biolat.state.connected");
    assert_eq!(browser.evaluate("document.getElementById('banner').hidden"), true);
    assert_eq!(browser.faults(), [""; 0]);

    drop(setup.daemon);
    browser.wait_for("!biolat.state.connected && !document.getElementById('banner').hidden");
    assert!(browser.text("#banner").contains("lost"));
    let age = |browser: &mut Browser| browser.evaluate("biolat.state.age").as_f64().unwrap();
    let first = age(&mut browser);
    thread::sleep(Duration::from_secs(2));
    assert!(age(&mut browser) - first > 1.5);
    wait_for("the age in the banner", || {
        let banner = browser.text("#banner");
        let seconds =
            banner.split("The data is ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        (seconds.unwrap() - age(&mut browser)).abs() < 1.0
    });

    let mut command = Command::new(program());
    command.args(["--interval", "200ms", "--device", &setup.one.name, "--listen", &address.to_string()]);
    let daemon = Daemon::start_command(&mut command);
    browser.wait_for(
        "biolat.state.connected && document.getElementById('banner').hidden && biolat.state.age < 2",
    );
    // The page adds only the new daemon's own counts: it does not subtract the old daemon's counters or count earlier I/O twice.
    let count = browser.evaluate("biolat.state.count").as_u64().unwrap();
    let own = settled(&daemon, &setup.one.name).figures.latencies("total", &setup.one.name, "read");
    assert!((95..100 + own + 20).contains(&count), "{count}, {own}");
    target.read(50);
    browser.wait_for(&format!("biolat.state.count >= {}", count + 45));
    let count = browser.evaluate("biolat.state.count").as_u64().unwrap();
    assert!(count < 100 + own + 100, "{count}");
    // The time without a daemon shows as a gap.
    let gaps = "biolat.state.columns.map((column, at, all) => (at ? column.from - all[at - 1].to : 0))";
    let gaps: Vec<f64> = serde_json::from_value(browser.evaluate(gaps)).unwrap();
    assert!(gaps.iter().any(|gap| *gap > 2.0), "{gaps:?}");
    // The console shows no errors other than failed requests, including some before the first collection.
    let faults = browser.faults();
    let is_expected = |fault: &String| ["ERR_", "status of 503"].iter().any(|text| fault.contains(text));
    assert!(!faults.is_empty() && faults.iter().all(is_expected), "{faults:?}");
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn page_fits_phone_and_has_two_themes() {
    let setup = PageSetup::new();
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        scope.spawn(|| {
            let target = Target::open(&setup.one.path());
            while !stop.is_set() {
                target.read(20);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let mut browser = Browser::start();
        let backgrounds = ["light", "dark"].map(|scheme| {
            browser.open(&setup.url(), &json!({"width": 390, "height": 844, "scheme": scheme}));
            browser.wait_for("window.biolat?.state.count > 50");
            assert_eq!(browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), true);
            let background = "getComputedStyle(document.body).backgroundColor";
            let automatic = browser.evaluate(background);
            browser.press("t");
            browser.press("t");
            assert_eq!(
                browser.evaluate(background),
                "rgb(14, 17, 22)",
                "expected automatic, light, dark in this order"
            );
            assert_eq!(browser.faults(), [""; 0]);
            automatic
        });
        assert_eq!(backgrounds, ["rgb(246, 247, 249)", "rgb(14, 17, 22)"]);

        // Every control has an accessible name, and the tab order is the reading order.
        let mut names = Vec::new();
        for _ in 0..30 {
            browser.press("Tab");
            let on = browser.evaluate(
                "(document.activeElement.ariaLabel ?? document.activeElement.labels?.[0]?.textContent ?? '') + document.activeElement.textContent",
            );
            assert_ne!(on, "");
            names.push(on.as_str().unwrap().to_owned());
            if names.last().unwrap().contains(&setup.one.name) && names.len() > 9 {
                break;
            }
        }
        let place = |name: &str| names.iter().position(|found| found.starts_with(name)).expect(name);
        let order =
            ["Pause", "Theme", "Help", "Device", "all", "read", "queue", "device", "total"].map(place);
        assert!(order.is_sorted(), "{names:?}");

        browser.evaluate("document.activeElement.blur()");
        // A paused page does not change; it catches up when resumed.
        browser.press(" ");
        browser.wait_for("biolat.state.paused");
        let [paused, later] = [0, 1].map(|_| {
            thread::sleep(Duration::from_secs(1));
            browser.evaluate("[biolat.state.count, biolat.state.columns]")
        });
        assert_eq!(paused, later);
        browser.press(" ");
        browser.wait_for(&format!("biolat.state.count > {}", paused[0]));
        browser.press("?");
        assert_eq!(browser.evaluate("document.getElementById('about').open"), true);
        browser.press("Escape");
        assert_eq!(browser.evaluate("document.getElementById('about').open"), false);
    });
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn shows_table_without_scripts() {
    let setup = PageSetup::new();
    Target::open(&setup.one.path()).read(100);
    settled(&setup.daemon, &setup.one.name);
    let mut browser = Browser::start();
    browser.open(&setup.url(), &json!({"script": false, "width": 390}));
    let text = browser.text("#plain table");
    assert!(text.contains(&setup.one.name) && text.contains("read") && text.contains("p99"), "{text}");
    assert!(!browser.text("body").contains("Pause"));

    let daemon = Daemon::start(&["--no-ui", "--device", &setup.one.name]);
    let url = format!("http://{}/", daemon.address);
    let headers = browser.open(&url, &json!({}));
    assert!(browser.text("#plain").contains(&setup.one.name));
    assert_eq!(browser.evaluate("[window.biolat === undefined, document.scripts.length]"), json!([true, 0]));
    assert!(!headers["content-security-policy"].as_str().unwrap().contains("script-src"));
    assert_eq!(browser.faults(), [""; 0]);
    let page = String::from_utf8(http::get(daemon.address, "/", "").unwrap().body).unwrap();
    assert!(page.contains("/metrics") && page.contains("/api/v1/snapshot"), "{page}");
}

/// Moves the page to the background, or back.
fn hide(browser: &mut Browser, hidden: bool) {
    browser.evaluate(&format!(
        "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }}); \
         document.dispatchEvent(new Event('visibilitychange'))"
    ));
}

/// Opens event streams until the server rejects one.
fn streams(daemon: &Daemon) -> Vec<TcpStream> {
    let stream = || {
        let mut stream = TcpStream::connect(daemon.address).unwrap();
        stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        (&status == b"HTTP/1.1 200").then_some(stream)
    };
    std::iter::from_fn(stream).collect()
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn page_polls_without_stream() {
    let setup = PageSetup::new();
    let _streams = streams(&setup.daemon);
    let mut browser = setup.browser();
    // After several attempts to open a stream, the page still gets every 200 ms collection, and rarely merges two.
    thread::sleep(Duration::from_secs(6));
    let columns = browser.evaluate("biolat.state.columns.map(({ from, to }) => to - from)");
    let columns: Vec<f64> = serde_json::from_value(columns).unwrap();
    assert!(columns.len() > 10 && columns.iter().all(|seconds| *seconds < 1.0), "{columns:?}");
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn hidden_tab_keeps_no_connection() {
    let setup = PageSetup::new();
    let limit = streams(&setup.daemon).len();
    let mut browser = setup.browser();
    wait_for("the page to open its stream", || streams(&setup.daemon).len() == limit - 1);
    // From here on responses are slow, but the banner must never show.
    browser.evaluate(
        "window.banners = []; window.fetches = 0; window.fetchNow = window.fetch; \
         window.fetch = async (...of) => { fetches++; await new Promise((done) => setTimeout(done, 700)); return fetchNow(...of); }; \
         const banner = document.getElementById('banner'); \
         new MutationObserver(() => { if (!banner.hidden) banners.push(banner.textContent); }).observe(banner, { attributes: true })",
    );
    browser.wait_for("fetches > 2");
    hide(&mut browser, true);
    wait_for("the page to close its stream", || streams(&setup.daemon).len() == limit);
    thread::sleep(Duration::from_secs(2));
    let before = browser.evaluate("[fetches, biolat.state.count, biolat.state.deltas]");
    Target::open(&setup.one.path()).read(500);
    thread::sleep(Duration::from_secs(4));
    assert_eq!(browser.evaluate("[fetches, biolat.state.count, biolat.state.deltas]"), before);

    hide(&mut browser, false);
    browser.wait_for(&format!("biolat.state.count >= {}", before[1].as_u64().unwrap() + 490));
    wait_for("the page to open its stream again", || streams(&setup.daemon).len() == limit - 1);
    let longest = browser.evaluate("Math.max(...biolat.state.columns.map(({ from, to }) => to - from))");
    assert!(longest.as_f64().unwrap() > 3.0, "the hidden time is not a single column: {longest} s");
    assert_eq!(browser.evaluate("banners"), json!([]));

    // The banner also stays hidden if a hidden page's request fails, as happens while a laptop sleeps.
    hide(&mut browser, true);
    thread::sleep(Duration::from_secs(2));
    browser.evaluate(
        "window.fetch = () => new Promise((_, fail) => setTimeout(fail, 1500, new TypeError('asleep'))); \
         dispatchEvent(new Event('online'))",
    );
    hide(&mut browser, false);
    browser.evaluate("window.fetch = fetchNow; 0");
    thread::sleep(Duration::from_secs(2));
    browser.wait_for("biolat.state.connected && biolat.state.age < 1");
    assert_eq!(browser.evaluate("banners"), json!([]));
    assert_eq!(browser.faults(), [""; 0]);
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn page_keeps_growth_of_each_collection() {
    let mut browser = Browser::start();
    browser.open("about:blank", &json!({}));
    let script = concat!(
        include_str!("../../src/http/page/figures.js"),
        include_str!("../../src/http/page/history.js")
    );
    // A device's first collection contains all of its I/Os so far, more than 2^32; three more I/Os follow.
    let found = browser.evaluate(&format!(
        "(() => {{ {script}
        const histogram = (count) => ({{ count, seconds: 1, zero: 0, overflow: 0, buckets: [[-80, count]] }});
        const device = (name, count, unseen) => ({{ name, since: 1, unseen: {{ read: unseen }}, completions: [],
            ops: [{{ op: 'read', bytes: 0, errors: {{}}, latency: {{ admission: histogram(0), queue: histogram(count), device: histogram(count), total: histogram(count) }} }}] }});
        const rest = {{ daemon: {{ collections: EMPTY }}, probe: null, process: null }};
        const snapshot = (taken, devices) => ({{ started: 1, taken, interval: 1, lost: {{}}, ...rest, devices }});
        const life = 2 ** 32 + 5;
        const snapshots = [snapshot(2, []), snapshot(3, [device('a', life, 0)]), snapshot(4, [device('a', life + 3, 0), device('b', 0, 0)]),
            snapshot(5, [device('a', life + 3, 0), device('b', 0, 2)])];
        const history = new History();
        for (const each of snapshots) history.add(each);
        return history.deltas.map((delta) => [new Sum().addDelta(delta, 'a', null).all[TOTAL] - (delta.from < 3 ? life : 0), [...delta.devices.keys()]]);
        }})()"
    ));
    // Idle devices are not kept.
    assert_eq!(found, json!([[0, ["a"]], [3, ["a"]], [0, ["b"]]]));
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn describes_hung_drive() {
    let mut browser = Browser::start();
    browser.open("about:blank", &json!({}));
    let script = concat!(
        include_str!("../../src/http/page/figures.js"),
        include_str!("../../src/http/page/history.js"),
        include_str!("../../src/http/page/inflight.js")
    );
    // One collection per second up to time 100; the drive completes 5 I/Os in the collection that ends at `last`.
    let found = browser.evaluate(&format!(
        "(() => {{ {script}
        const total = opBetween(null, {{ bytes: 0, errors: {{}},
            latency: {{ admission: EMPTY, queue: EMPTY, device: EMPTY, total: {{ ...EMPTY, buckets: [[-80, 5]] }} }} }});
        const delta = (to, last) => ({{ from: to - 1, to, devices: new Map(to === last ? [['sda', {{ ops: new Map([['read', total]]) }}]] : []) }});
        const words = (count, oldest_seconds, exact, deltas, last) => {{
            const device = {{ name: 'sda', phases: ['total'], inflight: {{ read: count, write: 0, oldest_seconds, exact }} }};
            const list = [...Array(deltas).keys()].map((back) => delta(100 - back, last)).reverse();
            return [isHung(device), oldest(device), overdue(device, list, 100)];
        }};
        return [words(12, 16, true, 60, 70), words(12, 16, false, 60, 70), words(3, 31, true, 60, 95), words(1, 31, true, 20, 0), words(0, 0.004, true, 60, 0)];
        }})()"
    ));
    let expected = json!([
        [true, "16 s", "sda: 12 I/Os in flight, none completed for 16 s"],
        [true, "≥ 16 s", "sda: 12 I/Os in flight, none completed for at least 16 s"],
        [true, "31 s", "sda: 3 I/Os in flight, the oldest for 31 s, while others complete"],
        [true, "31 s", "sda: 1 I/O in flight, the oldest for 31 s"],
        [false, "4.00 ms", "sda: I/O in the scheduler, none completed for 0.0 s"],
    ]);
    assert_eq!(found, expected);
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn page_lists_slow_ios() {
    let setup = PageSetup::new();
    let mut browser = setup.browser();
    assert_eq!(browser.evaluate("document.getElementById('slow-list').hidden"), true);
    let io = |number: u32, status: &str, admission: Value, workload: Value, names: Value| {
        let mut io = json!({"number": number, "completed": 1.7e9, "device": setup.one.name, "op": "write", "sector": 2048, "bytes": 65536,
               "status": status, "latency": {"admission": admission, "queue": 0.5, "device": 1.0, "total": 1.5}, "cpu": 3, "workload": workload});
        io.as_object_mut().unwrap().extend(names.as_object().unwrap().clone());
        io
    };
    let named = json!({
        "class": "file", "file": {"path": "/<b>/2619", "mount": "/srv/", "file_system": "ext4", "inode": 12, "removed": true},
        "process": {"id": 4711, "command": "<i>a", "known_by": "waiter"},
    });
    let ios = [
        io(1, "ok", json!(0.25), json!("/system.slice/<b>a<b>.service"), named),
        io(
            2,
            "timeout",
            Value::Null,
            Value::Null,
            json!({"class": "journal", "process_unknown": "no process waits for it"}),
        ),
    ];
    let list = json!({"version": 1, "dropped": 2, "ios": ios});
    browser.evaluate(&format!(
        "window.fetchNow = window.fetch; window.fetch = (url, options) => String(url).endsWith('/slow') ? \
         Promise.resolve(new Response(JSON.stringify({list}))) : fetchNow(url, options); \
         document.getElementById('slow-at').scrollIntoView()"
    ));
    browser.wait_for("document.getElementById('slow').rows.length === 3");
    assert!(browser.text("#slow-of").ends_with("newest first, 2 more not recorded"));
    let cells = "[...document.getElementById('slow').rows].slice(1).map((row) => [...row.cells].slice(1).map((cell) => cell.innerText))";
    let of = |[workload, process, file]: [&str; 3], status: &str, admission: &str| {
        json!([
            setup.one.name,
            "write",
            workload,
            process,
            file,
            status,
            "1.50 s",
            admission,
            "500 ms",
            "1.00 s",
            "64 KiB",
            "2048",
            "3"
        ])
    };
    assert_eq!(
        browser.evaluate(cells),
        json!([
            of(["–", "–", "journal"], "timeout", "–"),
            of(["<b>a<b>.service", "<i>a[4711]", "/srv/<b>/2619 (deleted)"], "ok", "250 ms")
        ])
    );
    let titles = "[...document.getElementById('slow').rows].slice(1).map((row) => [...row.cells].slice(3, 6).map(({ title }) => title))";
    assert_eq!(
        browser.evaluate(titles),
        json!([
            ["", "no process waits for it", ""],
            ["/system.slice/<b>a<b>.service", "waiter", "/srv/<b>/2619 (deleted)"]
        ])
    );
    browser.select("#device", &setup.other.name);
    browser.wait_for("document.getElementById('slow').hidden");
    assert!(browser.text("#slow-of").ends_with("none, 2 more not recorded"));
    assert_eq!(browser.faults(), [""; 0]);
}

/// JavaScript: the cell texts of each visible row in the table of sizes.
const SIZES: &str = "[...document.getElementById('sizes').tBodies[0].rows].filter((row) => !row.hidden) \
    .map((row) => [...row.cells].slice(0, 5).map((cell) => cell.innerText.replaceAll('\u{a0}', ' ')))";

/// Asserts that a text is the middle of a half-octave bucket, to three digits.
fn assert_coarse(text: &str, index: i32, what: &str) {
    let (value, unit) = text.split_once(' ').unwrap_or_else(|| panic!("{what}: {text}"));
    let scale = if unit == "µs" { 1e-6 } else { 1e-3 };
    let middle = 2f64.powf((f64::from(index) - 0.5) / 2.0);
    let seconds = value.parse::<f64>().unwrap() * scale;
    assert!((seconds / middle - 1.0).abs() < 0.006, "{what}: {text}, not {middle} s");
}

/// Returns a device's completions by CPU since its counters were zero.
fn completions(daemon: &Daemon, device: &str) -> Vec<u64> {
    let mut devices = snapshot(daemon).devices.into_iter();
    devices.find(|found| found.device.name == device).unwrap().spread.completions
}

fn snapshot(daemon: &Daemon) -> Snapshot {
    let answer = http::get(daemon.address, "/api/v1/snapshot", "").unwrap();
    serde_json::from_slice(&answer.body).unwrap()
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn page_sizes_and_cpus_agree_with_metrics() {
    let setup = PageSetup::new();
    let device = setup.one.name.as_str();
    let mut browser = setup.browser();
    let (before, completed) = (setup.daemon.fresh(), completions(&setup.daemon, device));
    let target = Target::open(&setup.one.path());
    target.read(300);
    for place in 0..40 {
        target.write_at(place << 20, 64 << 10);
        target.write_at(place << 20, 4 << 10);
    }
    settled(&setup.daemon, device);
    let (after, now) = (setup.daemon.fresh(), completions(&setup.daemon, device));
    browser.select("#device", device);

    for op in ["read", "write"] {
        browser.click(&format!("#ops button[value='={op}']"));
        let then: BTreeMap<_, _> = before.bands(device, op).into_iter().collect();
        let bands: Vec<_> = after
            .bands(device, op)
            .into_iter()
            .map(|(band, now)| (band, now, grown(then.get(band).copied(), now)))
            .map(|(band, now, mut buckets)| {
                let had = then.get(band);
                let zero = now.zero_count - had.map_or(0, |had| had.zero_count);
                assert_eq!(zero, 0, "no loop device is that fast");
                let seconds = now.sample_sum - had.map_or(0.0, |had| had.sample_sum);
                buckets.retain(|(_, count)| *count > 0);
                (band, seconds, buckets)
            })
            .filter(|(.., buckets)| !buckets.is_empty())
            .collect();
        let expected: Vec<_> = bands
            .iter()
            .map(|(band, _, buckets)| {
                let count: u64 = buckets.iter().map(|(_, count)| count).sum();
                let range = match *band {
                    "le_4KiB" => "up to 4 KiB",
                    "le_64KiB" => "16 to 64 KiB",
                    other => panic!("{op}s in band {other}"),
                };
                (range.to_owned(), count)
            })
            .collect();
        let mut rows: Vec<[String; 5]> = Vec::new();
        wait_for("the sizes of the load", || {
            rows = serde_json::from_value(browser.evaluate(SIZES)).unwrap();
            let shown = rows.iter().map(|[range, count, ..]| (range.clone(), count.parse().unwrap_or(0)));
            shown.eq(expected.iter().cloned())
        });
        assert!(browser.text("#sizes-of").contains(&format!("{device}, {op}")));
        for ([range, _, mean, p50, p99], (_, seconds, buckets)) in rows.iter().zip(&bands) {
            assert_coarse(p50, quantile_index(buckets, 0.5), range);
            assert_coarse(p99, quantile_index(buckets, 0.99), range);
            let count: u64 = buckets.iter().map(|(_, count)| count).sum();
            let (value, unit) = mean.split_once(' ').unwrap();
            let shown = value.parse::<f64>().unwrap() * if unit == "µs" { 1e-6 } else { 1e-3 };
            assert!((shown / (seconds / count as f64) - 1.0).abs() < 0.006, "{range}: {mean}");
        }
        let text = "document.querySelector('#sizes tbody tr:not([hidden]) canvas').ariaLabel";
        let text = browser.evaluate(text);
        assert!(text.as_str().unwrap().starts_with("latencies of up to 4 KiB: "), "{text}");
    }

    // The CPU shares cover all ops.
    let grown: Vec<_> = now
        .iter()
        .enumerate()
        .map(|(cpu, count)| (count - completed.get(cpu).unwrap_or(&0)) as f64)
        .collect();
    let all: f64 = grown.iter().sum();
    let effective = 1.0 / grown.iter().map(|count| (count / all) * (count / all)).sum::<f64>();
    let sentence = browser.text("#cpus p").replace('\u{a0}', " ");
    let expected = format!("The effective number of CPUs is {effective:.1} of {}; CPU ", grown.len());
    assert!(sentence.starts_with(&expected), "{sentence}: {grown:?}");
    let titles = browser.evaluate("[...document.querySelectorAll('#cpus span')].map(({ title }) => title)");
    let titles: Vec<String> = serde_json::from_value(titles).unwrap();
    assert_eq!(titles.len(), grown.len());
    for (cpu, (title, count)) in titles.iter().zip(&grown).enumerate() {
        let share = title.strip_prefix(&format!("CPU {cpu}: ")).and_then(|rest| rest.strip_suffix(" %"));
        let share: f64 = share.unwrap_or_else(|| panic!("{title}")).parse().unwrap();
        assert!((share - 100.0 * count / all).abs() <= 0.5, "{title}: {grown:?}");
    }
    browser.select("#device", &setup.other.name);
    browser.wait_for("document.querySelector('#cpus p').textContent === 'No I/O in this time.'");
    assert_eq!(browser.text("#sizes-note"), "No I/O in this time.");
    assert_eq!(browser.faults(), [""; 0]);
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn page_reports_disabled_sizes() {
    let device = LoopDevice::attach("page-sizes", true);
    let daemon = Daemon::start(&["--interval", "200ms", "--device", &device.name, "--sizes", "off"]);
    let target = Target::open(&device.path());
    target.read(10);
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/", daemon.address), &json!({}));
    browser.wait_for("window.biolat?.state.drawn > 1");
    target.read(100);
    browser.wait_for("biolat.state.count >= 95");
    assert_eq!(browser.text("#sizes-note"), "Sizes are not counted: biolat runs with --sizes off.");
    assert_eq!(browser.evaluate("document.getElementById('sizes').hidden"), true);
    assert!(browser.text("#cpus").starts_with("The effective number of CPUs is "));
    assert_eq!(browser.faults(), [""; 0]);
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn page_computes_bands_and_cpus() {
    let mut browser = Browser::start();
    browser.open("about:blank", &json!({}));
    let script = concat!(
        include_str!("../../src/http/page/figures.js"),
        include_str!("../../src/http/page/history.js"),
        include_str!("../../src/http/page/heatmap.js"),
        include_str!("../../src/http/page/sizes.js"),
        include_str!("../../src/http/page/cpus.js")
    );
    let found = browser.evaluate(&format!(
        "(() => {{ {script}
        const band = (size, seconds, zero, buckets, overflow) => ({{ size, device: {{ count: 0, seconds, zero, buckets, overflow }} }});
        const snapshot = (taken, bands, completions) => ({{ started: 1, taken, interval: 1, lost: {{}},
            daemon: {{ collections: EMPTY }}, probe: null, process: null,
            devices: [{{ name: 'a', since: 1, unseen: {{}}, completions, ops: [{{ op: 'read', bytes: taken, errors: {{}},
                latency: {{ admission: EMPTY, queue: EMPTY, device: EMPTY, total: EMPTY }}, sizes: {{ requests: {{}}, bands }} }}] }}] }});
        const history = new History();
        history.add(snapshot(2, [band('le_4KiB', 1, 1, [[-20, 7]], 0)], [5, 5]));
        history.add(snapshot(3, [band('le_4KiB', 2, 1, [[-20, 9]], 0), band('gt_1MiB', 3, 0, [[0, 1]], 1)], [8, 5, 1]));
        history.add(snapshot(4, [band('le_4KiB', 3, 2, [[-20, 9]], 0), band('gt_1MiB', 3, 0, [[0, 1]], 1)], [8, 5, 1]));
        const bands = sumBands(history.deltas, 'a', 'read').filter(({{ all }}) => all > 0);
        const cpus = sumCpus(history.deltas, null, 3);
        return [bands.map(({{ range, counts, all, seconds }}) => [range, all, seconds, ...[0.1, 0.5, 1].flatMap((q) => percentile(quantile(counts, all, q), WIDE))]),
            [...cpus], effectiveCpus(cpus.map((count) => count / 4)), sumBands(history.deltas, 'a', 'write').every(({{ all }}) => all === 0)];
        }})()"
    ));
    let small = ["≤ 0.95 µs", "at most 0.95 µs", "821 µs", "691 µs to 977 µs", "821 µs", "691 µs to 977 µs"];
    let large = ["841 ms", "707 ms to 1.00 s", "841 ms", "707 ms to 1.00 s", "> 17.1 min", "above 17.1 min"];
    let row = |range: &str, all: u32, seconds: u32, texts: [&str; 6]| {
        let mut row = vec![json!(range), json!(all), json!(seconds)];
        row.extend(texts.map(Value::from));
        row
    };
    let rows = [row("up to 4 KiB", 3, 2, small), row("above 1 MiB", 2, 3, large)];
    assert_eq!(found, json!([rows, [3, 0, 1], 1.6, true]));
}

/// A cgroup in the hierarchy that charges I/O, removed on drop.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> Self {
        let version_1 = Path::new("/sys/fs/cgroup/blkio");
        let root = if version_1.is_dir() { version_1 } else { Path::new("/sys/fs/cgroup") };
        let path = root.join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn name(&self) -> &str {
        self.0.file_name().unwrap().to_str().unwrap()
    }

    /// Reads this many blocks one after another, from a process in the cgroup.
    fn read(&self, device: &Path, blocks: u64) {
        let script = format!(
            "echo $$ >\"$0/cgroup.procs\" && exec dd if=\"$1\" of=/dev/null bs=4k count={blocks} iflag=direct"
        );
        run("sh", &["-c", &script, self.0.to_str().unwrap(), device.to_str().unwrap()]);
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The process that has just ended is still in it for a moment.
        let began = Instant::now();
        while fs::remove_dir(&self.0).is_err() && began.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Returns a workload's latencies on a device from the API, by page cell.
fn workload_of(daemon: &Daemon, cgroup: &str, device: &str) -> BTreeMap<String, u64> {
    let mut cells = BTreeMap::new();
    let workloads = snapshot(daemon).workloads.expect("the kernel charges I/O to cgroups");
    let usage = workloads.iter().filter(|workload| workload.cgroup == cgroup).flat_map(|found| &found.usage);
    for usage in usage.filter(|usage| usage.device == device) {
        let total = serde_json::to_value(&usage.latency).unwrap();
        if let Some(zero @ 1..) = total["zero"].as_u64() {
            *cells.entry(ZERO.to_string()).or_default() += zero;
        }
        let buckets: Vec<(i32, u64)> = serde_json::from_value(total["buckets"].clone()).unwrap();
        for (index, count) in buckets {
            *cells.entry((index * 4).to_string()).or_default() += count;
        }
    }
    cells
}

/// JavaScript: the texts of the rows in the table of workloads, and their cgroups.
const WHO: &str = "[...document.getElementById('who').tBodies[0].rows] \
    .map((row) => [row.querySelector('button'), ...[...row.cells].slice(1)].map((each) => each.innerText.trim()).concat(row.querySelector('button').title))";

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn page_shows_workloads_and_their_heat_maps() {
    const READS: u64 = 2000;
    let setup = PageSetup::new();
    let device = setup.one.name.as_str();
    let mut browser = setup.browser();
    browser.press("+");
    browser.press("+");
    browser.select("#device", device);
    // The name would become an HTML element if the page did not escape it.
    let cgroup = Cgroup::new("biolat-page-<b>reader<b>");
    let path = format!("/{}", cgroup.name());
    cgroup.read(&setup.one.path(), READS);
    Target::open(&setup.other.path()).read(100);
    settled(&setup.daemon, device);
    let expected = workload_of(&setup.daemon, &path, device);
    let ios = total(&expected);
    assert!((READS - READS / 100..=READS).contains(&ios), "{expected:?}");

    // While paused, the page shows a fixed moment: the rate is `dd`'s reads divided by the time that all columns cover.
    let is_counted = format!(
        "[...document.querySelectorAll('#who button')].some(({{ title }}) => title.startsWith('{path} '))"
    );
    browser.wait_for(&is_counted);
    browser.press(" ");
    browser.wait_for("biolat.state.paused && !biolat.state.loading");
    let rows: Vec<[String; 7]> = serde_json::from_value(browser.evaluate(WHO)).unwrap();
    let [name, share, ios_per_second, .., p99, title] = &rows[0];
    assert!(name.ends_with(cgroup.name()) && title.starts_with(&format!("{path} (")), "{rows:?}");
    let columns = browser.evaluate("biolat.state.columns.map(({ from, to }) => to - from)");
    let seconds: f64 = serde_json::from_value::<Vec<f64>>(columns).unwrap().iter().sum();
    let rate = ios as f64 / seconds;
    assert!(
        (ios_per_second.parse::<f64>().unwrap() - rate).abs() < 0.51,
        "{rows:?}: not {rate} I/Os per second"
    );
    assert_wide(p99, quantile_of(&expected, 0.99), title);
    assert_eq!(browser.evaluate("document.querySelectorAll('#who b b, #who th b').length"), 0);
    // Other workloads did at most a few reads, from a program that looks for partitions.
    let share: f64 = share.trim_end_matches(" %").parse().unwrap();
    let shares: f64 = rows.iter().map(|row| row[1].trim_end_matches(" %").parse::<f64>().unwrap()).sum();
    assert!(share > 80.0 && (shares - 100.0).abs() < 2.0, "{rows:?}");

    // A click shows a heat map of exactly the workload's reads; a second click shows all workloads again.
    browser.click("#who tbody tr");
    browser.wait_for(&format!("biolat.state.workload === '{path}'"));
    assert_heat_map_shows_workload(&mut browser, &expected);
    assert!(browser.text("#title").starts_with(&format!("total latency of {name}, {device}")));
    browser.evaluate("document.querySelector('#who tbody tr button').focus()");
    browser.press("Enter");
    browser.wait_for(&format!("biolat.state.workload === null && biolat.state.count >= {ios}"));
    assert!(browser.text("#title").starts_with(&format!("total latency of {device}")));
    browser.press("Enter");
    browser.wait_for(&format!("biolat.state.workload === '{path}'"));
    let link = browser.evaluate("location.href");

    // The workload did no I/O on the other device.
    browser.select("#device", &setup.other.name);
    browser.wait_for("biolat.state.count === 0 && biolat.state.drawn > 1");
    assert_eq!(browser.text("#nothing"), "No I/O in this time.");
    // The space bar would press a focused button.
    browser.evaluate("document.activeElement.blur()");
    browser.press(" ");
    browser.wait_for("!biolat.state.paused");
    browser.select("#device", device);
    drop(cgroup);
    browser.wait_for("document.querySelector('#who tbody th small').textContent === 'gone'");
    assert_heat_map_shows_workload(&mut browser, &expected);
    assert_eq!(browser.faults(), [""; 0]);

    browser.open(link.as_str().unwrap(), &json!({"width": 390}));
    browser.wait_for(&format!("window.biolat?.state.workload === '{path}' && biolat.state.drawn > 1"));
    assert_eq!(browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), true);
    browser.click("#everyone");
    browser.wait_for("biolat.state.workload === null");
    assert_eq!(browser.faults(), [""; 0]);
}

/// Asserts that the heat map has these counts, in wide buckets, and draws the fullest one.
fn assert_heat_map_shows_workload(browser: &mut Browser, expected: &BTreeMap<String, u64>) {
    wait_for("the counts of the workload", || browser.evaluate("biolat.state.cells") == json!(expected));
    let (peak, _) = expected.iter().max_by_key(|(_, count)| **count).unwrap();
    assert_eq!(browser.evaluate(&format!("({COLOUR})({peak})")), true, "bucket {peak} is not drawn");
    assert_wide(&browser.text("#p50"), quantile_of(expected, 0.5), "p50");
}

/// Asserts that a text is the middle of the wide bucket that ends with this cell.
fn assert_wide(text: &str, cell: i32, what: &str) {
    if cell == ZERO {
        return assert_eq!(text, "≤ 0.95 µs", "{what}");
    }
    assert_coarse(text, cell / 4, what);
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn page_reports_disabled_workloads() {
    let device = LoopDevice::attach("page-workloads", true);
    let daemon = Daemon::start(&["--interval", "200ms", "--device", &device.name, "--workloads", "off"]);
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/#workload=%2Fa", daemon.address), &json!({}));
    browser.wait_for("window.biolat?.state.drawn > 1");
    Target::open(&device.path()).read(100);
    browser.wait_for("biolat.state.count >= 95");
    let note =
        "Counting by workload is off (--workloads), or this kernel does not record the cgroup of an I/O.";
    assert_eq!(browser.text("#who-note"), note);
    assert_eq!(browser.evaluate("document.getElementById('who').hidden"), true);
    assert_eq!(browser.faults(), [""; 0]);
}

#[test]
#[ignore = "needs chromium and Playwright: cargo xtask test"]
fn page_computes_workloads() {
    let mut browser = Browser::start();
    browser.open("about:blank", &json!({}));
    let script = concat!(
        include_str!("../../src/http/page/figures.js"),
        include_str!("../../src/http/page/history.js"),
        include_str!("../../src/http/page/workloads.js")
    );
    let found = browser.evaluate(&format!(
        "(() => {{ {script}
        const use = (device, count) => ({{ device, op: 'read', bytes: count * 512, errors: 0, queue_seconds: count, device_seconds: 2 * count,
            total: {{ count, seconds: 3 * count, zero: 0, overflow: 0, buckets: [[-20, count]] }} }});
        const workload = (cgroup, since, ...usage) => ({{ cgroup, name: cgroup.slice(1), kind: 'service', gone: false, since, usage }});
        const snapshot = (taken, since, ...workloads) => ({{ started: 1, taken, interval: 1, lost: {{}}, workloads,
            daemon: {{ collections: EMPTY }}, probe: null, process: null,
            devices: ['a', 'b'].map((name) => ({{ name, since, unseen: {{}}, completions: [], ops: [] }})) }});
        const history = new History();
        // A rename, a new workload and an ended one; in the last snapshot the devices are new.
        history.add(snapshot(2, 1, workload('/one', 1, use('a', 100)), workload('/old', 0.5, use('a', 5000))));
        history.add(snapshot(3, 1, workload('/one', 1, use('a', 107), use('b', 2)), workload('/renamed', 0.5, use('a', 5001))));
        history.add(snapshot(4, 1, workload('/one', 1, use('a', 107), use('b', 2)), workload('/renamed', 0.5, use('a', 5002)), workload('/new', 3, use('a', 9))));
        history.add(snapshot(5, 4, workload('/one', 1, use('a', 4)), workload('/new', 3, use('a', 1))));
        const {{ deltas, latest }} = history, figures = new Sum();
        for (const delta of deltas) figures.addDelta(delta, 'a', 'read', '/one');
        const names = ['/one', '/renamed', '/', 'other', '/a/b.slice/'].map((cgroup) => findWorkload(cgroup, {{ deltas, snapshot: latest }}));
        return [deltas.map(({{ workloads }}) => [...workloads.keys()]), deviceTimes(deltas, 'a', null), deviceTimes(deltas, null, 'write'),
            [figures.all[TOTAL], figures.bytes, figures.queueShare, ...percentile(figures.quantile(TOTAL, 0.5), WIDE)],
            names.map((who) => `${{workloadName(who)}} ${{who.gone ?? 'unknown'}}`),
            deltas[0].workloads.get('/one').who === deltas[2].workloads.get('/one').who];
        }})()"
    ));
    let expected = json!([
        [["/one"], ["/renamed", "/new"], ["/one", "/new"]],
        [["/one", 22], ["/new", 20], ["/renamed", 2]],
        [],
        [11, 5632, 1.0 / 3.0, "821 µs", "691 µs to 977 µs"],
        ["one false", "renamed true", "root cgroup unknown", "all others unknown", "b.slice unknown"],
        true
    ]);
    assert_eq!(found, expected);
}
