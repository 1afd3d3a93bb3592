//! Shows a range of a history, from a daemon or a file: the same windows as live, or the worst intervals.

mod range;
mod save;
mod worst;

use std::{
    env,
    path::Path,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, anyhow, bail};
use biolat_client::{Intervals, Target, history};
use biolat_history::{HistoryLimits, Store, worst::Worst};
use biolat_model::{
    api::ApiHistory,
    device::Selection,
    period::Period,
    text::{format, time::unix_seconds},
};
use biolat_system::{
    clock,
    rights::{self, Role},
};

use super::{
    cli::SaveCommand,
    json,
    options::{CommonOptions, RangeOptions, SourceOptions},
    output::{is_closed_pipe, write},
    saved::{self, SavedHead},
    slow_line, text,
    view::View,
    window::Window,
};
pub(super) use range::PastRange;

/// Length of the intervals that `biolat worst` ranks.
const WORST_STEP: Duration = Duration::from_secs(60);

/// Memory limit for the intervals of a file. The store has no limit of its own, because a limited store would drop the oldest
/// intervals.
const MAX_SAVED_BYTES: usize = 1 << 30;
const SAVED_LIMITS: HistoryLimits = HistoryLimits { age: Duration::MAX, bytes: usize::MAX };

/// Which part of a history to show, and how.
pub(super) struct PastCommand<'a> {
    pub(super) view: View,
    pub(super) range: RangeOptions,
    /// Length of the windows into which the range is split.
    pub(super) every: Option<Duration>,
    /// Shows the worst minutes instead of windows.
    pub(super) is_worst: bool,
    pub(super) file: Option<&'a Path>,
    pub(super) common: &'a CommonOptions,
}

/// Shows a history. A closed pipe is not an error.
pub(super) async fn run(command: PastCommand<'_>) -> Result<ExitCode> {
    let shown = match command.file {
        Some(file) => show_saved(command, file).await,
        None => show_remote(command).await,
    };
    unless_closed(shown)
}

/// Saves a history.
pub(super) async fn save(command: &SaveCommand) -> Result<ExitCode> {
    unless_closed(save::run(command).await)
}

fn unless_closed(outcome: Result<()>) -> Result<ExitCode> {
    match outcome {
        Err(error) if is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
        outcome => outcome.map(|()| ExitCode::SUCCESS),
    }
}

/// Shows a daemon's history. The daemon adds up the intervals itself.
async fn show_remote(command: PastCommand<'_>) -> Result<()> {
    let target = daemon(&command.common.source);
    rights::drop_privileges(Role::Serving, false)?;
    let range = PastRange::of(&command.range, command.is_worst, SystemTime::now())?;
    let query = if command.is_worst {
        range.in_whole_minutes().query(&format!("step={}&detail=summary", WORST_STEP.as_secs()))
    } else {
        range.query(&format!("step={}", range.step(command.every).as_secs_f64()))
    };
    let place = format!("at {target}");
    let CommonOptions { source, devices, .. } = command.common;
    let history = history(target, query, &source.credentials(), devices.selection()?, &env::temp_dir()).await;
    let mut intervals = history.map_err(|error| with_next_step(error, source))?;
    let mut output = Shown::of(command, range);
    while let Some(interval) = intervals.next().await? {
        output.add(&intervals.head, &place, interval).await?;
    }
    output.end(&intervals.head, &place).await
}

/// The daemon whose history is read: the one on this host unless another is given.
fn daemon(source: &SourceOptions) -> Target {
    source.host.clone().unwrap_or_else(Target::here)
}

fn with_next_step(error: anyhow::Error, source: &SourceOptions) -> anyhow::Error {
    match source.host {
        Some(_) => error,
        None => anyhow!("{error:#}; give --host HOST to ask another one: only a daemon keeps a history"),
    }
}

async fn show_saved(command: PastCommand<'_>, file: &Path) -> Result<()> {
    let name = saved::name_of(file);
    let (head, store) = read_saved(file, command.common.devices.selection()?).await?;
    let now = Duration::try_from_secs_f64(head.saved).ok().and_then(|saved| UNIX_EPOCH.checked_add(saved));
    let now = now.with_context(|| format!("{name}: it is damaged: an invalid time"))?;
    let range = PastRange::of(&command.range, command.is_worst, now)?;
    let place = format!("in {name}, saved at {}", clock::local_with_date(head.saved));
    let (selected, step) = if command.is_worst {
        (range.in_whole_minutes(), WORST_STEP)
    } else {
        (range, range.step(command.every))
    };
    let mut output = Shown::of(command, range);
    for sum in store.select(selected.from, selected.to).into_periods(Some(step)) {
        output.add(&head.history, &place, sum).await?;
    }
    output.end(&head.history, &place).await
}

/// Reads the head of a file, and its intervals into a store.
pub(super) async fn read_saved(file: &Path, selection: Option<Selection>) -> Result<(SavedHead, Store)> {
    let mut intervals: Intervals<SavedHead> = saved::open(file, selection).await?;
    rights::drop_privileges(Role::Serving, false)?;
    let mut store = Store::new(SAVED_LIMITS, Duration::ZERO);
    while let Some(interval) = intervals.next().await? {
        store.replay(interval);
        if store.bytes() > MAX_SAVED_BYTES {
            bail!("{}: it takes more than {} GiB of memory", saved::name_of(file), MAX_SAVED_BYTES >> 30);
        }
    }
    Ok((intervals.head, store))
}

/// Consumes intervals one after another: shows each as a window or, at the end, the worst ones.
struct Shown {
    output: Output,
    range: PastRange,
    worst: Option<Worst>,
    is_empty: bool,
}

impl Shown {
    fn of(command: PastCommand<'_>, range: PastRange) -> Self {
        let worst = command.is_worst.then(Worst::default);
        Self { output: Output { view: command.view }, range, worst, is_empty: true }
    }

    /// Adds an interval of the history at `place`.
    async fn add(&mut self, history: &ApiHistory, place: &str, interval: Period) -> Result<()> {
        if std::mem::replace(&mut self.is_empty, false) {
            self.output.begin(history, place, self.range, true).await?;
        }
        match &mut self.worst {
            Some(worst) if interval.summary.is_empty() => worst.add(&interval.summarized()),
            Some(worst) => worst.add(&interval),
            None => self.output.window(history, &interval).await?,
        }
        Ok(())
    }

    async fn end(self, history: &ApiHistory, place: &str) -> Result<()> {
        if self.is_empty {
            self.output.begin(history, place, self.range, false).await?;
        }
        match self.worst {
            Some(worst) => worst::show(&self.output, &worst.end()).await,
            None => Ok(()),
        }
    }
}

/// The I/O of an interval.
fn window_of(interval: &Period) -> Window {
    let mut window = Window::of_period(interval);
    // In the order of live windows, regardless of the source.
    for devices in [&mut window.devices, &mut window.volumes] {
        devices.sort_by(|one, other| one.name.cmp(&other.name));
        devices.iter_mut().for_each(|device| device.ops.sort_by(|one, other| one.name.cmp(&other.name)));
    }
    window
}

struct Output {
    view: View,
}

impl Output {
    /// Introduces the output: the source, and when its history begins. Goes to standard error if standard output is JSON.
    async fn begin(
        &self,
        history: &ApiHistory,
        place: &str,
        range: PastRange,
        has_intervals: bool,
    ) -> Result<()> {
        let host = format::host(&history.host);
        let about = format!("the history of biolat-daemon {} on {host} {place}", history.biolat);
        let breakdown = self.view.breakdown.sizes || self.view.breakdown.who;
        let missing_breakdown = missing_breakdown(history, range).filter(|_| breakdown && has_intervals);
        let lines = [Some(about), missing(history, range, has_intervals), missing_breakdown];
        let lines: Vec<_> = lines.into_iter().flatten().collect();
        self.view.introduce(&lines).await
    }

    async fn window(&self, history: &ApiHistory, interval: &Period) -> Result<()> {
        let window = window_of(interval);
        if self.view.json {
            let slow = Some(interval.slow.as_slice());
            return write(json::line(&window, &history.host, &self.view.breakdown, slow)?).await;
        }
        let title = format!(
            "{} to {}, {}",
            clock::local_with_date(unix_seconds(interval.began)),
            clock::local(unix_seconds(interval.ended)),
            format::duration(interval.length.as_secs_f64())
        );
        let mut text = self.view.heading(&title);
        if let Some(uncollected) = uncollected(interval, history.interval) {
            text.push_str(&format!("{}\n", self.view.wrapped(&uncollected, 0)));
        }
        text.push_str(&text::window(&window, &self.view.breakdown, &self.view.style));
        if !interval.slow.is_empty() {
            text.push_str(&self.view.heading("Slowest I/Os:"));
            let terminal = self.view.style.terminal;
            for io in &interval.slow {
                text.push_str(&slow_line::line(io, terminal, self.view.style.numbers, terminal.line_width()));
                text.push('\n');
            }
        }
        let title = format!("Findings in {}:", window.length());
        text.push_str(&self.view.findings(&title, &window));
        write(text).await
    }
}

/// The time without collections, if it amounts to minutes. The next collection includes the I/O of that time.
fn uncollected(interval: &Period, collected_every: f64) -> Option<String> {
    const MINUTES: f64 = 120.0;
    let seconds = interval.length.as_secs_f64() - interval.collections as f64 * collected_every;
    let text =
        || format!("{} of it without a collection: the machine was suspended", format::duration(seconds));
    (seconds > MINUTES.max(collected_every)).then(text)
}

/// The part of the range that the history does not cover.
fn missing(history: &ApiHistory, range: PastRange, has_intervals: bool) -> Option<String> {
    let Some(from) = history.complete_from else {
        return Some("nothing is kept yet: no collection has succeeded".to_owned());
    };
    let begins = format!("the history begins at {}", clock::local_with_date(from));
    let (asked_from, asked_to) = (range.from(), range.to());
    if asked_to <= from {
        return Some(format!("nothing is kept from that time: {begins}; ask for a later one"));
    }
    if !has_intervals {
        return Some("nothing is kept from that time: biolat-daemon or the machine did not run".to_owned());
    }
    // The default range goes back further than most daemons have been running.
    (asked_from + history.interval < from && !range.is_default).then_some(begins)
}

/// The time since which sizes and workloads are kept, if they were dropped for part of the range.
fn missing_breakdown(history: &ApiHistory, range: PastRange) -> Option<String> {
    let from = history.breakdown_from.filter(|from| range.from() + history.interval < *from)?;
    let is_dropped = history.complete_from.is_some_and(|complete| complete < from);
    let dropped = || format!("sizes and workloads are kept from {} on", clock::local_with_date(from));
    is_dropped.then(dropped)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use biolat_model::{api::ApiHistory, period::Period};
    use biolat_testing::samples::{at, device, histogram, op, slow_io};

    use super::{PastRange, missing, missing_breakdown, uncollected, window_of};

    fn interval() -> Period {
        let one = || histogram(0, &[(16, 1)], 0, 4.0);
        let read = op("read", 4096, histogram(1, &[], 0, 0.0), one(), one());
        Period {
            began: at(1000.0),
            ended: at(400.0),
            length: Duration::from_secs(60),
            collections: 12,
            failures: 2,
            devices: vec![device("sda", 1.0, vec![read])],
            workloads: None,
            summary: vec![],
            lost: [("clock".into(), 3)].into(),
            slow: vec![slow_io(1, "sda")],
            slow_dropped: 0,
        }
    }

    #[test]
    fn an_interval_becomes_a_window() {
        let window = window_of(&interval());
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
    fn reports_a_suspended_machine() {
        assert_eq!(uncollected(&interval(), 5.0), None);
        let suspended = Period { length: Duration::from_secs(8 * 3600 + 60), ..interval() };
        let message = uncollected(&suspended, 5.0).unwrap();
        assert_eq!(message, "8 h of it without a collection: the machine was suspended");
    }

    #[test]
    fn reports_missing_history() {
        let range =
            |from, to| PastRange { from: at(f64::from(from)), to: at(f64::from(to)), is_default: false };
        let mut history = ApiHistory::of("db1", Duration::from_secs(5), [UNIX_EPOCH; 2], None);
        let message = |history: &ApiHistory, range| {
            missing(history, range, !history.intervals.is_empty()).unwrap_or_default()
        };
        assert_eq!(message(&history, range(1, 2)), "nothing is kept yet: no collection has succeeded");
        history.complete_from = Some(1000.0);
        assert!(
            message(&history, range(1, 2))
                .starts_with("nothing is kept from that time: the history begins at 1970")
        );
        assert!(message(&history, range(2000, 2010)).ends_with("biolat-daemon or the machine did not run"));
        history.intervals.push(interval());
        assert!(message(&history, range(500, 2000)).starts_with("the history begins at 1970-01-01"));
        assert_eq!(message(&history, range(996, 2000)), "");
        assert_eq!(message(&history, PastRange { is_default: true, ..range(1, 2000) }), "");
        assert_eq!(missing_breakdown(&history, range(996, 2000)), None, "not counted");
        history.breakdown_from = Some(1500.0);
        let message = |range| missing_breakdown(&history, range).unwrap_or_default();
        assert!(message(range(996, 2000)).starts_with("sizes and workloads are kept from 1970-01-01"));
        assert_eq!(message(range(1496, 2000)), "");
    }
}
