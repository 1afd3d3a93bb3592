//! A window as text: histograms, percentiles, and what they lack.

use std::{collections::BTreeMap, fmt::Write as _};

use biolat_common::{
    bucket::{TOP_EXPONENT, ZERO_EXPONENT},
    series::Phase,
};

use super::{
    terminal::{Look, Terminal},
    units::{self, Units},
    view::{Block, View},
    window::{Device, Figures, Window},
};
use crate::{
    histogram::{Bounds, ERROR_PERCENT, Histogram},
    losses,
    terminal::wrapped,
};

/// What percentiles are told.
const SHARES: [(&str, f64); 5] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// So many empty rows, one after another, are one that says so.
const GAP: usize = 5;

/// What everything but a title begins with.
const INDENT: usize = 2;

/// How it is to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// What the terminal can show.
    pub(super) terminal: Terminal,
    /// How wide it is.
    pub(super) width: usize,
    /// How numbers are written.
    pub(super) units: Units,
    /// A row for each bucket.
    pub(super) fine: bool,
}

/// All that is to be seen of a window.
#[must_use]
pub(super) fn window(window: &Window, view: &View, style: &Style) -> String {
    let mut text = String::new();
    if window.restarted {
        style.note(&mut text, "biolat was started anew: this is what came since then");
    }
    let blocks = view.blocks(window);
    if blocks.iter().all(|block| !block.is_busy()) {
        let _ = writeln!(text, "no I/O in {}", units::seconds(window.seconds));
    }
    for (number, block) in blocks.iter().filter(|block| block.is_busy()).enumerate() {
        if number > 0 {
            text.push('\n');
        }
        style.block(&mut text, block, window, view);
    }
    for (reason, count) in &window.lost {
        let line =
            format!("in no histogram: {} {reason} ({})", units::count(*count), losses::meaning(reason));
        style.note(&mut text, &line);
    }
    if window.failures > 0 {
        let line = format!("{} passes of the collector failed: their I/O came later", window.failures);
        style.note(&mut text, &line);
    }
    text
}

/// Rows of a histogram, each with its bounds and the counts of each column.
struct Rows(Vec<(Bounds, Vec<u64>)>);

impl Rows {
    /// From the first row in which there is something to the last one.
    fn of(histograms: &[&Histogram], fine: bool) -> Self {
        let counts: Vec<BTreeMap<i32, u64>> = histograms
            .iter()
            .map(|histogram| {
                let counts = if fine { histogram.buckets.clone() } else { histogram.octaves() };
                let mut counts: BTreeMap<i32, u64> = counts.into_iter().collect();
                let edge = |exponent: i32| if fine { exponent * 8 } else { exponent };
                for (row, count) in
                    [(edge(ZERO_EXPONENT), histogram.zero), (edge(TOP_EXPONENT) + 1, histogram.overflow)]
                {
                    if count > 0 {
                        *counts.entry(row).or_default() += count;
                    }
                }
                counts
            })
            .collect();
        let first = counts.iter().filter_map(|counts| counts.keys().next()).min().copied();
        let last = counts.iter().filter_map(|counts| counts.keys().last()).max().copied();
        let (Some(first), Some(last)) = (first, last) else { return Self(Vec::new()) };
        let bounds = |row: i32| {
            let [lower, upper] = if fine {
                [row - 1, row].map(|index| (f64::from(index) / 8.0).exp2())
            } else {
                [row - 1, row].map(|exponent| f64::from(exponent).exp2())
            };
            let zero = if fine { ZERO_EXPONENT * 8 } else { ZERO_EXPONENT };
            let top = if fine { TOP_EXPONENT * 8 } else { TOP_EXPONENT };
            Bounds {
                lower: if row <= zero { 0.0 } else { lower },
                upper: if row > top { f64::INFINITY } else { upper },
            }
        };
        let count = |row: i32| counts.iter().map(move |counts| counts.get(&row).copied().unwrap_or_default());
        Self((first..=last).map(|row| (bounds(row), count(row).collect())).collect())
    }
}

impl Style {
    fn block(&self, text: &mut String, block: &Block<'_>, window: &Window, view: &View) {
        let figures = &block.figures;
        // Where the phase is not to be had at all, the total is.
        let is_there = |phase: &Phase| figures.of(*phase).count() > 0;
        let mut phases: Vec<_> = view.phases.iter().copied().filter(is_there).collect();
        if phases.is_empty() {
            phases.push(Phase::Total);
        }
        let title = format!("{}: {}", self.title(block), titles(&phases));
        let _ = writeln!(text, "{}", self.terminal.paint(Look::Title, &self.cut(&title)));
        if figures.ios() > 0 {
            self.rows(text, figures, &phases);
            for &phase in &phases {
                let label = if phases.len() > 1 { phase.name() } else { "" };
                self.percentiles(text, label, figures.of(phase));
            }
        }
        self.load(text, block, window, &phases);
        self.faults(text, block, window, view);
    }

    fn title(&self, block: &Block<'_>) -> String {
        match block.device {
            Some(device) if !device.model.is_empty() => {
                let op = block.op.map(|op| format!(" {op}")).unwrap_or_default();
                format!("{} ({}){op}", device.name, device.model)
            }
            _ => block.name(),
        }
    }

    fn cut(&self, line: &str) -> String {
        line.chars().take(self.width).collect()
    }

    /// Latency, and for each histogram a count and a bar.
    fn rows(&self, text: &mut String, figures: &Figures, phases: &[Phase]) {
        let histograms: Vec<_> = phases.iter().map(|&phase| figures.of(phase)).collect();
        let Rows(rows) = Rows::of(&histograms, self.fine);
        let label = |bounds: &Bounds| -> (String, String) {
            let latency = |seconds: f64| self.units.latency(seconds);
            match bounds {
                Bounds { lower, .. } if *lower == 0.0 => ("0".to_owned(), latency(bounds.upper)),
                Bounds { upper, .. } if upper.is_infinite() => (latency(bounds.lower), String::new()),
                _ => (latency(bounds.lower), latency(bounds.upper)),
            }
        };
        let labels: Vec<_> = rows.iter().map(|(bounds, _)| label(bounds)).collect();
        let wide = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or_default();
        let chars = |text: &String| text.chars().count();
        let lower = wide(&mut labels.iter().map(|(lower, _)| chars(lower)));
        let upper = wide(&mut labels.iter().map(|(_, upper)| chars(upper)));
        let all: Vec<u64> = rows.iter().flat_map(|(_, counts)| counts.iter().copied()).collect();
        let count = wide(&mut all.iter().map(|&count| units::count(count).len()));
        let most: Vec<u64> = (0..histograms.len())
            .map(|column| rows.iter().map(|(_, counts)| counts[column]).max().unwrap_or_default())
            .collect();
        let dash = self.units.dash();
        let left = INDENT + lower + 1 + dash.chars().count() + 1 + upper;
        let column = (self.width.saturating_sub(left) / histograms.len()).max(count + 7);
        // Two spaces before the count, one after it.
        let bar = (column - count - 3).min(64);
        if let [others @ .., last] = phases
            && !others.is_empty()
        {
            // Each name stands where its bars do.
            let names: String = others.iter().map(|phase| format!("{:<column$}", phase.name())).collect();
            let line = format!("{:1$}{names}{2}", "", left + 2 + count + 1, last.name());
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let mut empty = 0;
        for (number, ((_, counts), (from, to))) in rows.iter().zip(&labels).enumerate() {
            let is_empty = |row: &(Bounds, Vec<u64>)| row.1.iter().all(|count| *count == 0);
            if is_empty(&rows[number]) {
                let run = rows[number..].iter().take_while(|row| is_empty(row)).count();
                if empty > 0 || run >= GAP {
                    if empty == 0 {
                        let dots = if self.units.unicode { "⋮" } else { ":" };
                        let _ = writeln!(text, "{:INDENT$}{dots:>lower$}", "");
                    }
                    empty += 1;
                    continue;
                }
            }
            empty = 0;
            let _ = write!(text, "{:INDENT$}{from:>lower$} {dash} {to:>upper$}", "");
            for (at, counted) in counts.iter().enumerate() {
                let share = *counted as f64 / most[at].max(1) as f64;
                let is_last = at + 1 == counts.len();
                let bar = self.terminal.bar(share, bar, !is_last);
                let _ = write!(text, "  {:>count$}", units::count(*counted));
                if !bar.is_empty() {
                    let _ = write!(text, " {bar}");
                }
            }
            text.push('\n');
        }
    }

    fn percentiles(&self, text: &mut String, label: &str, histogram: &Histogram) {
        let told = SHARES.iter().filter_map(|(name, share)| {
            let bounds = histogram.percentile(*share)?;
            Some(format!("{name} {}", self.bounds(bounds)))
        });
        let label = if label.is_empty() { String::new() } else { format!("{label:<6}  ") };
        let line = format!("{label}{}", told.collect::<Vec<_>>().join("  "));
        let _ = writeln!(text, "{:INDENT$}{line}", "");
    }

    /// The middle of a bucket; where there is none, the bound that it is beyond.
    fn bounds(&self, bounds: Bounds) -> String {
        match bounds.middle() {
            Some(middle) => self.units.latency(middle),
            None if bounds.lower == 0.0 => format!("<{}", self.units.latency(bounds.upper)),
            None => format!(">{}", self.units.latency(bounds.lower)),
        }
    }

    /// How much there was to do.
    fn load(&self, text: &mut String, block: &Block<'_>, window: &Window, phases: &[Phase]) {
        let (ios, bytes) = (block.figures.ios(), block.figures.bytes);
        let mut parts = vec![
            format!("{} I/O in {}", units::count(ios), units::seconds(window.seconds)),
            format!("{}/s", units::rate(window.rate(ios))),
        ];
        if bytes > 0 {
            parts.push(format!("{}/s", units::bytes(window.rate(1) * bytes as f64)));
        }
        if let &[phase] = phases
            && let Some(mean) = block.figures.of(phase).mean()
        {
            parts.push(format!("mean {}", self.units.latency(mean)));
        }
        if ios > 0 {
            parts.push(format!("percentiles {}", self.units.error(ERROR_PERCENT)));
        }
        let _ = writeln!(text, "{:INDENT$}{}", "", wrapped(&parts.join(", "), self.width, INDENT));
    }

    /// What failed, and what the figures lack.
    fn faults(&self, text: &mut String, block: &Block<'_>, window: &Window, view: &View) {
        let list = |counts: &BTreeMap<String, u64>| {
            let counts = counts.iter().map(|(name, count)| format!("{} {name}", units::count(*count)));
            counts.collect::<Vec<_>>().join(", ")
        };
        if !block.figures.errors.is_empty() {
            self.say(text, Look::Bad, &format!("errors: {}", list(&block.figures.errors)));
        }
        if !block.unseen.is_empty() {
            let line =
                format!("unseen: {} (the kernel booked them and did not run the probe)", list(&block.unseen));
            self.say(text, Look::Note, &line);
        }
        let wants_more = view.phases.iter().any(|phase| *phase != Phase::Total);
        let stamped = block.figures.of(Phase::Device).count();
        let without = block.figures.ios().saturating_sub(stamped);
        if !wants_more || without == 0 {
            return;
        }
        let is_busy = |device: &&Device| device.all().ios() > 0 && !device.lacks.is_empty();
        let devices: Vec<&Device> = match block.device {
            Some(device) => vec![device],
            None => window.devices.iter().collect(),
        };
        let lacking: Vec<_> = devices.into_iter().filter(is_busy).collect();
        for device in &lacking {
            self.say(text, Look::Note, &device.lacks);
        }
        if lacking.is_empty() {
            let line = format!(
                "{} of them have a total (-Q) and no more: an empty flush never reaches the driver",
                units::count(without)
            );
            self.say(text, Look::Note, &line);
        }
    }

    fn say(&self, text: &mut String, look: Look, line: &str) {
        for line in wrapped(line, self.width, INDENT).lines() {
            let _ = writeln!(text, "{:INDENT$}{}", "", self.terminal.paint(look, line.trim_start()));
        }
    }

    fn note(&self, text: &mut String, line: &str) {
        for line in wrapped(line, self.width, 0).lines() {
            let _ = writeln!(text, "{}", self.terminal.paint(Look::Note, line));
        }
    }
}

fn titles(phases: &[Phase]) -> String {
    let names: Vec<_> = phases.iter().map(|phase| phase.name()).collect();
    format!("{} latency", names.join(" | "))
}

#[cfg(test)]
mod tests {
    use biolat_common::series::Phase;

    use super::{Style, window};
    use crate::report::{samples, terminal::Terminal, units::Units, view::View, window::Window};

    fn style(unicode: bool, width: usize, fine: bool) -> Style {
        let terminal = Terminal { color: false, unicode, is_terminal: unicode };
        Style { terminal, width, units: Units { unicode, milliseconds: false }, fine }
    }

    /// 8 reads of at most 1/1024 s, 4 of at most twice that, one a second, one too long, one too short to tell.
    fn seen() -> Window {
        let total = || samples::histogram(1, &[(-82, 4), (-80, 4), (-73, 4), (0, 1)], 1, 30.0);
        let queue = samples::histogram(14, &[(-159, 1)], 0, 0.0);
        let mut op = samples::op("read", 15 * 4096, queue, total(), total());
        op.errors.insert("medium".into(), 2);
        let mut sda = samples::device("sda", 9.0, vec![op]);
        (sda.model, sda.unseen) = ("Fast Drive 9".into(), [("read".to_owned(), 3)].into());
        let mut after = samples::snapshot(105.0, vec![sda]);
        after.lost.insert("no_room".into(), 7);
        Window::between(&samples::snapshot(100.0, vec![]), &after)
    }

    fn view(phases: &[Phase]) -> View {
        View { by_device: true, by_op: true, phases: phases.to_vec() }
    }

    #[test]
    fn every_figure_has_its_place() {
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
        // Where a bar ends is the terminal's business; that the longest ends at the edge is this.
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
            "unseen: 3 read",
            "in no histogram: 7 no_room",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
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
    fn what_has_no_device_latency_says_why_and_shows_the_total() {
        let nothing = || samples::histogram(0, &[], 0, 0.0);
        let op = samples::op("read", 4096, nothing(), nothing(), samples::histogram(0, &[(-80, 9)], 0, 0.1));
        let mut sda = samples::device("sda", 9.0, vec![op]);
        sda.phases = vec!["total".into()];
        sda.lacks = "device sda: turn it on with: echo 2000 > /sys/block/sda/queue/wbt_lat_usec".into();
        let seen = Window::between(&samples::snapshot(1.0, vec![]), &samples::snapshot(2.0, vec![sda]));
        let text = window(&seen, &view(&[Phase::Device]), &style(false, 90, false));
        assert!(text.starts_with("sda read: total latency\n"), "{text}");
        assert!(text.contains("echo 2000 > /sys/block/sda/queue/wbt_lat_usec"), "{text}");
        let text = window(&seen, &view(&[Phase::Total]), &style(false, 90, false));
        assert!(!text.contains("echo"), "it was not asked for: {text}");
    }

    #[test]
    fn no_io_is_one_line() {
        let seen = Window::between(&samples::snapshot(1.0, vec![]), &samples::snapshot(3.0, vec![]));
        assert_eq!(window(&seen, &view(&[Phase::Device]), &style(false, 80, false)), "no I/O in 2 s\n");
    }
}
