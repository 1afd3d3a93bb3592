//! The text of a window.

use std::time::Duration;

use biolat_common::series::Phase;
use biolat_model::{device::Group, snapshot::Inflight};
use biolat_system::terminal::Terminal;
use biolat_testing::samples;

use super::{TextStyle, window};
use crate::{breakdown::Breakdown, options::By, window::Window};

fn style(unicode: bool, width: usize, fine: bool) -> TextStyle {
    let terminal = Terminal { color: false, unicode, is_terminal: unicode };
    TextStyle { terminal, width, numbers: terminal.numbers(false), fine }
}

/// 8 reads of at most 1/1024 s, 4 of at most twice that, one of a second, one above the range, one below it.
fn seen() -> Window {
    let total = || samples::histogram(1, &[(-82, 4), (-80, 4), (-73, 4), (0, 1)], 1, 30.0);
    let queue = samples::histogram(14, &[(-159, 1)], 0, 0.0);
    let mut op = samples::op("read", 15 * 4096, queue, total(), total());
    op.errors.insert("medium".into(), 2);
    let mut sda = samples::device("sda", 9.0, vec![op]);
    (sda.device.model, sda.unseen) = ("Fast Drive 9".into(), [(Group::Read, 3)].into());
    let mut after = samples::snapshot(105.0, vec![sda]);
    after.lost.insert("no_room".into(), 7);
    Window::between(&samples::snapshot(100.0, vec![]), &after)
}

fn view(phases: &[Phase]) -> Breakdown {
    Breakdown { by: Some(By::Device), by_op: true, phases: phases.to_vec(), ..Breakdown::default() }
}

#[test]
fn shows_every_figure() {
    let text = window(&seen(), &view(&[Phase::Device]), &style(false, 60, false));
    let expected = "\
sda (Fast Drive 9) read: device latency
        0 ->  954 ns  1 ****
        :
   488 us ->  977 us  8 ***********************************
   977 us -> 1.95 ms  4 ******************
        :
   500 ms ->  1.00 s  1 ****
        :
   1024 s ->          1 ****
";
    // The exact length of a bar is tested elsewhere. Here, the longest bar must end at the edge.
    let bars = |line: &str| line.trim_end_matches('*').trim_end().to_owned();
    let lines: Vec<_> = text.lines().map(bars).collect();
    for line in expected.lines().map(bars) {
        assert!(lines.contains(&line), "{line} is not in:\n{text}");
    }
    assert!(text.lines().any(|line| line.contains(" 8 ***") && line.len() == 60), "{text}");
    for part in [
        "p50 935 us  p90 ",
        "max >1024 s",
        "15 I/O in 5 s, 3.00/s, 12.0 KiB/s, mean 2.00 s,\n  percentiles +-4.4 %\n",
        "errors: 2 medium",
        "missed: 3 read",
        "in no histogram: 7 no_room",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn fits_the_width_of_the_terminal() {
    for width in [60, 80, 120] {
        for phases in [&[Phase::Total][..], &Phase::ALL] {
            for (unicode, fine) in [(true, false), (false, true)] {
                let text = window(&seen(), &view(phases), &style(unicode, width, fine));
                for line in text.lines() {
                    assert!(line.chars().count() <= width.max(78), "{width}: {line}");
                }
                assert_eq!(text.is_ascii(), !unicode, "{text}");
            }
        }
    }
}

#[test]
fn falls_back_to_total_latency_with_a_hint() {
    let nothing = || samples::histogram(0, &[], 0, 0.0);
    let op = samples::op("read", 4096, nothing(), nothing(), samples::histogram(0, &[(-80, 9)], 0, 0.1));
    let mut sda = samples::device("sda", 9.0, vec![op]);
    sda.phases = [false, false, false, true];
    sda.lacks = "device sda: enable with: echo 2000 > /sys/block/sda/queue/wbt_lat_usec".into();
    let seen = Window::between(&samples::snapshot(1.0, vec![]), &samples::snapshot(2.0, vec![sda]));
    let text = window(&seen, &view(&[Phase::Device]), &style(false, 90, false));
    assert!(text.starts_with("sda read: total latency\n"), "{text}");
    assert!(text.contains("echo 2000 > /sys/block/sda/queue/wbt_lat_usec"), "{text}");
    let text = window(&seen, &view(&[Phase::Total]), &style(false, 90, false));
    assert!(!text.contains("echo"), "no device latency was asked for: {text}");
}

#[test]
fn shows_admission_or_reports_it_missing() {
    let of = |admission: bool| {
        let total = || samples::histogram(0, &[(-80, 9)], 0, 0.1);
        let mut op = samples::op("read", 4096, total(), total(), total());
        let mut sda = samples::device("sda", 9.0, vec![]);
        if admission {
            op.histograms[Phase::Admission as usize] = samples::histogram(0, &[(-40, 9)], 0, 0.9);
        } else {
            sda.phases[Phase::Admission as usize] = false;
        }
        sda.series.push(op);
        Window::between(&samples::snapshot(1.0, vec![]), &samples::snapshot(2.0, vec![sda]))
    };
    let text = |admission, phases: &[Phase]| window(&of(admission), &view(phases), &style(false, 100, false));
    let there = text(true, &Phase::ALL);
    assert!(there.starts_with("sda read: admission | queue | device | total latency\n"), "{there}");
    assert!(there.contains("\n  admission  p50 29.9 ms") && there.contains("\n  queue      p50 "), "{there}");
    let missing = "sda: the wait before a request exists (throttling, wait for a tag) is not recorded";
    for (admission, phases, is_reported) in [
        (true, &Phase::ALL[..], false),
        (false, &Phase::ALL, true),
        (false, &[Phase::Total], true),
        (false, &[Phase::Device], false),
    ] {
        assert_eq!(text(admission, phases).contains(missing), is_reported, "{phases:?}");
    }
    let gone = text(false, &Phase::ALL);
    assert!(gone.starts_with("sda read: queue | device | total latency\n"), "{gone}");
}

#[test]
fn shows_a_hung_device() {
    let mut sda = samples::device("sda", 9.0, vec![]);
    sda.inflight = Inflight { reads: 3, writes: 9, oldest: Duration::from_secs_f64(16.04), is_exact: false };
    let seen = Window::between(&samples::snapshot(1.0, vec![]), &samples::snapshot(6.0, vec![sda]));
    let expected = "\
sda: 12 I/Os in flight, none completed for at least 16 s.
sda: total latency
  0 I/O in 5 s, 0/s
  3 reads and 9 writes in flight, the oldest for at least 16 s
";
    let breakdown = Breakdown { by_op: false, ..view(&[Phase::Device]) };
    assert_eq!(window(&seen, &breakdown, &style(false, 80, false)), expected);
    // In the breakdown by op, an op without completions gets no block.
    let lines = expected.lines().next().unwrap().to_owned() + "\nno I/O completed in 5 s\n";
    assert_eq!(window(&seen, &view(&[Phase::Device]), &style(false, 80, false)), lines);
}

#[test]
fn no_io_is_one_line() {
    let seen = Window::between(&samples::snapshot(1.0, vec![]), &samples::snapshot(3.0, vec![]));
    assert_eq!(window(&seen, &view(&[Phase::Device]), &style(false, 80, false)), "no I/O in 2 s\n");
}
