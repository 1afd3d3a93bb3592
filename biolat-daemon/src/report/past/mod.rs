//! What a daemon's history has of a range of the past: the same windows as live, or the worst intervals.

mod range;
mod worst;

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use super::{
    breakdown::Breakdown,
    findings, json,
    options::ReportOptions,
    output::write,
    remote, slow,
    text::{self, TextStyle},
    window::Window,
};
use crate::{
    api::{ApiHistory, ApiInterval, ApiSnapshot, Daemon},
    clock,
    cpus::CpuNodes,
    format, log_lines,
    rights::{self, Role},
    terminal::{Highlight, Terminal, wrapped},
};
pub(super) use range::PastRange;

/// Shows the range that the options select.
pub(super) async fn run(options: &ReportOptions, range: PastRange) -> Result<ExitCode> {
    // The past is asked of a daemon.
    let target = options.from.clone().context("--from is missing")?;
    rights::drop_privileges(Role::Serving, false)?;
    let output = Output::of(options);
    let rest = if options.worst {
        "step=60&detail=summary".to_owned()
    } else {
        format!("step={}", range.step(options.interval).as_secs_f64())
    };
    let history = remote::fetch(target.clone(), range.query(&rest), options).await?;
    output.begin(&history, &target.to_string(), range).await?;
    if options.worst {
        worst::show(&output, &history).await?;
    } else {
        for interval in &history.intervals {
            output.window(&history, interval).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The I/O of an interval.
fn window_of(interval: &ApiInterval, collected_every: f64) -> Window {
    let after = interval.as_snapshot(collected_every);
    let before = ApiSnapshot {
        devices: Vec::new(),
        lost: Default::default(),
        daemon: Daemon::default(),
        ..after.clone()
    };
    Window { seconds: interval.seconds, ..Window::between(&before, &after) }
}

struct Output<'a> {
    options: &'a ReportOptions,
    terminal: Terminal,
    style: TextStyle,
    breakdown: Breakdown,
}

impl<'a> Output<'a> {
    fn of(options: &'a ReportOptions) -> Self {
        let terminal = Terminal::of_stdout(options.color);
        let numbers = terminal.numbers(options.milliseconds);
        let style = TextStyle { terminal, width: terminal.width(), numbers, fine: options.fine };
        Self { options, terminal, style, breakdown: Breakdown::of(options, &CpuNodes::default()) }
    }

    /// What is read, and from when on it is complete; to standard error where standard output is JSON.
    async fn begin(&self, history: &ApiHistory, target: &str, range: PastRange) -> Result<()> {
        let host = if history.host.is_empty() { "an unnamed host" } else { &history.host };
        let about = format!("reading the history of biolat {} on {host} at {target}", history.biolat);
        let lines: Vec<_> = [Some(about), missing(history, range)].into_iter().flatten().collect();
        let text = lines.iter().map(|line| format!("{}\n", self.wrapped(line, 0))).collect::<String>();
        if self.options.json {
            log_lines::write_text(&text);
            return Ok(());
        }
        write(text).await
    }

    async fn window(&self, history: &ApiHistory, interval: &ApiInterval) -> Result<()> {
        let window = window_of(interval, history.interval);
        if self.options.json {
            let slow = Some(interval.slow.as_slice());
            return write(json::line(&window, &history.host, &self.breakdown, slow)?).await;
        }
        let title = format!(
            "{} to {}, {}",
            clock::local_with_date(interval.began),
            clock::local(interval.taken),
            format::duration(interval.seconds)
        );
        let mut text = format!("\n{}\n", self.terminal.paint(Highlight::Strong, &title));
        text.push_str(&text::window(&window, &self.breakdown, &self.style));
        if !interval.slow.is_empty() {
            text.push_str(&format!("\n{}\n", self.terminal.paint(Highlight::Strong, "Slowest I/Os:")));
            for io in &interval.slow {
                text.push_str(&slow::line(io, self.terminal, self.style.numbers));
                text.push('\n');
            }
        }
        let title = format!("Findings in {}:", format::duration(window.seconds));
        text.push_str(&format!("\n{}\n", self.terminal.paint(Highlight::Strong, &title)));
        for finding in findings::findings(&window, self.style.numbers) {
            text.push_str(&format!("- {}\n", self.wrapped(&finding, 2)));
        }
        write(text).await
    }

    fn wrapped(&self, line: &str, indent: usize) -> String {
        wrapped(line, self.style.width, indent)
    }
}

/// What the history does not have of the range.
fn missing(history: &ApiHistory, range: PastRange) -> Option<String> {
    let Some(from) = history.complete_from else {
        return Some("nothing is kept yet: no collection has succeeded".to_owned());
    };
    let begins = format!("the history begins at {}", clock::local_with_date(from));
    let (asked_from, asked_to) = (range.from(), range.to());
    if asked_to <= from {
        return Some(format!("nothing is kept of that time: {begins}"));
    }
    if history.intervals.is_empty() {
        return Some("nothing is kept of that time: biolat or the machine did not run".to_owned());
    }
    // The default goes back further than most daemons run.
    (asked_from + history.interval < from && !range.is_default).then_some(begins)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{PastRange, missing, window_of};
    use crate::{
        api::{ApiHistory, ApiInterval},
        report::samples::{device, histogram, op, slow_io},
    };

    fn interval() -> ApiInterval {
        let one = || histogram(0, &[(16, 1)], 0, 4.0);
        let read = op("read", 4096, histogram(1, &[], 0, 0.0), one(), one());
        ApiInterval {
            began: 1000.0,
            taken: 400.0,
            seconds: 60.0,
            passes: 12,
            failures: 2,
            devices: vec![device("sda", 1.0, vec![read])],
            summary: vec![],
            lost: [("clock".to_owned(), 3)].into(),
            slow: vec![slow_io(1, "sda")],
            slow_dropped: 0,
        }
    }

    #[test]
    fn an_interval_is_a_window() {
        let window = window_of(&interval(), 5.0);
        assert_eq!(
            (window.seconds, window.ended, window.restarted),
            (60.0, 400.0, false),
            "the clock was set"
        );
        assert_eq!((window.devices.len(), window.devices[0].all().ios(), window.failures), (1, 1, 2));
        assert_eq!(window.lost["clock"], 3);
        assert!(window.gone.is_empty());
    }

    #[test]
    fn what_is_missing_is_said() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let range = |from, to| PastRange { from: at(from), to: at(to), is_default: false };
        let mut history = ApiHistory::of("db1", Duration::from_secs(5), [at(0); 2], None);
        let said = |history: &ApiHistory, range| missing(history, range).unwrap_or_default();
        assert_eq!(said(&history, range(1, 2)), "nothing is kept yet: no collection has succeeded");
        history.complete_from = Some(1000.0);
        assert!(
            said(&history, range(1, 2))
                .starts_with("nothing is kept of that time: the history begins at 1970")
        );
        assert!(said(&history, range(2000, 2010)).ends_with("biolat or the machine did not run"));
        history.intervals.push(interval());
        assert!(said(&history, range(500, 2000)).starts_with("the history begins at 1970-01-01"));
        assert_eq!(said(&history, range(996, 2000)), "");
        assert_eq!(said(&history, PastRange { is_default: true, ..range(1, 2000) }), "");
    }
}
