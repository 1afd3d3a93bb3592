//! What the user sees, and what keys do.

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
    samples::{Person, device, op, window},
    state::{Action, Ops},
};
use crate::window::Window;

#[test]
fn eighty_columns() {
    let sees = Person::before(window()).sees(80, 10);
    let expected = "\
db1 · 2 s window, 0 s old · local probe                                     LIVE
total latency · all ops · by p99
DEVICE   MODEL              IOPS   MB/s    p50    p99  p99.9    max  QUEUE   ERR
sda      ST4000NM0035        500    2.0  3.7ms   30ms   30ms  239ms    26%     3
nvme0n1  Samsung SSD 980    6000     25  117µs  117µs  234µs  935µs     2%     0
sdb      ST4000NM0035          0      0      -      -      -      -      -     0



q quit  ? help  s sort  p phase  o ops  f filter  Enter histogram  w workloads";
    assert_eq!(sees.join("\n"), expected);
}

/// Errors have a column where there are any, and not where others are of more use.
#[test]
fn forty_columns() {
    let mut person = Person::before(window());
    let expected = "\
db1 · 2 s window, 0 s old           LIVE
total latency · all ops · by p99
DEVICE   IOPS   p50   p99   max  ERR
sda       500 3.7ms  30ms 239ms    3
nvme0n1  6000 117µs 117µs 935µs    0
sdb         0     -     -     -    0



q quit  ? help  s sort  p phase  o ops";
    assert_eq!(person.sees(40, 10).join("\n"), expected);
    person.windows[0].devices[1].ops[0].figures.errors.clear();
    assert_eq!(person.sees(40, 10)[2], "DEVICE   IOPS  MB/s   p50   p99   max");
    person.state.sort = Column::Queue;
    assert_eq!(person.sees(40, 10)[2], "DEVICE   IOPS   p50   p99   max QUEUE");
}

#[test]
fn two_hundred_columns() {
    let mut person = Person::before(window());
    let mut calm = window();
    calm.devices[1].ops[0] = op("write", 4096, &[], &[(-8, 10), (-7, 10)]);
    person.windows.push_front(calm);
    let sees = person.sees(200, 8);
    assert!(sees[3].contains("Samsung") || sees[4].contains("Samsung SSD 980 PRO 1TB"), "{sees:#?}");
    // From 2^-16 s to 2^-2 s, two cells for each octave: the long ones are few and to be seen.
    assert_eq!(
        sees[2].split("ERR").nth(1).unwrap().trim(),
        "INFL  OLDEST  15µs                   250ms      p99 SO FAR"
    );
    let shape =
        |line: usize| sees[line].chars().skip(105 + "INFL  OLDEST  ".len()).take(32).collect::<String>();
    assert!(shape(3).trim_end().ends_with("█     ▁     ▁"), "{sees:#?}");
    // The slow window after the calm one, four times as slow.
    assert!(sees[3].ends_with("▂█"), "{sees:#?}");
    assert!(sees[4].ends_with("██"), "{sees:#?}");
}

#[test]
fn every_size_is_drawn() {
    for mut person in [window(), window_with_a_hang()].map(Person::before) {
        for width in (0..60).chain([80, 132, 200, 500]) {
            for height in (0..30).chain([50]) {
                person.sees(width, height);
                person.press(Enter);
                person.sees(width, height);
                person.hit("?");
                person.sees(width, height);
                person.press(Enter);
            }
        }
    }
}

/// A terminal that becomes smaller and larger again shows what one does that was never small.
#[test]
fn resized() {
    let person = Person::before(window());
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    for (width, height) in [(80, 24), (40, 10), (80, 24)] {
        terminal.backend_mut().resize(width, height);
        terminal.draw(|frame| frame.buffer_mut().merge(&person.buffer(width, height))).unwrap();
        terminal.backend().assert_buffer(&person.buffer(width, height));
    }
}

#[test]
fn nothing_yet_and_nothing_at_all() {
    let mut person = Person::before(Window::default());
    assert_eq!(person.sees(80, 8)[3], "no devices");
    person.hit("fx");
    assert_eq!(person.sees(80, 8)[3], "no device with this in its name (f: filter)");
    person.windows.clear();
    let sees = person.sees(80, 8);
    assert!(
        sees[0].starts_with("db1 · no figures yet")
            && sees[0].ends_with("WAITING")
            && sees[3] == "waiting for the first figures"
    );
}

#[test]
fn columns_to_sort_by() {
    let mut person = Person::before(window());
    assert_eq!(person.devices(), ["sda", "nvme0n1", "sdb"]);
    person.hit("r");
    assert_eq!(person.devices(), ["sdb", "nvme0n1", "sda"]);
    assert!(person.sees(80, 8)[1].ends_with("by p99, reversed"));
    person.hit("SSSS");
    assert_eq!((person.state.sort, person.state.is_reversed), (Column::Op, false));
    person.hit("s");
    assert_eq!((person.state.sort, person.devices()), (Column::Iops, own(&["nvme0n1", "sda", "sdb"])));
    person.hit("<<<");
    assert_eq!((person.state.sort, person.devices()), (Column::Device, own(&["nvme0n1", "sda", "sdb"])));
    person.hit("<");
    assert_eq!(person.state.sort, Column::Oldest);
    person.hit(">");
    assert_eq!(person.state.sort, Column::Device);
    person.hit("<<<");
    assert_eq!((person.state.sort, person.devices()), (Column::Errors, own(&["sda", "nvme0n1", "sdb"])));
}

fn own(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn numbers_in_names_are_numbers() {
    let names = ["loop10", "sdb", "loop9", "loop", "nvme1n1", "nvme0n10", "nvme0n2"];
    let devices = names.map(|name| device(name, "", Vec::new()));
    let person = Person::before(Window { devices: devices.into(), ..Window::default() });
    let expected = ["loop", "loop9", "loop10", "nvme0n2", "nvme0n10", "nvme1n1", "sdb"];
    assert_eq!(person.devices(), expected);
}

#[test]
fn phases() {
    let mut person = Person::before(window());
    person.windows[0].devices[1].phases[1] = false;
    person.windows[0].devices[1].hint = "echo 1 > /sys/block/sda/queue/iostats".into();
    let admission = person.windows[0].devices[1].ops[0].figures.histograms[1].clone();
    person.windows[0].devices[1].ops[0].figures.histograms[1] = Histogram::default();
    person.windows[0].devices[0].ops[0].figures.histograms[0] = admission;
    person.windows[0].devices[1].phases[0] = false;
    person.hit("p");
    let sees = person.sees(80, 12);
    assert!(sees[1].starts_with("admission latency"), "{sees:#?}");
    // 2^-9 s at the most.
    assert!(sees[3].contains("nvme0n1") && sees[3].contains("1.9ms"), "{sees:#?}");
    person.hit("p");
    let sees = person.sees(80, 12);
    assert!(sees[1].starts_with("queue latency"), "{sees:#?}");
    assert!(!sees[2].contains("QUEUE"), "{sees:#?}");
    // 2^-19 s at the most is 1.8 µs in the middle of its bucket.
    assert!(sees[3].contains("nvme0n1") && sees[3].contains("1.8µs"), "{sees:#?}");
    person.press(Down);
    person.press(Down);
    person.press(Enter);
    assert!(person.sees(80, 16).contains(&"echo 1 > /sys/block/sda/queue/iostats".to_owned()));
    person.hit("p");
    assert!(person.sees(80, 8)[1].starts_with("device latency"));
    person.hit("p");
    assert!(person.sees(80, 8)[1].starts_with("total latency"));
    person.hit("p");
    let missing = "sda: the wait before a request exists (throttling, wait for a tag) is not recorded";
    assert!(person.sees(200, 16).iter().any(|line| line.starts_with(missing)));
    // No device has the phase: it is left out.
    for device in &mut person.windows[0].devices {
        device.phases[0] = false;
    }
    person.hit("ppp");
    assert!(person.sees(80, 8)[1].starts_with("total latency"));
    person.hit("p");
    assert!(person.sees(80, 8)[1].starts_with("queue latency"));
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
fn a_device_that_hangs_is_at_the_top() {
    let mut person = Person::before(window_with_a_hang());
    let expected = "\
db1 · 2 s window, 0 s old · local probe                                     LIVE
total latency · all ops · by p99
DEVICE    IOPS   MB/s    p50    p99  p99.9    max  QUEUE   ERR  INFL  OLDEST
sdb          0      0      -      -      -      -      -     0    12    >16s
sda        500    2.0  3.7ms   30ms   30ms  239ms    26%     3    64    1.2s
nvme0n1   6000     25  117µs  117µs  234µs  935µs     2%     0     3   200ms


q quit  ? help  s sort  p phase  o ops  f filter  Enter histogram  w workloads";
    assert_eq!(person.sees(80, 9).join("\n"), expected);
    assert_eq!(person.sees(25, 9)[2..4], ["DEVICE    p99 INFL OLDEST", "sdb         -   12   >16s"]);
    assert_eq!(person.sees(20, 9)[2], "DEVICE  INFL OLDEST");
    person.press(Enter);
    let sees = person.sees(80, 24);
    assert_eq!(
        sees[7..10],
        [
            "sdb all · 0 I/Os · 12 in flight",
            "sdb: 12 I/Os in flight, none completed for at least 16 s.",
            "no I/O completed"
        ]
    );
    person.press(Enter);
    // Another order is the user's.
    person.hit("r");
    assert_eq!(person.devices(), ["sdb", "nvme0n1", "sda"]);
    person.hit("s");
    assert_eq!(person.devices(), ["sda", "nvme0n1", "sdb"]);
    // In red, and not dim like an idle one.
    person.terminal.color = true;
    let buffer = person.buffer(80, 9);
    assert_eq!((buffer[(0, 5)].fg, buffer[(75, 5)].fg), (Color::Red, Color::Red));
    assert_eq!((buffer[(0, 3)].fg, buffer[(15, 5)].fg), (Color::Reset, Color::Reset));
}

/// Otherwise these columns are not more useful than others.
#[test]
fn ios_in_flight_where_there_is_room() {
    let mut window = window_with_a_hang();
    window.devices[2].inflight = Inflight::default();
    let person = Person::before(window);
    let expected = "DEVICE   MODEL              IOPS   MB/s    p50    p99  p99.9    max  QUEUE   ERR";
    assert_eq!(person.sees(80, 9)[2], expected);
    let sees = person.sees(96, 9);
    assert!(sees[2].ends_with("  ERR  INFL  OLDEST") && sees[3].ends_with("64    1.2s"), "{sees:#?}");
    assert!(sees[5].ends_with("0     0       -"), "{sees:#?}");
}

#[test]
fn ops_in_rows() {
    let mut person = Person::before(window());
    person.hit("o");
    let sees = person.sees(80, 10);
    let words: Vec<Vec<_>> =
        sees[3..7].iter().map(|line| line.split_whitespace().take(3).collect()).collect();
    let expected = [
        ["sda", "write", "500"],
        ["nvme0n1", "read", "5000"],
        ["nvme0n1", "write", "1000"],
        ["sdb", "read", "0"],
    ];
    assert_eq!(words, expected);
    person.hit("o");
    assert_eq!(person.state.ops, Ops::Only("read".into()));
    assert_eq!(person.devices(), ["nvme0n1", "sda", "sdb"]);
    assert_eq!(person.sees(80, 10)[1], "total latency · read only · by p99");
    person.hit("o");
    assert_eq!(person.state.ops, Ops::Only("write".into()));
    person.hit("o");
    assert_eq!(person.state.ops, Ops::Merged);
}

#[test]
fn filter() {
    let mut person = Person::before(window());
    person.hit("/sdq");
    assert!(person.sees(80, 8)[7].starts_with("filter: sdq▏"));
    assert!(person.devices().is_empty());
    person.press(Backspace);
    assert_eq!((person.devices(), person.press(Enter)), (own(&["sda", "sdb"]), Action::Nothing));
    // What is typed no more is a key again.
    assert_eq!(person.press(Char('q')), Action::Quit);
    assert!(person.sees(80, 8)[1].starts_with("devices with 'sd' · total latency"));
    person.hit("f");
    assert_eq!(person.press(Esc), Action::Nothing);
    assert_eq!(person.devices().len(), 3);
}

#[test]
fn ways_out() {
    let mut person = Person::before(window());
    assert_eq!(person.press(Esc), Action::Quit);
    assert_eq!(person.chord(Char('c'), KeyModifiers::CONTROL), Action::Quit);
    assert_eq!(person.chord(Char('z'), KeyModifiers::CONTROL), Action::Suspend);
    person.hit("f");
    assert_eq!(person.press(Char('q')), Action::Nothing);
    assert_eq!(person.chord(Char('c'), KeyModifiers::CONTROL), Action::Quit);
    person.press(Esc);
    person.hit("?");
    assert!(person.sees(80, 24)[11].starts_with("q Esc"));
    assert_eq!((person.press(Esc), person.state.is_help), (Action::Nothing, false));
    person.hit("?");
    assert_eq!(person.press(Char('q')), Action::Quit);
}

#[test]
fn the_marked_rows_histogram() {
    let mut person = Person::before(window());
    person.press(Enter);
    let sees = person.sees(80, 24);
    assert_eq!(sees[7], "sda all · 1000 I/Os · mean 5.5ms · 3 medium errors");
    // Of the six octaves from 2^-9 s to 2^-2 s, each in two; the first and the last half have nothing.
    assert_eq!(sees[8], format!("2.8ms - 3.9ms    950   95%  {} p50", "█".repeat(40)));
    assert_eq!(sees[14], "  22ms - 31ms     49    5%  ██▏ p99");
    assert_eq!(sees[20], "177ms - 250ms      1   <1%  ▏ max");
    assert_eq!(sees[21], "");
    // Where there is little room, a line stands for more of it.
    let sees = person.sees(40, 10);
    assert_eq!(sees[6], "sda all · 1000 I/Os · mean 5.5ms");
    assert_eq!(sees[7], " 15µs - 3.9ms   950 ████████ p50");
    assert_eq!(sees[8], " 3.9ms - 1.0s    50 ▍ p99 max");
    person.press(Enter);
    assert_eq!(person.sees(80, 24)[7], "");
}

#[test]
fn the_mark_stays_with_its_row_and_in_sight() {
    let devices: Vec<_> = (0..100).map(|number| device(&format!("sd{number}"), "", Vec::new())).collect();
    let mut person = Person::before(Window { devices, ..Window::default() });
    let marked = |person: &Person| {
        let buffer = person.buffer(80, 10);
        let lines = (3..9).filter(|&y| buffer[(0, y)].modifier.contains(Modifier::REVERSED));
        lines.map(|y| (0..5).map(|x| buffer[(x, y)].symbol()).collect::<String>()).collect::<Vec<_>>()
    };
    assert!(marked(&person).is_empty());
    for (key, expected) in [(Down, "sd0  "), (Down, "sd1  "), (End, "sd99 "), (Up, "sd98 "), (Home, "sd0  ")]
    {
        person.press(key);
        assert_eq!(marked(&person), [expected]);
    }
    person.press(Down);
    person.state.sort = Column::Device;
    person.hit("r");
    assert_eq!(marked(&person), ["sd1  "]);
    person.hit("fzz");
    assert!(marked(&person).is_empty());
}

#[test]
fn longer_and_shorter() {
    let mut person = Person::before(window());
    person.hit("+++");
    assert_eq!(person.state.collections, 10);
    person.hit("-----");
    assert_eq!(person.state.collections, 1);
    person.hit("++++++++");
    assert_eq!(person.state.collections, 60);
    person.hit(" ");
    assert!(person.sees(80, 8)[0].ends_with("PAUSED"));
}

#[test]
fn what_must_not_be_overlooked() {
    let mut person = Person::before(window());
    person.windows[0].lost.insert("no_room".into(), 12);
    person.windows[0].devices[0].unseen.insert(Group::Read, 3);
    person.windows[0].failures = 1;
    person.trouble = Some("no answer for 3s, retrying: Connection refused".into());
    let sees = person.sees(80, 24);
    assert!(sees[0].ends_with("LOST"));
    let expected = [
        "1 collection failed",
        "not measured: 12 no_room, 3 missed by the probe",
        "no answer for 3s, retrying: Connection refused",
    ];
    assert_eq!(sees[20..23], expected);
    // The table is not pushed out.
    assert!(person.sees(40, 6)[3].starts_with("sda"));
}

#[test]
fn letters_that_every_terminal_has() {
    let mut person = Person::before(window());
    person.terminal.unicode = false;
    person.press(Enter);
    for (width, height) in [(40, 10), (80, 24), (200, 24)] {
        let sees = person.sees(width, height).join("\n");
        assert!(sees.is_ascii(), "{sees}");
        assert!(sees.contains("117us") && sees.contains('*'), "{sees}");
    }
}

#[test]
fn colour_where_it_is_wanted() {
    let mut person = Person::before(window());
    let colored = |person: &Person| {
        let buffer = person.buffer(80, 24);
        buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(!colored(&person));
    person.terminal.color = true;
    assert!(colored(&person));
    // 30 ms is worth a look, 117 µs is none.
    let buffer = person.buffer(80, 24);
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
