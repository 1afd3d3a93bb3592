//! The live page in a real browser, of a real daemon and devices under load: what it shows is what `/metrics` says.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    browser::Browser,
    daemon::{Daemon, program, wait_for},
    figures::{Figures, grown, index_of, quantile_index},
    http,
    load::{StopFlag, Target},
    loop_device::LoopDevice,
    settled::settled,
};

/// The zero bucket, as the page names it.
const ZERO: i32 = -160;

/// Two devices and a daemon that shows them alone.
struct Scene {
    one: LoopDevice,
    other: LoopDevice,
    daemon: Daemon,
}

impl Scene {
    fn new() -> Self {
        let (one, other) = (LoopDevice::attach("page-one", true), LoopDevice::attach("page-other", true));
        let daemon = Daemon::of(&format!("{}|{}", one.name, other.name));
        settled(&daemon, &one.name);
        settled(&daemon, &other.name);
        Self { one, other, daemon }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.daemon.address)
    }

    /// A browser that shows the page, as it was before anything happened.
    fn browser(&self) -> Browser {
        let mut browser = Browser::start();
        browser.open(&self.url(), &json!({}));
        browser.wait_for("window.biolat?.state.drawn > 1");
        browser
    }
}

/// What came between two scrapes, as the page names it.
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

/// The bucket that holds a quantile of these cells.
fn quantile_of(cells: &BTreeMap<String, u64>, quantile: f64) -> i32 {
    let mut cells: Vec<_> = cells.iter().map(|(index, count)| (index.parse().unwrap(), *count)).collect();
    cells.sort_unstable();
    quantile_index(&cells, quantile)
}

/// Whether a text is the middle of a bucket, to three digits.
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

/// Whether there is a colour of the palette anywhere in the row of a bucket.
const COLOUR: &str = "(index) => { \
    const canvas = document.getElementById('heat'), ratio = canvas.width / canvas.clientWidth; \
    const row = Math.round(biolat.row(index) * ratio); \
    const copy = new OffscreenCanvas(canvas.width, 1).getContext('2d', { willReadFrequently: true }); \
    copy.drawImage(canvas, 0, -row); \
    const { data } = copy.getImageData(0, 0, canvas.width, 1); \
    const palette = new Set(biolat.palette); \
    for (let at = 0; at < data.length; at += 4) if (palette.has(`rgb(${data[at]},${data[at + 1]},${data[at + 2]})`)) return true; \
    return false; }";

/// Waits until the page's map has exactly these counts.
fn shows(browser: &mut Browser, what: &str, expected: &BTreeMap<String, u64>) {
    let mut state = Value::Null;
    let began = Instant::now();
    while state["cells"] != json!(expected) {
        assert!(began.elapsed() < Duration::from_secs(15), "{what}: {state:#} is not {expected:#?}");
        thread::sleep(Duration::from_millis(50));
        state = browser.evaluate("biolat.state");
    }
    // The figures beside it are of the same.
    let quantiles = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)].map(|(id, quantile)| {
        let index = quantile_of(expected, quantile);
        assert_near(&browser.text(&format!("#{id}")), index, what);
        index
    });
    // And the fullest cell of those that no percentile's line runs through is to be seen on the canvas.
    let is_free = |index: &i32| quantiles.iter().all(|quantile| index.abs_diff(*quantile) > 1);
    let cells = expected.iter().map(|(index, count)| (index.parse::<i32>().unwrap(), count));
    if let Some((peak, _)) = cells.filter(|(index, _)| is_free(index)).max_by_key(|(_, count)| **count) {
        assert_eq!(browser.evaluate(&format!("({COLOUR})({peak})")), true, "{what}: {peak} is not drawn");
    }
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn the_map_is_what_the_metrics_say() {
    let scene = Scene::new();
    let before = scene.daemon.fresh();
    let mut browser = scene.browser();
    // With a password in the address, as one to a proxy may be given, it is the same page.
    browser.open(&scene.url().replace("//", "//user:password@"), &json!({}));
    browser.wait_for("window.biolat?.state.drawn > 1");
    let (one, other) = (Target::open(&scene.one.path()), Target::open(&scene.other.path()));
    let began = Instant::now();
    one.read(700);
    let longest = began.elapsed().as_secs_f64();
    one.write(300);
    other.read(200);
    settled(&scene.daemon, &scene.one.name);
    settled(&scene.daemon, &scene.other.name);
    let after = scene.daemon.fresh();

    browser.select("#device", &scene.one.name);
    browser.click("#ops button[value='=read']");
    for (key, phase) in [("1", "queue"), ("2", "device"), ("3", "total")] {
        browser.press(key);
        browser.wait_for(&format!("biolat.state.latency === '{phase}'"));
        let expected = cells(&before, &after, phase, &scene.one.name, "read");
        assert!(total(&expected) >= 700, "{expected:?}");
        shows(&mut browser, phase, &expected);
        assert!(browser.text("#title").starts_with(phase));
    }
    // One after another: half of them took no longer than the 350th part of all.
    let reads = cells(&before, &after, "total", &scene.one.name, "read");
    let median = quantile_of(&reads, 0.5);
    assert!((index_of(1e-6)..=index_of(longest / 350.0)).contains(&median), "{median} of {longest} s");

    browser.press("o");
    shows(&mut browser, "writes", &cells(&before, &after, "total", &scene.one.name, "write"));
    browser.click("#ops button[value='=read']");
    browser.select("#device", &scene.other.name);
    let reads = cells(&before, &after, "total", &scene.other.name, "read");
    assert!((200..700).contains(&total(&reads)), "{reads:?}");
    shows(&mut browser, "the other device", &reads);
    browser.select("#device", "all");
    let mut both = cells(&before, &after, "total", &scene.one.name, "read");
    for (cell, count) in reads {
        *both.entry(cell).or_default() += count;
    }
    shows(&mut browser, "both devices", &both);

    // Columns side by side hold all of it, and none of it twice.
    let state = browser.evaluate("biolat.state");
    let columns = state["columns"].as_array().unwrap();
    let sum: u64 = columns.iter().map(|column| column["count"].as_u64().unwrap()).sum();
    assert_eq!(sum, total(&both));
    assert!(columns.windows(2).all(|pair| pair[0]["to"].as_f64() <= pair[1]["from"].as_f64()));
    the_map_can_be_read(&mut browser, &both);
    the_table_is_sorted(&mut browser, &scene, &before, &after);
    assert_eq!(browser.faults(), [""; 0]);
}

/// By mouse and by keyboard: a cell that is not empty says how many there are.
fn the_map_can_be_read(browser: &mut Browser, counts: &BTreeMap<String, u64>) {
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
    assert!(found, "no cell of {counts:?} was read");
    // The mouse in the same cell says the same.
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

/// Worst first; its figures are those of the metrics.
fn the_table_is_sorted(browser: &mut Browser, scene: &Scene, before: &Figures, after: &Figures) {
    let p99 = |device: &str| quantile_of(&cells(before, after, "total", device, "read"), 0.99);
    let mut expected = [(p99(&scene.one.name), &scene.one.name), (p99(&scene.other.name), &scene.other.name)];
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
fn a_lost_daemon_is_shown_and_found_again() {
    let scene = Scene::new();
    let mut browser = scene.browser();
    let address = scene.daemon.address;
    let target = Target::open(&scene.one.path());
    target.read(100);
    browser.wait_for("biolat.state.count >= 100 && biolat.state.connected");
    assert_eq!(browser.evaluate("document.getElementById('banner').hidden"), true);
    assert_eq!(browser.faults(), [""; 0]);

    drop(scene.daemon);
    browser.wait_for("!biolat.state.connected && !document.getElementById('banner').hidden");
    assert!(browser.text("#banner").contains("lost"));
    let age = |browser: &mut Browser| browser.evaluate("biolat.state.age").as_f64().unwrap();
    let first = age(&mut browser);
    thread::sleep(Duration::from_secs(2));
    assert!(age(&mut browser) - first > 1.5);
    wait_for("the age to be told", || {
        let told = browser.text("#banner");
        let seconds =
            told.split("The data is ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        (seconds.unwrap() - age(&mut browser)).abs() < 1.0
    });

    let mut command = Command::new(program());
    command.args(["--interval", "200ms", "--device", &scene.one.name, "--listen", &address.to_string()]);
    let daemon = Daemon::start_command(&mut command);
    browser.wait_for(
        "biolat.state.connected && document.getElementById('banner').hidden && biolat.state.age < 2",
    );
    // Of the new daemon only what it counted itself: neither the difference of two lives, nor all of it once more.
    let count = browser.evaluate("biolat.state.count").as_u64().unwrap();
    let own = settled(&daemon, &scene.one.name).figures.latencies("total", &scene.one.name, "read");
    assert!((100..100 + own + 20).contains(&count), "{count}, {own}");
    target.read(50);
    browser.wait_for(&format!("biolat.state.count >= {}", count + 50));
    let count = browser.evaluate("biolat.state.count").as_u64().unwrap();
    assert!(count < 100 + own + 100, "{count}");
    // While there was none, nothing is drawn.
    let gaps = "biolat.state.columns.map((column, at, all) => (at ? column.from - all[at - 1].to : 0))";
    let gaps: Vec<f64> = serde_json::from_value(browser.evaluate(gaps)).unwrap();
    assert!(gaps.iter().any(|gap| *gap > 2.0), "{gaps:?}");
    // That nobody answered is what the console may say, and nothing else.
    let faults = browser.faults();
    assert!(!faults.is_empty() && faults.iter().all(|fault| fault.contains("ERR_")), "{faults:?}");
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn it_fits_a_phone_and_either_theme() {
    let scene = Scene::new();
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        scope.spawn(|| {
            let target = Target::open(&scene.one.path());
            while !stop.is_set() {
                target.read(20);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let mut browser = Browser::start();
        let grounds = ["light", "dark"].map(|scheme| {
            browser.open(&scene.url(), &json!({"width": 390, "height": 844, "scheme": scheme}));
            browser.wait_for("window.biolat?.state.count > 50");
            assert_eq!(browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), true);
            let ground = "getComputedStyle(document.body).backgroundColor";
            let automatic = browser.evaluate(ground);
            browser.press("t");
            browser.press("t");
            assert_eq!(browser.evaluate(ground), "rgb(14, 17, 22)", "from automatic to light to dark");
            assert_eq!(browser.faults(), [""; 0]);
            automatic
        });
        assert_eq!(grounds, ["rgb(246, 247, 249)", "rgb(14, 17, 22)"]);

        // Everything that can be pressed has a name, and comes in the order in which it is read.
        let mut names = Vec::new();
        for _ in 0..30 {
            browser.press("Tab");
            let on = browser.evaluate(
                "(document.activeElement.ariaLabel ?? document.activeElement.labels?.[0]?.textContent ?? '') + document.activeElement.textContent",
            );
            assert_ne!(on, "");
            names.push(on.as_str().unwrap().to_owned());
            if names.last().unwrap().contains(&scene.one.name) && names.len() > 9 {
                break;
            }
        }
        let place = |name: &str| names.iter().position(|found| found.starts_with(name)).expect(name);
        let order =
            ["Pause", "Theme", "Help", "Device", "all", "read", "queue", "device", "total"].map(place);
        assert!(order.is_sorted(), "{names:?}");

        browser.evaluate("document.activeElement.blur()");
        // What is held stays, and goes on where it would be.
        browser.press(" ");
        browser.wait_for("biolat.state.paused");
        let [held, again] = [0, 1].map(|_| {
            thread::sleep(Duration::from_secs(1));
            browser.evaluate("[biolat.state.count, biolat.state.columns]")
        });
        assert_eq!(held, again);
        browser.press(" ");
        browser.wait_for(&format!("biolat.state.count > {}", held[0]));
        browser.press("?");
        assert_eq!(browser.evaluate("document.getElementById('about').open"), true);
        browser.press("Escape");
        assert_eq!(browser.evaluate("document.getElementById('about').open"), false);
    });
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn without_scripts_there_is_a_table() {
    let scene = Scene::new();
    Target::open(&scene.one.path()).read(100);
    settled(&scene.daemon, &scene.one.name);
    let mut browser = Browser::start();
    browser.open(&scene.url(), &json!({"script": false, "width": 390}));
    let text = browser.text("#plain table");
    assert!(text.contains(&scene.one.name) && text.contains("read") && text.contains("p99"), "{text}");
    assert!(!browser.text("body").contains("Pause"));

    let daemon = Daemon::start(&["--no-ui", "--device", &scene.one.name]);
    let url = format!("http://{}/", daemon.address);
    let headers = browser.open(&url, &json!({}));
    assert!(browser.text("#plain").contains(&scene.one.name));
    assert_eq!(browser.evaluate("[window.biolat === undefined, document.scripts.length]"), json!([true, 0]));
    assert!(!headers["content-security-policy"].as_str().unwrap().contains("script-src"));
    assert_eq!(browser.faults(), [""; 0]);
    let page = String::from_utf8(http::get(daemon.address, "/", "").unwrap().body).unwrap();
    assert!(page.contains("/metrics") && page.contains("/api/v1/snapshot"), "{page}");
}

/// Turns the page into one that is in the background, or back.
fn hide(browser: &mut Browser, hidden: bool) {
    browser.evaluate(&format!(
        "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }}); \
         document.dispatchEvent(new Event('visibilitychange'))"
    ));
}

/// Streams of events, until there is no place for another.
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
fn without_a_stream_each_pass_is_asked_for() {
    let scene = Scene::new();
    let _taken = streams(&scene.daemon);
    let mut browser = scene.browser();
    // Past some tries to listen: each pass of 200 ms is here, and seldom two of them as one.
    thread::sleep(Duration::from_secs(6));
    let passes = browser.evaluate("biolat.state.columns.map(({ from, to }) => to - from)");
    let passes: Vec<f64> = serde_json::from_value(passes).unwrap();
    assert!(passes.len() > 10 && passes.iter().all(|seconds| *seconds < 1.0), "{passes:?}");
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn a_tab_that_nobody_sees_keeps_no_connection() {
    let scene = Scene::new();
    let places = streams(&scene.daemon).len();
    let mut browser = scene.browser();
    wait_for("the page to listen", || streams(&scene.daemon).len() == places - 1);
    // From here on it never says that anything is wrong, and answers take a while.
    browser.evaluate(
        "window.said = []; window.asked = 0; window.ask = window.fetch; \
         window.fetch = async (...of) => { asked++; await new Promise((done) => setTimeout(done, 700)); return ask(...of); }; \
         const banner = document.getElementById('banner'); \
         new MutationObserver(() => { if (!banner.hidden) said.push(banner.textContent); }).observe(banner, { attributes: true })",
    );
    browser.wait_for("asked > 2");
    hide(&mut browser, true);
    wait_for("the page to give its place back", || streams(&scene.daemon).len() == places);
    thread::sleep(Duration::from_secs(2));
    let before = browser.evaluate("[asked, biolat.state.count, biolat.state.passes]");
    Target::open(&scene.one.path()).read(500);
    thread::sleep(Duration::from_secs(4));
    assert_eq!(browser.evaluate("[asked, biolat.state.count, biolat.state.passes]"), before);

    hide(&mut browser, false);
    browser.wait_for(&format!("biolat.state.count >= {}", before[1].as_u64().unwrap() + 500));
    wait_for("the page to listen again", || streams(&scene.daemon).len() == places - 1);
    let longest = browser.evaluate("Math.max(...biolat.state.columns.map(({ from, to }) => to - from))");
    assert!(longest.as_f64().unwrap() > 3.0, "one pass of all that was missed, not {longest} s");
    assert_eq!(browser.evaluate("said"), json!([]));

    // Nor when its question of then fails, as it does while a laptop sleeps.
    hide(&mut browser, true);
    thread::sleep(Duration::from_secs(2));
    browser.evaluate(
        "window.fetch = () => new Promise((_, fail) => setTimeout(fail, 1500, new TypeError('asleep'))); \
         dispatchEvent(new Event('online'))",
    );
    hide(&mut browser, false);
    browser.evaluate("window.fetch = ask; 0");
    thread::sleep(Duration::from_secs(2));
    browser.wait_for("biolat.state.connected && biolat.state.age < 1");
    assert_eq!(browser.evaluate("said"), json!([]));
    assert_eq!(browser.faults(), [""; 0]);
}

#[test]
#[ignore = "needs root, chromium and Playwright: cargo xtask test"]
fn a_pass_holds_what_was_done_in_it() {
    let mut browser = Browser::start();
    browser.open("about:blank", &json!({}));
    let script = concat!(
        include_str!("../../src/http/page/figures.js"),
        include_str!("../../src/http/page/history.js")
    );
    // A life of more than 2^32 I/Os, which the first pass of a device holds, and then three more.
    let found = browser.evaluate(&format!(
        "(() => {{ {script}
        const histogram = (count) => ({{ count, seconds: 1, zero: 0, overflow: 0, buckets: [[-80, count]] }});
        const device = (name, count, unseen) => ({{ name, since: 1, unseen: {{ read: unseen }},
            ops: [{{ op: 'read', bytes: 0, errors: {{}}, queue: histogram(count), device: histogram(count), total: histogram(count) }}] }});
        const daemon = {{ cpu_seconds: 0, passes: 0, pass_seconds: 0, probe: null }};
        const snapshot = (taken, devices) => ({{ started: 1, taken, interval: 1, lost: {{}}, daemon, devices }});
        const life = 2 ** 32 + 5;
        const snapshots = [snapshot(2, []), snapshot(3, [device('a', life, 0)]), snapshot(4, [device('a', life + 3, 0), device('b', 0, 0)]),
            snapshot(5, [device('a', life + 3, 0), device('b', 0, 2)])];
        const history = new History();
        for (const each of snapshots) history.add(each);
        return history.passes.map((pass) => [new Sum().addPass(pass, 'a', null).all[2] - (pass.from < 3 ? life : 0), [...pass.devices.keys()]]);
        }})()"
    ));
    // Nothing is kept of a device that did nothing.
    assert_eq!(found, json!([[0, ["a"]], [3, ["a"]], [0, ["b"]]]));
}
