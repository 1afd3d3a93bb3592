//! `biolat slow`: a line for each slow or failed I/O as it is recorded.

use std::{process::ExitCode, sync::Arc, time::SystemTime};

use anyhow::{Result, bail};
use biolat_client::{Endpoint as _, Update};
use biolat_common::series::Phase;
use biolat_model::{
    api::ApiSlowLog,
    device::Selection,
    snapshot::SlowIo,
    text::format::{self, NumberFormat},
};
use biolat_system::{
    log_lines,
    terminal::{Terminal, wrapped},
};
use tokio::sync::watch;

use super::{
    cli::SlowCommand,
    output::{closed, write},
    slow_line::line,
    source::Source,
    stop::{StopSignals, show_until_stopped},
};

/// Shows I/Os until stopped.
pub(super) async fn run(
    source: Source<ApiSlowLog>,
    command: &SlowCommand,
    stop: StopSignals,
) -> Result<ExitCode> {
    show_until_stopped(stop, |stopped| show(source, command, stopped)).await
}

async fn show(
    mut source: Source<ApiSlowLog>,
    command: &SlowCommand,
    mut stopped: watch::Receiver<bool>,
) -> Result<()> {
    let output = Output::of(command)?;
    let first = Arc::clone(&source.first);
    let Some(threshold) = first.threshold else {
        bail!("no I/O is recorded there: that biolat-daemon runs with --slow off");
    };
    let is_remote = source.is_remote();
    let mut follower = if is_remote { Follower::from_end(&first) } else { Follower::default() };
    let earlier = if is_remote { first.ios.iter().filter(|io| output.shows(io)).count() } else { 0 };
    output.begin(&source, threshold, earlier).await?;
    output.show(&follower.follow(&first)).await?;
    loop {
        let update = tokio::select! {
            update = source.next() => update?,
            _ = stopped.wait_for(|&stopped| stopped) => {
                if let Some(log) = source.last().await {
                    output.show(&follower.follow(&log)).await?;
                }
                return Ok(());
            }
            () = closed(output.terminal) => return Ok(()),
        };
        match update {
            Update::Snapshot(log) => output.show(&follower.follow(&log)).await?,
            Update::Retrying(error) => log_lines::write_text(&format!("{error}; retrying\n")),
        }
    }
}

/// How much of a log has been shown.
#[derive(Default)]
struct Follower {
    /// Start of the daemon. `None` before the first log.
    started: Option<SystemTime>,
    /// Number of the last I/O.
    number: u64,
    dropped: u64,
}

/// The new part of a log.
struct News<'a> {
    restarted: bool,
    /// I/Os that newer ones have pushed out of the log.
    missed: u64,
    /// I/Os that were not recorded.
    dropped: u64,
    ios: Vec<&'a SlowIo>,
}

impl Follower {
    /// Skips everything in the log so far.
    fn from_end(log: &ApiSlowLog) -> Self {
        let number = log.ios.last().map_or(0, |io| io.number);
        Self { started: Some(log.started), number, dropped: log.dropped }
    }

    fn follow<'a>(&mut self, log: &'a ApiSlowLog) -> News<'a> {
        let restarted = self.started.is_some_and(|started| started != log.started);
        let before = if restarted { Self::default() } else { std::mem::take(self) };
        let ios: Vec<_> = log.ios.iter().filter(|io| io.number > before.number).collect();
        let missed = ios.first().map_or(0, |io| io.number - before.number - 1);
        let number = ios.last().map_or(before.number, |io| io.number);
        *self = Self { started: Some(log.started), number, dropped: log.dropped };
        News { restarted, missed, dropped: log.dropped.saturating_sub(before.dropped), ios }
    }
}

struct Output {
    terminal: Terminal,
    numbers: NumberFormat,
    json: bool,
    /// Filters the log, because the daemon records devices by its own selection.
    selection: Option<Selection>,
    /// In seconds. Failed I/Os are always shown.
    at_least: Option<f64>,
}

impl Output {
    fn of(SlowCommand { at_least, milliseconds, common }: &SlowCommand) -> Result<Self> {
        let terminal = Terminal::of_stdout(common.color);
        Ok(Self {
            terminal,
            numbers: terminal.numbers(*milliseconds),
            json: common.json,
            selection: common.devices.selection()?,
            at_least: at_least.map(|time| time.as_secs_f64()),
        })
    }

    /// Introduces the output; goes to standard error if standard output is JSON.
    async fn begin(&self, source: &Source<ApiSlowLog>, threshold: f64, earlier: usize) -> Result<()> {
        let at_least = format::duration(self.at_least.unwrap_or(threshold).max(threshold));
        let earlier = match earlier {
            0 => String::new(),
            earlier => {
                format!(" from now on; {}{} has {earlier} earlier ones", source.place, ApiSlowLog::PATH)
            }
        };
        let shown = format!("I/Os that take at least {at_least} or fail{earlier}");
        let mut lines = vec![source.about.clone(), shown];
        if let Some(wanted) = self.at_least.filter(|wanted| *wanted < threshold) {
            let wanted = format::duration(wanted).replace(' ', "");
            lines.push(format!(
                "that daemon does not record faster ones: start it with --slow {wanted} to see them"
            ));
        }
        if self.terminal.is_terminal {
            lines.push("Ctrl-C to stop".to_owned());
        }
        let width = self.terminal.width();
        self.note(lines.iter().map(|line| format!("{}\n", wrapped(line, width, 0))).collect()).await
    }

    async fn show(&self, news: &News<'_>) -> Result<()> {
        let notes = notes(news);
        if !notes.is_empty() {
            self.note(notes.iter().map(|note| format!("{note}\n")).collect()).await?;
        }
        let width = self.terminal.line_width();
        let mut text = String::new();
        for io in news.ios.iter().filter(|io| self.shows(io)) {
            text += &if self.json {
                serde_json::to_string(io)?
            } else {
                line(io, self.terminal, self.numbers, width)
            };
            text.push('\n');
        }
        if text.is_empty() { Ok(()) } else { write(text).await }
    }

    fn shows(&self, io: &SlowIo) -> bool {
        let is_slow = || match (self.at_least, io.latencies[Phase::Total as usize]) {
            (Some(at_least), Some(total)) => total.as_secs_f64() >= at_least,
            _ => true,
        };
        self.selection.as_ref().is_none_or(|selection| selection.shows(&io.device))
            && (io.has_failed() || is_slow())
    }

    /// Writes anything but I/Os; goes to standard error if standard output is JSON.
    async fn note(&self, text: String) -> Result<()> {
        if self.json {
            log_lines::write_text(&text);
            return Ok(());
        }
        write(text).await
    }
}

/// Notes about a log in addition to its I/Os.
fn notes(news: &News<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if news.restarted {
        notes.push("biolat was restarted".to_owned());
    }
    if news.missed > 0 {
        notes.push(format!(
            "{} I/Os are missing here: newer ones took their place",
            format::count(news.missed)
        ));
    }
    if news.dropped > 0 {
        notes.push(format!("{} I/Os were not recorded: too many at once", format::count(news.dropped)));
    }
    notes
}

#[cfg(test)]
mod tests {
    use biolat_model::api::ApiSlowLog;
    use biolat_testing::samples::{at, slow_io, slow_log};

    use super::{Follower, notes};

    fn numbered(numbers: std::ops::RangeInclusive<u64>) -> ApiSlowLog {
        slow_log(numbers.map(|number| slow_io(number, "sda")).collect())
    }

    /// The numbers of new I/Os, and the notes.
    fn follow(follower: &mut Follower, log: &ApiSlowLog) -> (Vec<u64>, Vec<String>) {
        let news = follower.follow(log);
        (news.ios.iter().map(|io| io.number).collect(), notes(&news))
    }

    #[test]
    fn shows_each_io_once() {
        let mut follower = Follower::from_end(&numbered(3..=5));
        assert_eq!(follow(&mut follower, &numbered(3..=5)), (vec![], vec![]));
        assert_eq!(follow(&mut follower, &numbered(4..=7)), (vec![6, 7], vec![]));
        assert_eq!(follow(&mut follower, &numbered(4..=7)), (vec![], vec![]));
        let missed = "2 I/Os are missing here: newer ones took their place".to_owned();
        assert_eq!(follow(&mut follower, &numbered(10..=11)), (vec![10, 11], vec![missed]));
        let dropping = |dropped| ApiSlowLog { dropped, ..numbered(10..=11) };
        let dropped = "1,500 I/Os were not recorded: too many at once".to_owned();
        assert_eq!(follow(&mut follower, &dropping(1_500)), (vec![], vec![dropped]));
        assert_eq!(follow(&mut follower, &dropping(1_500)), (vec![], vec![]));
        let restarted = ApiSlowLog { started: at(2.0), ..numbered(1..=1) };
        assert_eq!(follow(&mut follower, &restarted), (vec![1], vec!["biolat was restarted".to_owned()]));
    }

    #[test]
    fn a_local_probe_starts_from_the_first_io() {
        let mut follower = Follower::default();
        assert_eq!(follow(&mut follower, &numbered(1..=2)), (vec![1, 2], vec![]));
        assert_eq!(follow(&mut follower, &numbered(1..=3)), (vec![3], vec![]));
    }
}
