//! The screen, and the effect of keys.

use std::time::Duration;

use biolat_model::{device::Group, histogram::Histogram, snapshot::Inflight};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{
        KeyCode::{Backspace, Char, Down, End, Enter, Esc, Home, Up},
        KeyModifiers,
    },
    style::{Color, Modifier},
};

use super::{
    columns::Column,
    samples::{TestScreen, device, op, window},
    state::{Action, Ops},
};
use crate::window::Window;

#[test]
fn fits_eighty_columns() {
    let lines = TestScreen::showing(window()).lines(80, 10);
    let expected = "\
db1 · 2 s window, 0 s old · local probe                                     LIVE
total latency · all ops · by p99
DEVICE   MODEL              IOPS   MB/s    p50    p99  p99.9    max  QUEUE   ERR
sda      ST4000NM0035        500    2.0  3.7ms   30ms   30ms  239ms    26%     3
nvme0n1  Samsung SSD 980    6000     25  117µs  117µs  234µs  935µs     2%     0
sdb      ST4000NM0035          0      0      -      -      -      -      -     0



q quit  ? help  s sort  p phase  o ops  f filter  Enter histogram  w workloads";
    assert_eq!(lines.join("\n"), expected);
}

/// The errors column has priority if there are errors, and otherwise gives way to more useful columns.
#[test]
fn fits_forty_columns() {
    let mut screen = TestScreen::showing(window());
    let expected = "\
db1 · 2 s window, 0 s old           LIVE
total latency · all ops · by p99
DEVICE   IOPS   p50   p99   max  ERR
sda       500 3.7ms  30ms 239ms    3
nvme0n1  6000 117µs 117µs 935µs    0
sdb         0     -     -     -    0



q quit  ? help  s sort  p phase  o ops";
    assert_eq!(screen.lines(40, 10).join("\n"), expected);
    screen.windows[0].devices[1].ops[0].figures.errors.clear();
    assert_eq!(screen.lines(40, 10)[2], "DEVICE   IOPS  MB/s   p50   p99   max");
    screen.state.sort = Column::Queue;
    assert_eq!(screen.lines(40, 10)[2], "DEVICE   IOPS   p50   p99   max QUEUE");
}

#[test]
fn fits_two_hundred_columns() {
    let mut screen = TestScreen::showing(window());
    let mut calm = window();
    calm.devices[1].ops[0] = op("write", 4096, &[], &[(-8, 10), (-7, 10)]);
    screen.windows.push_front(calm);
    let lines = screen.lines(200, 8);
    assert!(lines[3].contains("Samsung") || lines[4].contains("Samsung SSD 980 PRO 1TB"), "{lines:#?}");
    // From 2^-16 s to 2^-2 s, two cells per octave. The few long latencies must be visible.
    assert_eq!(
        lines[2].split("ERR").nth(1).unwrap().trim(),
        "INFL  OLDEST  15µs                   250ms      p99 SO FAR"
    );
    let shape =
        |line: usize| lines[line].chars().skip(105 + "INFL  OLDEST  ".len()).take(32).collect::<String>();
    assert!(shape(3).trim_end().ends_with("█     ▁     ▁"), "{lines:#?}");
    // The slow window follows the calm one and is four times as slow.
    assert!(lines[3].ends_with("▂█"), "{lines:#?}");
    assert!(lines[4].ends_with("██"), "{lines:#?}");
}

#[test]
fn draws_at_any_size() {
    for mut screen in [window(), window_with_a_hang()].map(TestScreen::showing) {
        for width in (0..60).chain([80, 132, 200, 500]) {
            for height in (0..30).chain([50]) {
                screen.lines(width, height);
                screen.press(Enter);
                screen.lines(width, height);
                screen.type_keys("?");
                screen.lines(width, height);
                screen.press(Enter);
            }
        }
    }
}

/// A terminal that was shrunk and enlarged again shows the same as one that was never resized.
#[test]
fn resizing_leaves_no_traces() {
    let screen = TestScreen::showing(window());
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    for (width, height) in [(80, 24), (40, 10), (80, 24)] {
        terminal.backend_mut().resize(width, height);
        terminal.draw(|frame| frame.buffer_mut().merge(&screen.buffer(width, height))).unwrap();
        terminal.backend().assert_buffer(&screen.buffer(width, height));
    }
}

#[test]
fn explains_an_empty_table() {
    let mut screen = TestScreen::showing(Window::default());
    assert_eq!(screen.lines(80, 8)[3], "no devices");
    screen.type_keys("fx");
    assert_eq!(screen.lines(80, 8)[3], "no device name contains this (f: filter)");
    screen.windows.clear();
    let lines = screen.lines(80, 8);
    assert!(
        lines[0].starts_with("db1 · no figures yet")
            && lines[0].ends_with("WAITING")
            && lines[3] == "waiting for the first figures"
    );
}

#[test]
fn sorts_by_any_column() {
    let mut screen = TestScreen::showing(window());
    assert_eq!(screen.devices(), ["sda", "nvme0n1", "sdb"]);
    screen.type_keys("r");
    assert_eq!(screen.devices(), ["sdb", "nvme0n1", "sda"]);
    assert!(screen.lines(80, 8)[1].ends_with("by p99, reversed"));
    screen.type_keys("SSSS");
    assert_eq!((screen.state.sort, screen.state.is_reversed), (Column::Op, false));
    screen.type_keys("s");
    assert_eq!((screen.state.sort, screen.devices()), (Column::Iops, own(&["nvme0n1", "sda", "sdb"])));
    screen.type_keys("<<<");
    assert_eq!((screen.state.sort, screen.devices()), (Column::Device, own(&["nvme0n1", "sda", "sdb"])));
    screen.type_keys("<");
    assert_eq!(screen.state.sort, Column::Oldest);
    screen.type_keys(">");
    assert_eq!(screen.state.sort, Column::Device);
    screen.type_keys("<<<");
    assert_eq!((screen.state.sort, screen.devices()), (Column::Errors, own(&["sda", "nvme0n1", "sdb"])));
}

fn own(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn sorts_numbers_in_names_by_value() {
    let names = ["loop10", "sdb", "loop9", "loop", "nvme1n1", "nvme0n10", "nvme0n2"];
    let devices = names.map(|name| device(name, "", Vec::new()));
    let screen = TestScreen::showing(Window { devices: devices.into(), ..Window::default() });
    let expected = ["loop", "loop9", "loop10", "nvme0n2", "nvme0n10", "nvme1n1", "sdb"];
    assert_eq!(screen.devices(), expected);
}

#[test]
fn cycles_through_phases() {
    let mut screen = TestScreen::showing(window());
    screen.windows[0].devices[1].phases[1] = false;
    screen.windows[0].devices[1].hint = "echo 1 > /sys/block/sda/queue/iostats".into();
    let admission = screen.windows[0].devices[1].ops[0].figures.histograms[1].clone();
    screen.windows[0].devices[1].ops[0].figures.histograms[1] = Histogram::default();
    screen.windows[0].devices[0].ops[0].figures.histograms[0] = admission;
    screen.windows[0].devices[1].phases[0] = false;
    screen.type_keys("p");
    let lines = screen.lines(80, 12);
    assert!(lines[1].starts_with("admission latency"), "{lines:#?}");
    // The bucket ends at 2^-9 s.
    assert!(lines[3].contains("nvme0n1") && lines[3].contains("1.9ms"), "{lines:#?}");
    screen.type_keys("p");
    let lines = screen.lines(80, 12);
    assert!(lines[1].starts_with("queue latency"), "{lines:#?}");
    assert!(!lines[2].contains("QUEUE"), "{lines:#?}");
    // The bucket ends at 2^-19 s: its midpoint is 1.8 µs.
    assert!(lines[3].contains("nvme0n1") && lines[3].contains("1.8µs"), "{lines:#?}");
    screen.press(Down);
    screen.press(Down);
    screen.press(Enter);
    assert!(screen.lines(80, 16).contains(&"echo 1 > /sys/block/sda/queue/iostats".to_owned()));
    screen.type_keys("p");
    assert!(screen.lines(80, 8)[1].starts_with("device latency"));
    screen.type_keys("p");
    assert!(screen.lines(80, 8)[1].starts_with("total latency"));
    screen.type_keys("p");
    let missing = "sda: the wait before a request exists (throttling, wait for a tag) is not recorded";
    assert!(screen.lines(200, 16).iter().any(|line| line.starts_with(missing)));
    // A phase that is not recorded for any device is skipped.
    for device in &mut screen.windows[0].devices {
        device.phases[0] = false;
    }
    screen.type_keys("ppp");
    assert!(screen.lines(80, 8)[1].starts_with("total latency"));
    screen.type_keys("p");
    assert!(screen.lines(80, 8)[1].starts_with("queue latency"));
}

/// The idle drive at the end has not completed anything for 16 s.
fn window_with_a_hang() -> Window {
    let mut window = window();
    let inflight = [(3, 0, 0.2, true), (0, 64, 1.25, true), (0, 12, 16.0, false)];
    for (device, (read, write, oldest_seconds, exact)) in window.devices.iter_mut().zip(inflight) {
        device.inflight = Inflight {
            reads: read,
            writes: write,
            oldest: Duration::from_secs_f64(oldest_seconds),
            is_exact: exact,
        };
    }
    window
}

#[test]
fn a_hung_device_is_at_the_top() {
    let mut screen = TestScreen::showing(window_with_a_hang());
    let expected = "\
db1 · 2 s window, 0 s old · local probe                                     LIVE
total latency · all ops · by p99
DEVICE    IOPS   MB/s    p50    p99  p99.9    max  QUEUE   ERR  INFL  OLDEST
sdb          0      0      -      -      -      -      -     0    12    >16s
sda        500    2.0  3.7ms   30ms   30ms  239ms    26%     3    64    1.2s
nvme0n1   6000     25  117µs  117µs  234µs  935µs     2%     0     3   200ms


q quit  ? help  s sort  p phase  o ops  f filter  Enter histogram  w workloads";
    assert_eq!(screen.lines(80, 9).join("\n"), expected);
    assert_eq!(screen.lines(25, 9)[2..4], ["DEVICE    p99 INFL OLDEST", "sdb         -   12   >16s"]);
    assert_eq!(screen.lines(20, 9)[2], "DEVICE  INFL OLDEST");
    screen.press(Enter);
    let lines = screen.lines(80, 24);
    assert_eq!(
        lines[7..10],
        [
            "sdb all · 0 I/Os · 12 in flight",
            "sdb: 12 I/Os in flight, none completed for at least 16 s.",
            "no I/O completed"
        ]
    );
    screen.press(Enter);
    // The user's own order is left alone.
    screen.type_keys("r");
    assert_eq!(screen.devices(), ["sdb", "nvme0n1", "sda"]);
    screen.type_keys("s");
    assert_eq!(screen.devices(), ["sda", "nvme0n1", "sdb"]);
    // A hung device is red, not dimmed like an idle one.
    screen.terminal.color = true;
    let buffer = screen.buffer(80, 9);
    assert_eq!((buffer[(0, 5)].fg, buffer[(75, 5)].fg), (Color::Red, Color::Red));
    assert_eq!((buffer[(0, 3)].fg, buffer[(15, 5)].fg), (Color::Reset, Color::Reset));
}

/// How many I/Os of a volume are in flight is unknown.
#[test]
fn volumes_have_no_ios_in_flight() {
    let mut window = window_with_a_hang();
    window.volumes = window.devices.drain(..1).collect();
    let lines = TestScreen::showing(window).lines(80, 9);
    assert!(lines[2].ends_with("ERR  INFL  OLDEST"), "{lines:#?}");
    assert!(
        lines.iter().any(|line| line.starts_with("nvme0n1 ") && line.ends_with("0     -       -")),
        "{lines:#?}"
    );
}

/// Without a hang, these columns have no priority.
#[test]
fn shows_ios_in_flight_if_there_is_room() {
    let mut window = window_with_a_hang();
    window.devices[2].inflight = Inflight::default();
    let screen = TestScreen::showing(window);
    let expected = "DEVICE   MODEL              IOPS   MB/s    p50    p99  p99.9    max  QUEUE   ERR";
    assert_eq!(screen.lines(80, 9)[2], expected);
    let lines = screen.lines(96, 9);
    assert!(lines[2].ends_with("  ERR  INFL  OLDEST") && lines[3].ends_with("64    1.2s"), "{lines:#?}");
    assert!(lines[5].ends_with("0     0       -"), "{lines:#?}");
}

#[test]
fn cycles_through_ops() {
    let mut screen = TestScreen::showing(window());
    screen.type_keys("o");
    let lines = screen.lines(80, 10);
    let words: Vec<Vec<_>> =
        lines[3..7].iter().map(|line| line.split_whitespace().take(3).collect()).collect();
    let expected = [
        ["sda", "write", "500"],
        ["nvme0n1", "read", "5000"],
        ["nvme0n1", "write", "1000"],
        ["sdb", "read", "0"],
    ];
    assert_eq!(words, expected);
    screen.type_keys("o");
    assert_eq!(screen.state.ops, Ops::Only("read".into()));
    assert_eq!(screen.devices(), ["nvme0n1", "sda", "sdb"]);
    assert_eq!(screen.lines(80, 10)[1], "total latency · read only · by p99");
    screen.type_keys("o");
    assert_eq!(screen.state.ops, Ops::Only("write".into()));
    screen.type_keys("o");
    assert_eq!(screen.state.ops, Ops::Merged);
}

#[test]
fn filters_devices() {
    let mut screen = TestScreen::showing(window());
    screen.type_keys("/sdq");
    assert!(screen.lines(80, 8)[7].starts_with("filter: sdq▏"));
    assert!(screen.devices().is_empty());
    screen.press(Backspace);
    assert_eq!((screen.devices(), screen.press(Enter)), (own(&["sda", "sdb"]), Action::Nothing));
    // After the filter is entered, letters are commands again.
    assert_eq!(screen.press(Char('q')), Action::Quit);
    assert!(screen.lines(80, 8)[1].starts_with("devices with 'sd' · total latency"));
    screen.type_keys("f");
    assert_eq!(screen.press(Esc), Action::Nothing);
    assert_eq!(screen.devices().len(), 3);
}

#[test]
fn keys_that_quit() {
    let mut screen = TestScreen::showing(window());
    assert_eq!(screen.press(Esc), Action::Quit);
    assert_eq!(screen.press_with(Char('c'), KeyModifiers::CONTROL), Action::Quit);
    assert_eq!(screen.press_with(Char('z'), KeyModifiers::CONTROL), Action::Suspend);
    screen.type_keys("f");
    assert_eq!(screen.press(Char('q')), Action::Nothing);
    assert_eq!(screen.press_with(Char('c'), KeyModifiers::CONTROL), Action::Quit);
    screen.press(Esc);
    screen.type_keys("?");
    assert!(screen.lines(80, 24)[11].starts_with("q Esc"));
    assert_eq!((screen.press(Esc), screen.state.is_help), (Action::Nothing, false));
    screen.type_keys("?");
    assert_eq!(screen.press(Char('q')), Action::Quit);
}

#[test]
fn shows_the_selected_rows_histogram() {
    let mut screen = TestScreen::showing(window());
    screen.press(Enter);
    let lines = screen.lines(80, 24);
    assert_eq!(lines[7], "sda all · 1000 I/Os · mean 5.5ms · 3 medium errors");
    // Half-octave lines: the first ends at 2^-8 s, the last at 2^-2 s.
    assert_eq!(lines[8], format!("2.8ms - 3.9ms    950   95%  {} p50", "█".repeat(40)));
    assert_eq!(lines[14], "  22ms - 31ms     49    5%  ██▏ p99");
    assert_eq!(lines[20], "177ms - 250ms      1   <1%  ▏ max");
    assert_eq!(lines[21], "");
    // With less room, a line covers a wider range.
    let lines = screen.lines(40, 10);
    assert_eq!(lines[6], "sda all · 1000 I/Os · mean 5.5ms");
    assert_eq!(lines[7], " 15µs - 3.9ms   950 ████████ p50");
    assert_eq!(lines[8], " 3.9ms - 1.0s    50 ▍ p99 max");
    screen.press(Enter);
    assert_eq!(screen.lines(80, 24)[7], "");
}

#[test]
fn selection_follows_its_row_and_stays_visible() {
    let devices: Vec<_> = (0..100).map(|number| device(&format!("sd{number}"), "", Vec::new())).collect();
    let mut screen = TestScreen::showing(Window { devices, ..Window::default() });
    let marked = |screen: &TestScreen| {
        let buffer = screen.buffer(80, 10);
        let lines = (3..9).filter(|&y| buffer[(0, y)].modifier.contains(Modifier::REVERSED));
        lines.map(|y| (0..5).map(|x| buffer[(x, y)].symbol()).collect::<String>()).collect::<Vec<_>>()
    };
    assert!(marked(&screen).is_empty());
    for (key, expected) in [(Down, "sd0  "), (Down, "sd1  "), (End, "sd99 "), (Up, "sd98 "), (Home, "sd0  ")]
    {
        screen.press(key);
        assert_eq!(marked(&screen), [expected]);
    }
    screen.press(Down);
    screen.state.sort = Column::Device;
    screen.type_keys("r");
    assert_eq!(marked(&screen), ["sd1  "]);
    screen.type_keys("fzz");
    assert!(marked(&screen).is_empty());
}

#[test]
fn changes_the_window_length() {
    let mut screen = TestScreen::showing(window());
    screen.type_keys("+++");
    assert_eq!(screen.state.collections, 10);
    screen.type_keys("-----");
    assert_eq!(screen.state.collections, 1);
    screen.type_keys("++++++++");
    assert_eq!(screen.state.collections, 60);
    screen.type_keys(" ");
    assert!(screen.lines(80, 8)[0].ends_with("PAUSED"));
}

#[test]
fn shows_alerts() {
    let mut screen = TestScreen::showing(window());
    screen.windows[0].lost.insert("no_room".into(), 12);
    screen.windows[0].devices[0].unseen.insert(Group::Read, 3);
    screen.windows[0].failures = 1;
    screen.trouble = Some("no answer for 3s, retrying: Connection refused".into());
    let lines = screen.lines(80, 24);
    assert!(lines[0].ends_with("LOST"));
    let expected = [
        "1 collection failed",
        "not measured: 12 no_room, 3 missed by the probe",
        "no answer for 3s, retrying: Connection refused",
    ];
    assert_eq!(lines[20..23], expected);
    // The table is not pushed off the screen.
    assert!(screen.lines(40, 6)[3].starts_with("sda"));
}

#[test]
fn can_draw_in_ascii() {
    let mut screen = TestScreen::showing(window());
    screen.terminal.unicode = false;
    screen.press(Enter);
    for (width, height) in [(40, 10), (80, 24), (200, 24)] {
        let lines = screen.lines(width, height).join("\n");
        assert!(lines.is_ascii(), "{lines}");
        assert!(lines.contains("117us") && lines.contains('*'), "{lines}");
    }
}

#[test]
fn colors_only_if_enabled() {
    let mut screen = TestScreen::showing(window());
    let colored = |screen: &TestScreen| {
        let buffer = screen.buffer(80, 24);
        buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(!colored(&screen));
    screen.terminal.color = true;
    assert!(colored(&screen));
    // 30 ms deserves attention, 117 µs does not.
    let buffer = screen.buffer(80, 24);
    let ink = |text: &str, y: u16| {
        let line: String = (0..80).map(|x| buffer[(x, y)].symbol()).collect();
        let place = line
            .chars()
            .collect::<Vec<_>>()
            .windows(text.len())
            .position(|w| w.iter().copied().eq(text.chars()));
        buffer[(place.unwrap() as u16, y)].fg
    };
    assert_eq!((ink("30ms", 3), ink("239ms", 3), ink("935", 4)), (Color::Yellow, Color::Red, Color::Reset));
}
