//! The tables by workload.

use biolat_model::snapshot::{Snapshot, WorkloadView};
use biolat_system::terminal::Terminal;
use biolat_testing::samples::{self, usage, workload};

use super::{TextStyle, window};
use crate::{breakdown::Breakdown, window::Window};

fn style(unicode: bool, width: usize) -> TextStyle {
    let terminal = Terminal { color: false, unicode, is_terminal: unicode };
    TextStyle { terminal, width, numbers: terminal.numbers(false), fine: false }
}

/// A window of five seconds with two drives, the second of which is idle.
fn seen(workloads: Option<Vec<WorkloadView>>) -> Window {
    let mut sda = samples::device("sda", 9.0, vec![]);
    sda.device.model = "Fast Drive 9".into();
    let after =
        Snapshot { workloads, ..samples::snapshot(6.0, vec![sda, samples::device("sdb", 9.0, vec![])]) };
    Window::between(&samples::snapshot(1.0, vec![]), &after)
}

fn text(workloads: Option<Vec<WorkloadView>>, unicode: bool, width: usize) -> String {
    let breakdown = Breakdown { who: true, ..Breakdown::default() };
    window(&seen(workloads), &breakdown, &style(unicode, width))
}

fn busy() -> Vec<WorkloadView> {
    let named = |name: &str, usage| WorkloadView { name: name.into(), ..workload("/x/y", usage) };
    vec![
        named("root cgroup", vec![usage("sda", "write", 5, 0.0, 0.1)]),
        named(
            "postgresql.service",
            vec![usage("sda", "read", 200, 1e-3, 13e-3), usage("sda", "write", 50, 0.0, 10e-3)],
        ),
        named("backup.service", vec![usage("sda", "read", 40_000, 0.0, 1.5e-3)]),
        named("asleep", vec![]),
    ]
    .into_iter()
    .enumerate()
    .map(|(number, workload)| match number {
        0 => WorkloadView { cgroup: "/".to_owned(), ..workload },
        _ => WorkloadView { cgroup: format!("/{number}"), ..workload },
    })
    .collect()
}

#[test]
fn shows_a_row_per_workload() {
    let expected = "\
sda (Fast Drive 9): workloads by share of the drive's time
  workload            share                  IOPS  MB/s  depth      p50      p99
  backup.service       94 % █████████████▎  8,000    33     12  1.64 ms  1.64 ms
  postgresql.service  4.9 % ▋                50.0   0.2    0.6  13.1 ms  13.1 ms
  root cgroup         0.8 % ▏                1.00  <0.1    0.1   105 ms   105 ms
  root cgroup: the kernel's own I/O (journal, metadata, flushes), and I/O of
  processes in it and in cgroups without the io controller (see biolat check)
  40,255 I/O in 5 s, 8,051/s, mean depth 13, percentiles (total latency) ±19 %
";
    assert_eq!(text(Some(busy()), true, 80), expected);
    let mut failing = busy();
    failing[0].usage[0].errors = 12;
    let expected = "\
sda (Fast Drive 9): workloads by share of the drive's time
  workload         share   IOPS  MB/s  depth      p50      p99  errors
  backup.service    94 %  8,000    33     12  1.64 ms  1.64 ms
  postgresql.ser~  4.9 %   50.0   0.2    0.6  13.1 ms  13.1 ms
  root cgroup      0.8 %   1.00  <0.1    0.1   105 ms   105 ms      12
  root cgroup: the kernel's own I/O (journal, metadata, flushes), and
  I/O of processes in it and in cgroups without the io controller (see
  biolat check)
  40,255 I/O in 5 s, 8,051/s, mean depth 13, percentiles (total
  latency) +-19 %
";
    assert_eq!(text(Some(failing), false, 70), expected);
}

#[test]
fn fits_the_width_of_the_terminal() {
    let mut workloads = busy();
    workloads[1].name = "production/postgresql-primary-0/postgresql-with-a-long-name".into();
    for width in [70, 80, 120, 200] {
        for unicode in [true, false] {
            let text = text(Some(workloads.clone()), unicode, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            assert_eq!(text.is_ascii(), !unicode, "{text}");
        }
    }
}

#[test]
fn cuts_long_tables() {
    let workloads = (0..25)
        .map(|number| workload(&format!("/w{number}"), vec![usage("sda", "read", 1000 - number, 0.0, 1e-3)]));
    let text = text(Some(workloads.collect()), true, 80);
    assert!(text.contains("  /w19 ") && !text.contains("  /w20 "), "{text}");
    assert!(text.contains("\n  and 5 more with 20 %: see --json\n  24,700 I/O in 5 s, "), "{text}");
}

#[test]
fn reports_missing_workloads_and_missing_io() {
    let why = text(None, false, 200);
    assert!(why.starts_with("no workloads are counted there: ") && why.lines().count() == 1, "{why}");
    assert_eq!(text(Some(vec![]), false, 80), "no I/O completed in 5 s\n");
}
