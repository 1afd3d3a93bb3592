//! `biolat processes`: the I/O of a window by process, or each I/O with its process.

mod ios;

use std::process::ExitCode;

use anyhow::{Result, bail};
use biolat_collect::processes::{Event, Handle, Output, ProcessWindow, Settings};
use biolat_model::text::format;
use biolat_system::{
    clock, log_lines,
    rights::{self, Role},
    terminal::{Highlight, Terminal, wrapped},
};
use tokio::sync::watch;

use super::{
    cli::ProcessesCommand,
    json,
    output::{closed, write},
    process_figures::by_device,
    source::about_this_host,
    stop::{StopSignals, show_until_stopped},
    text::TextStyle,
};

/// Shows windows or I/Os until stopped.
pub(super) async fn run(command: ProcessesCommand, stop: StopSignals) -> Result<ExitCode> {
    show_until_stopped(stop, |stopped| show(command, stopped)).await
}

async fn show(command: ProcessesCommand, mut stopped: watch::Receiver<bool>) -> Result<()> {
    let ProcessesCommand { windows, io, milliseconds, common } = command;
    let host = common.machine.host();
    let output = View {
        style: style(Terminal::of_stdout(common.color), milliseconds),
        json: common.json,
        timestamp: windows.timestamp,
        host: host.name(),
    };
    let about = about_this_host(&common)?;
    let settings = Settings {
        host,
        selection: common.devices.selection()?.unwrap_or_default(),
        output: if io { Output::Ios } else { Output::Windows(windows.interval) },
        seccomp: common.machine.seccomp.is_enabled(),
    };
    let seccomp = settings.seccomp;
    let mut handle = tokio::select! {
        handle = Handle::start(settings) => handle?,
        _ = stopped.wait_for(|&stopped| stopped) => return Ok(()),
    };
    rights::drop_privileges(Role::Tui, seccomp)?;
    output.begin(about, io).await?;
    let mut left = windows.interval.and(windows.count);
    while left != Some(0) {
        let event = tokio::select! {
            event = handle.next() => event,
            _ = stopped.wait_for(|&stopped| stopped) => break,
            () = closed(output.style.terminal) => return Ok(()),
        };
        let Some(event) = event else { bail!("the measurement has ended: please report this bug") };
        let event = event?;
        if matches!(event, Event::Window(_)) {
            left = left.map(|left| left - 1);
        }
        output.show(event).await?;
    }
    if left == Some(0) {
        return Ok(());
    }
    // What has been measured since the last event.
    handle.stop();
    while let Some(event) = handle.next().await {
        output.show(event?).await?;
    }
    Ok(())
}

fn style(terminal: Terminal, milliseconds: bool) -> TextStyle {
    TextStyle { terminal, width: terminal.width(), numbers: terminal.numbers(milliseconds), fine: false }
}

struct View {
    style: TextStyle,
    json: bool,
    /// Whether each window starts with its end time.
    timestamp: bool,
    host: String,
}

impl View {
    /// Introduces the output; goes to standard error if standard output is JSON.
    async fn begin(&self, about: String, io: bool) -> Result<()> {
        let mut lines = vec![about];
        if self.style.terminal.is_terminal {
            lines.push("Ctrl-C to stop".to_owned());
        }
        let lines = lines.iter().map(|line| format!("{}\n", wrapped(line, self.style.width, 0)));
        let heading = if io && !self.json { ios::heading() } else { String::new() };
        self.note(lines.collect::<String>() + &heading).await
    }

    async fn show(&self, event: Event) -> Result<()> {
        match event {
            Event::Window(window) => self.show_window(&window).await,
            Event::Ios(list) => write(ios::lines(&list, &self.style, self.json)?).await,
            Event::Sampling(1) => self.note("every I/O is shown again\n".to_owned()).await,
            Event::Sampling(one_of) => {
                self.note(format!("more than 10,000 I/Os per second: showing one of {one_of}\n")).await
            }
            Event::Dropped(dropped) => {
                let line = format!("{} I/Os were not shown: too many at a time\n", format::count(dropped));
                self.note(line).await
            }
            Event::NotMeasured(device) => {
                let line = format!(
                    "{device} is not measured: no room for its requests; select fewer devices (-d)\n"
                );
                self.note(line).await
            }
        }
    }

    async fn show_window(&self, window: &ProcessWindow) -> Result<()> {
        let devices = by_device(window);
        if self.json {
            return write(json::processes::line(window, &devices, &self.host)?).await;
        }
        let mut text = String::from("\n");
        if self.timestamp {
            let clock = clock::local(biolat_model::text::time::unix_seconds(window.ended));
            text += &format!("{}\n", self.style.terminal.paint(Highlight::Strong, &clock));
        }
        text += &self.style.processes(window, &devices);
        write(text).await
    }

    /// Writes anything but figures; goes to standard error if standard output is JSON.
    async fn note(&self, text: String) -> Result<()> {
        if self.json {
            log_lines::write_text(&text);
            return Ok(());
        }
        write(text).await
    }
}
