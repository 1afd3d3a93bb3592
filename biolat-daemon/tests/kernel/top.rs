//! `biolat top` in an emulated terminal.

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use crate::support::{
    daemon::{Daemon, biolat, command, program},
    loop_device::LoopDevice,
    terminal::{Screen, Terminal},
};

/// A device that fio reads from until this is dropped.
struct Busy {
    device: LoopDevice,
    fio: Child,
}

impl Busy {
    fn with(device: LoopDevice, options: &[&str]) -> Self {
        let mut fio = Command::new("fio");
        fio.arg(format!("--filename={}", device.path().display()));
        fio.args(["--name=reads", "--rw=randread", "--direct=1", "--time_based", "--runtime=600"]);
        // Run jobs as threads, so they end with fio's process however it ends.
        let fio = fio.args(["--thread", "--ioengine=libaio"]).args(options).stdout(Stdio::null());
        Self { device, fio: fio.spawn().unwrap() }
    }

    /// A device backed by memory, read one block at a time.
    fn fast() -> Self {
        Self::with(LoopDevice::attach("fast", true), &["--bs=4k", "--iodepth=1"])
    }

    /// A device with many large reads in flight, which wait for each other.
    fn slow() -> Self {
        Self::with(LoopDevice::attach("slow", false), &["--bs=1M", "--iodepth=64"])
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.fio.kill();
        let _ = self.fio.wait();
    }
}

/// Line of the column titles.
const TITLES: usize = 2;

fn first_row(screen: &Screen) -> &str {
    screen.lines[TITLES + 1].split_whitespace().next().unwrap_or_default()
}

/// Whether there is nothing below the two rows except the list of unmeasured devices and the keys.
fn is_clean(screen: &Screen) -> bool {
    let below = &screen.lines[TITLES + 3..screen.lines.len() - 1];
    below.iter().all(|line| line.is_empty() || line.starts_with("not measured: "))
}

/// Selects queue latency, which comes after admission if the kernel records admission.
fn show_queue(terminal: &mut Terminal) -> Screen {
    terminal.press("p");
    let screen = terminal.wait_for("the next phase", |s| s.alternate && !s.lines[1].starts_with("total"));
    if screen.lines[1].starts_with("admission latency") {
        terminal.press("p");
    }
    terminal.wait_for("the queue's latency", |s| s.lines[1].starts_with("queue latency"))
}

#[test]
#[ignore = "needs root, fio and Python's pyte: cargo xtask test"]
fn sorts_slow_device_first() {
    let (fast, slow) = (Busy::fast(), Busy::slow());
    let (fast, slow) = (fast.device.name.as_str(), slow.device.name.as_str());
    let both = format!("{fast}|{slow}");
    let mut terminal = Terminal::run(&biolat(), &["top", "--device", &both]);
    let is_live = |screen: &Screen| screen.shows("LIVE") && screen.shows(fast) && screen.shows(slow);
    let screen = terminal.wait_for("the slow device at the top", |s| is_live(s) && first_row(s) == slow);
    assert!(screen.alternate && !screen.cursor && !screen.restored, "{screen:?}");
    assert!(screen.lines[1].starts_with("total latency · all ops · by p99"), "{screen:?}");
    let titles: Vec<_> = screen.lines[TITLES].split_whitespace().take(9).collect();
    assert_eq!(titles, ["DEVICE", "IOPS", "MB/s", "p50", "p99", "p99.9", "max", "QUEUE", "ERR"]);
    assert!(screen.lines[23].starts_with("q quit  ? help"), "{screen:?}");

    assert!(!show_queue(&mut terminal).shows("QUEUE"));
    terminal.press("p");
    terminal.wait_for("the device's latency", |s| s.lines[1].starts_with("device latency"));
    terminal.press("p");
    terminal.press("SSS");
    terminal.wait_for("the busy device at the top", |s| s.shows("by IOPS") && first_row(s) == fast);
    terminal.press("r");
    terminal.wait_for("the reversed order", |s| s.shows("by IOPS, reversed") && first_row(s) == slow);
    terminal.press("\x1b[B\r");
    let screen = terminal.wait_for("its histogram", |s| s.shows("all · "));
    assert!(screen.shows(&format!("{slow} all · ")) && screen.shows("█"), "{screen:?}");
    terminal.press("\ro");
    terminal.wait_for("a row for each op", |s| s.shows("each op") && s.shows(&format!("{slow}   read")));
    terminal.press("o");
    terminal.wait_for("reads only", |s| s.shows("read only"));
    terminal.press(&format!("/{fast}\r"));
    terminal.wait_for("one device", |s| s.shows(&format!("devices with '{fast}'")) && !s.shows(slow));

    terminal.press("/\x1b");
    terminal.resize(40, 10);
    let narrow = terminal.wait_for("a small table", |s| s.lines.len() == 10 && s.shows("LIVE") && is_live(s));
    assert!(narrow.lines.iter().all(|line| line.chars().count() <= 40), "{narrow:?}");
    assert!(narrow.lines[9].starts_with("q quit  ? help") && is_clean(&narrow), "{narrow:?}");
    terminal.resize(80, 24);
    let wide =
        terminal.wait_for("a large table", |s| s.lines.len() == 24 && s.lines[23].starts_with("q quit"));
    assert!(is_live(&wide) && is_clean(&wide), "{wide:?}");

    terminal.press("q");
    let screen = terminal.wait_for("biolat to exit", |s| s.state == "ended");
    assert!(screen.is_restored() && screen.status == Some(0), "{screen:?}");
}

/// Starts `biolat top` with its own probe, in its sandbox.
fn start_top() -> Terminal {
    let mut terminal = Terminal::run(&biolat(), &["top", "0.2"]);
    let screen = terminal.wait_for("the table", |s| s.shows("LIVE") && s.shows("DEVICE"));
    assert!(screen.alternate && !screen.cursor && !screen.restored, "{screen:?}");
    terminal
}

#[test]
#[ignore = "needs root and Python's pyte: cargo xtask test"]
fn restores_terminal_on_every_exit() {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        let mut terminal = start_top();
        terminal.signal(signal);
        let screen = terminal.wait_for("biolat to exit", |s| s.state == "ended");
        assert!(screen.is_restored() && screen.status == Some(0), "after signal {signal}: {screen:?}");
    }
    for key in ["\x03", "\x1b", "?q"] {
        let mut terminal = start_top();
        terminal.press(key);
        let screen = terminal.wait_for("biolat to exit", |s| s.state == "ended");
        assert!(screen.is_restored() && screen.status == Some(0), "after {key:?}: {screen:?}");
    }
}

#[test]
#[ignore = "needs root and Python's pyte: cargo xtask test"]
fn suspends_and_resumes() {
    let mut terminal = Terminal::run("bash".as_ref(), &["--norc", "--noprofile", "-i"]);
    let command = format!("PS1='ready$ '; '{}' top 0.2\n", biolat().to_str().unwrap());
    terminal.press(&command);
    let is_table = |s: &Screen| s.alternate && !s.cursor && s.shows("LIVE") && s.shows("DEVICE");
    terminal.wait_for("the table", is_table);
    for _ in 0..2 {
        terminal.press("\x1a");
        let screen = terminal.wait_for("the shell", |s| s.shows("Stopped") && s.shows("ready$"));
        assert!(!screen.alternate && screen.cursor, "{screen:?}");
        terminal.press("clear; fg\n");
        terminal.wait_for("the table again", is_table);
    }
    terminal.press("q");
    terminal.wait_for("the shell", |s| !s.alternate && s.cursor && s.shows("ready$"));
    terminal.press("clear; echo \"it ended with $?\"; stty -a | grep -o ' echo '; exit\n");
    let screen = terminal.wait_for("the shell's end", |s| s.state == "ended");
    assert!(screen.is_restored(), "{screen:?}");

    // With no shell to resume it, `biolat top` ignores Ctrl-Z.
    let mut terminal = start_top();
    terminal.press("\x1a");
    let screen = show_queue(&mut terminal);
    assert!(is_table(&screen) && screen.state == "runs", "{screen:?}");
}

fn daemon_on(address: SocketAddr) -> Daemon {
    let mut command = Command::new(program());
    command.args(["--interval", "200ms", "--listen", &address.to_string()]);
    Daemon::start_command(&mut command)
}

#[test]
#[ignore = "needs root and Python's pyte: cargo xtask test"]
fn reports_lost_daemon_and_reconnects() {
    let daemon = Daemon::start_command(command(&["--interval", "200ms"]).stdout(Stdio::null()));
    let address = daemon.address;
    let url = format!("http://{address}");
    let mut terminal = Terminal::run(&biolat(), &["top", "--host", &url]);
    let screen = terminal.wait_for("the table", |s| s.shows("LIVE") && s.shows("0 s old"));
    assert!(screen.shows(&url), "{screen:?}");
    drop(daemon);
    let screen =
        terminal.wait_for("the lost connection", |s| s.shows("LOST") && s.shows("no answer for 2 s"));
    assert!(screen.shows("retrying") && !screen.shows("LIVE") && screen.shows("DEVICE"), "{screen:?}");
    let _daemon = daemon_on(address);
    terminal.wait_for("the reconnection", |s| s.shows("LIVE") && !s.shows("no answer"));
    terminal.press("q");
    let screen = terminal.wait_for("biolat to exit", |s| s.state == "ended");
    assert!(screen.is_restored() && screen.status == Some(0), "{screen:?}");
}
