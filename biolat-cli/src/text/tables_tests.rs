//! The tables by size and by CPU.

use biolat_model::snapshot::{DeviceView, SeriesView};
use biolat_system::cpus::CpuNodes;
use biolat_system::terminal::Terminal;
use biolat_testing::samples;

use super::{TextStyle, window};
use crate::{breakdown::Breakdown, window::Window};

fn style(unicode: bool, width: usize) -> TextStyle {
    let terminal = Terminal { color: false, unicode, is_terminal: unicode };
    TextStyle { terminal, width, numbers: terminal.numbers(false), fine: false }
}

fn op(name: &str) -> SeriesView {
    let total = || samples::histogram(0, &[(-80, 100)], 0, 0.1);
    samples::op(name, 4096, samples::histogram(0, &[], 0, 0.0), total(), total())
}

fn by_size() -> DeviceView {
    let mut write = op("write");
    write.sizes = Some(samples::sizes(&[
        ("le_4KiB", &[(12, 1200)], 80e-6),
        ("le_1MiB", &[(20, 40)], 9e-3),
        ("gt_1MiB", &[(21, 1)], 2e-6),
    ]));
    let mut sda = samples::device("sda", 9.0, vec![op("flush"), write]);
    sda.device.model = "Fast Drive 9".into();
    sda
}

fn seen(device: DeviceView) -> Window {
    Window::between(&samples::snapshot(1.0, vec![]), &samples::snapshot(6.0, vec![device]))
}

fn sizes() -> Breakdown {
    Breakdown { sizes: true, ..Breakdown::default() }
}

fn cpus(nodes: &[(usize, u32)]) -> Breakdown {
    Breakdown { cpus: Some(CpuNodes(nodes.iter().copied().collect())), ..Breakdown::default() }
}

#[test]
fn sizes_have_a_row_per_band() {
    let expected = "\
sda (Fast Drive 9) write: device latency by size
  size            I/Os     mean      p50      p99      max  1.9µs    16ms
  up to 4 KiB    1,200  80.0 µs  72.6 µs  72.6 µs  72.6 µs       █
  256 KiB-1 MiB     40  9.00 ms  9.29 ms  9.29 ms  9.29 ms              █
  above 1 MiB        1  2.00 µs  2.27 µs  2.27 µs  2.27 µs  █
  1,241 I/O in 5 s, 248/s, percentiles ±19 %
";
    assert_eq!(window(&seen(by_size()), &sizes(), &style(true, 80)), expected);
    let expected = "\
sda (Fast Drive 9) write: device latency by size
  size            I/Os     mean      p50      p99      max  1.9us 16ms
  up to 4 KiB    1,200  80.0 us  72.6 us  72.6 us  72.6 us    @
  256 KiB-1 MiB     40  9.00 ms  9.29 ms  9.29 ms  9.29 ms        @
  above 1 MiB        1  2.00 us  2.27 us  2.27 us  2.27 us  @
  1,241 I/O in 5 s, 248/s, percentiles +-19 %
";
    assert_eq!(window(&seen(by_size()), &sizes(), &style(false, 72)), expected);
    assert!(!window(&seen(by_size()), &sizes(), &style(false, 71)).contains('@'));
}

#[test]
fn cpus_have_a_bar_each() {
    let device = || {
        let mut view = samples::device("sda", 9.0, vec![op("read")]);
        view.spread.completions = vec![0, 1000, 0, 0, 20, 0, 0, 0, 0, 0, 980];
        view
    };
    let expected = "\
sda: completions by CPU
  CPU  1  1,000   50 % *****************
  CPU  4     20  1.0 % *
  CPU 10    980   49 % *****************
  2,000 requests in 5 s, 400/s,
  effective CPUs 2.0 (1 / sum of squared
  shares)
";
    assert_eq!(window(&seen(device()), &cpus(&[(1, 0), (10, 0)]), &style(false, 40)), expected);
    let expected = "\
sda: completions by CPU
  NUMA node 0: 1.0 %
  CPU  4     20  1.0 % ▊
  NUMA node 1: 99 %
  CPU  1  1,000   50 % ████████████████████████████████████████
  CPU 10    980   49 % ███████████████████████████████████████▎
  2,000 requests in 5 s, 400/s, effective CPUs 2.0 (1 / sum of squared shares)
";
    assert_eq!(window(&seen(device()), &cpus(&[(1, 1), (4, 0), (10, 1)]), &style(true, 80)), expected);
}

#[test]
fn combines_tables_and_reports_no_io() {
    let both = Breakdown { sizes: true, ..cpus(&[]) };
    let mut device = by_size();
    device.spread.completions = vec![7];
    let text = window(&seen(device), &both, &style(false, 80));
    assert!(text.contains("/s, percentiles +-19 %\n\nsda (Fast Drive 9): completions by CPU\n"), "{text}");
    let mut idle = by_size();
    idle.spread.completions = vec![0];
    idle.series[1].sizes = Some(samples::sizes(&[]));
    assert_eq!(
        window(&seen(idle.clone()), &sizes(), &style(false, 80)),
        "no read or write completed in 5 s\n"
    );
    assert_eq!(window(&seen(idle.clone()), &cpus(&[]), &style(false, 80)), "no I/O completed in 5 s\n");
    // Before its first I/O.
    let none = || samples::histogram(0, &[], 0, 0.0);
    (idle.series, idle.spread.completions) = (vec![samples::op("read", 0, none(), none(), none())], vec![]);
    assert_eq!(window(&seen(idle), &cpus(&[]), &style(false, 80)), "no I/O completed in 5 s\n");
}

#[test]
fn reports_uncounted_figures_in_one_line() {
    let older = || samples::device("sda", 9.0, vec![op("read")]);
    let text = window(&seen(older()), &sizes(), &style(false, 200));
    assert!(text.starts_with("no sizes are counted there: ") && text.lines().count() == 1, "{text}");
    let text = window(&seen(older()), &cpus(&[]), &style(false, 200));
    assert!(text.starts_with("completions by CPU are unknown there") && text.lines().count() == 1, "{text}");
}

/// Latencies below and above the range, and a single octave.
#[test]
fn charts_fit_any_range() {
    for latencies in [&[0.0, 1e-6, 2000.0][..], &[0.0], &[1023.0], &[2000.0, 1e-3]] {
        let names = ["le_4KiB", "le_64KiB", "gt_1MiB"];
        let bands = names.into_iter().zip(latencies).map(|(name, seconds)| (name, &[(12, 9)][..], *seconds));
        let mut device = by_size();
        device.series[1].sizes = Some(samples::sizes(&bands.collect::<Vec<_>>()));
        for width in [40, 76, 80, 200] {
            let text = window(&seen(device.clone()), &sizes(), &style(true, width));
            assert_eq!(
                text.matches("KiB  ").count() + text.matches("MiB  ").count(),
                latencies.len(),
                "{text}"
            );
            assert!(text.lines().all(|line| line.chars().count() <= width.max(66)), "{width}: {text}");
        }
    }
}
