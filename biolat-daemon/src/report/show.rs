//! Windows as they come, until there are enough or somebody ends it; then the words.

use std::{
    future::pending,
    io::{self, Write as _},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Result;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    stdio::stdout,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    clock, draw,
    draw::Style,
    json,
    options::Options,
    source::{News, Source},
    terminal::{Look, Terminal},
    units, verdict,
    view::View,
    window::Window,
};
use crate::{api::Snapshot, terminal::wrapped};

/// What ends it, other than having shown enough. Made before anything else, so that a signal never finds its default.
pub(super) struct End {
    interrupt: Signal,
    terminate: Signal,
}

impl End {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Until somebody ends it.
    pub(super) async fn came(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Shows windows. Nobody reading any more is an end like any other.
pub(super) async fn run(source: Source, options: &Options, end: End) -> Result<ExitCode> {
    match show(source, options, end).await {
        Err(error) if is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
        outcome => outcome.map(|()| ExitCode::SUCCESS),
    }
}

async fn show(mut source: Source, options: &Options, mut end: End) -> Result<()> {
    let mut screen = Screen { terminal: Terminal::of_output(options), view: View::of(options), options };
    screen.begin(&source)?;
    let (first, mut last) = (Arc::clone(&source.first), Arc::clone(&source.first));
    let mut latest = Arc::clone(&last);
    let mut shown = 0;
    let mut outcome = Ok(());
    let wanted = match options.interval {
        Some(_) => options.count.unwrap_or(u64::MAX),
        None => 0,
    };
    loop {
        if options.interval.is_some() && shown >= wanted {
            break;
        }
        let news = tokio::select! {
            news = source.next() => news,
            () = end.came() => {
                latest = source.last().await.unwrap_or(latest);
                break;
            }
            () = closed(screen.terminal) => return Ok(()),
        };
        match news {
            Ok(News::Pass(snapshot)) => latest = snapshot,
            Ok(News::Trouble(what)) => {
                tell(&format!("{what}; trying again\n"));
                continue;
            }
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
        if options.interval.is_some() && is_whole(&last, &latest, source.passes) {
            screen.show(&last, &latest)?;
            last = Arc::clone(&latest);
            shown += 1;
        }
    }
    // What came since the last whole window.
    if latest.taken != last.taken && (options.interval.is_none() || shown < wanted) {
        screen.show(&last, &latest)?;
    }
    screen.end(&first, &latest)?;
    outcome
}

/// To standard error; if that is closed there is nobody to tell.
fn tell(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Whether there are enough passes between these two. One that failed brings nothing.
fn is_whole(before: &Snapshot, after: &Snapshot, passes: u64) -> bool {
    let restarted = before.started != after.started;
    let passed = after.daemon.passes.saturating_sub(before.daemon.passes);
    after.taken != before.taken && (restarted || passed >= passes)
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Until nobody reads any more what is written to a pipe, which between two windows nothing else tells.
async fn closed(terminal: Terminal) {
    if terminal.is_terminal {
        return pending().await;
    }
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let mut output = [PollFd::from_borrowed_fd(stdout(), PollFlags::empty())];
        if poll(&mut output, Some(&Timespec::default())) == Ok(1)
            && output[0].revents().contains(PollFlags::ERR)
        {
            return;
        }
    }
}

struct Screen<'a> {
    terminal: Terminal,
    view: View,
    options: &'a Options,
}

impl Screen<'_> {
    /// Says what it is, where it is in nobody's way.
    fn begin(&self, source: &Source) -> Result<()> {
        let mut lines = vec![source.about.clone()];
        if let Some(wanted) = self.options.interval
            && (source.window().as_secs_f64() / wanted.as_secs_f64() - 1.0).abs() > 0.01
        {
            lines.push(format!(
                "a window is {} long and not {}: that biolat reads every {} (its --interval)",
                units::seconds(source.window().as_secs_f64()),
                units::seconds(wanted.as_secs_f64()),
                units::seconds(source.first.interval)
            ));
        }
        if !self.options.devices.is_empty() && source.first.devices.is_empty() {
            lines.push("no device has such a name (a partition has no requests of its own, its drive does); one that comes will be shown".to_owned());
        }
        if self.terminal.is_terminal {
            lines.push("Ctrl-C ends it".to_owned());
        }
        let text = lines.iter().map(|line| format!("{}\n", self.wrapped(line, 0))).collect::<String>();
        if self.options.json {
            tell(&text);
            return Ok(());
        }
        self.write(&text)
    }

    fn window(&self, before: &Snapshot, after: &Snapshot) -> Window {
        let window = Window::between(before, after);
        if self.options.from.is_none() { window.asking(&self.options.host.sysfs) } else { window }
    }

    fn show(&mut self, before: &Snapshot, after: &Snapshot) -> Result<()> {
        let window = self.window(before, after);
        if self.options.json {
            return self.write(&json::line(&window, &after.host, &self.view)?);
        }
        let mut text = String::from("\n");
        if self.options.timestamp {
            let clock = clock::local(window.ended);
            text.push_str(&self.terminal.paint(Look::Title, &clock));
            text.push('\n');
        }
        let terminal = self.terminal;
        let style = Style {
            terminal,
            width: terminal.width(),
            units: terminal.units(self.options.milliseconds),
            fine: self.options.fine,
        };
        text.push_str(&draw::window(&window, &self.view, &style));
        self.write(&text)
    }

    /// What stands out of all that was seen.
    fn end(&self, first: &Snapshot, last: &Snapshot) -> Result<()> {
        if self.options.json {
            return Ok(());
        }
        if first.taken == last.taken {
            let pass = units::seconds(last.interval);
            return self.write(&format!("\nnothing to show: no pass has ended yet, one does every {pass}\n"));
        }
        let window = self.window(first, last);
        let words = verdict::findings(&window, self.terminal.units(self.options.milliseconds));
        let since = if window.restarted { " since biolat was started anew" } else { "" };
        let title = format!("In words, of {}{since}:", units::seconds(window.seconds));
        let mut text = format!("\n{}\n", self.terminal.paint(Look::Title, &title));
        for words in words {
            text.push_str(&format!("- {}\n", self.wrapped(&words, 2)));
        }
        self.write(&text)
    }

    fn wrapped(&self, line: &str, indent: usize) -> String {
        wrapped(line, self.terminal.width(), indent)
    }

    fn write(&self, text: &str) -> Result<()> {
        let mut output = io::stdout().lock();
        output.write_all(text.as_bytes())?;
        output.flush()?;
        Ok(())
    }
}
