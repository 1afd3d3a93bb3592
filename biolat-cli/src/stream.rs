//! Shows windows as they complete, until there are enough or the user stops, and then the findings.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Result, bail};
use biolat_client::Update;
use biolat_model::{snapshot::Snapshot, text::format};
use biolat_system::{clock, log_lines, terminal::Highlight};
use tokio::sync::watch;

use super::{
    json,
    options::WindowOptions,
    output::{closed, write},
    progress::Progress,
    source::Source,
    stop::{StopSignals, show_until_stopped},
    text,
    view::View,
    window::Window,
};

/// Shows windows.
pub(super) async fn run(
    source: Source,
    mut view: View,
    options: WindowOptions,
    has_devices: bool,
    stop: StopSignals,
) -> Result<ExitCode> {
    view.breakdown.cpus = view.breakdown.cpus.map(|_| source.nodes.clone());
    let output = Output { view, has_devices };
    show_until_stopped(stop, |stopped| show(source, output, options, stopped)).await
}

async fn show(
    mut source: Source,
    output: Output,
    options: WindowOptions,
    mut stopped: watch::Receiver<bool>,
) -> Result<()> {
    if let Some(missing) = output.view.breakdown.missing(&Window::until(&source.first)) {
        bail!("{missing}");
    }
    output.begin(&source, options.interval).await?;
    let mut progress = Progress::of_windows(&source, &options);
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
        let update = tokio::select! {
            update = source.next() => update,
            _ = stopped.wait_for(|&stopped| stopped) => {
                latest = source.last().await.unwrap_or(latest);
                break;
            }
            () = closed(output.view.style.terminal) => return Ok(()),
            () = progress.tick() => continue,
        };
        progress.clear();
        match update {
            Ok(Update::Snapshot(snapshot)) => latest = snapshot,
            Ok(Update::Retrying(error)) => {
                log_lines::write_text(&format!("{error}; retrying\n"));
                continue;
            }
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
        if options.interval.is_some() && is_whole(&last, &latest, source.collections) {
            output.show(&last, &latest).await?;
            last = Arc::clone(&latest);
            shown += 1;
        }
    }
    // A last window that is shorter than the others.
    if latest.taken != last.taken && (options.interval.is_none() || shown < wanted) {
        output.show(&last, &latest).await?;
    }
    output.end(&first, &latest).await?;
    outcome
}

/// Whether enough collections lie between the two snapshots.
fn is_whole(before: &Snapshot, after: &Snapshot, collections: u64) -> bool {
    let restarted = before.started != after.started;
    let passed = after.health.durations.count().saturating_sub(before.health.durations.count());
    after.taken != before.taken && (restarted || passed >= collections)
}

struct Output {
    view: View,
    /// Whether devices were selected explicitly.
    has_devices: bool,
}

impl Output {
    /// Introduces the output; goes to standard error if standard output is JSON.
    async fn begin(&self, source: &Source, interval: Option<Duration>) -> Result<()> {
        let mut lines = vec![source.about.clone()];
        if let Some(wanted) = interval
            && (source.window().as_secs_f64() / wanted.as_secs_f64() - 1.0).abs() > 0.01
        {
            lines.push(format!(
                "a window is {} instead of {}: that biolat-daemon collects every {} (its --interval)",
                format::duration(source.window().as_secs_f64()),
                format::duration(wanted.as_secs_f64()),
                format::duration(source.first.interval.as_secs_f64())
            ));
        }
        if self.has_devices && source.first.devices.is_empty() {
            lines.push(
                "no device name matches (partitions are measured as part of their drive); a device that appears later will \
                 be shown"
                    .to_owned(),
            );
        }
        if self.view.style.terminal.is_terminal {
            lines.push("Ctrl-C to stop".to_owned());
        }
        self.view.introduce(&lines).await
    }

    async fn show(&self, before: &Snapshot, after: &Snapshot) -> Result<()> {
        let window = Window::between(before, after);
        if self.view.json {
            return write(json::line(&window, &after.host, &self.view.breakdown, None)?).await;
        }
        let mut text = String::from("\n");
        if self.view.timestamp {
            let clock = clock::local(window.ended);
            text.push_str(&self.view.style.terminal.paint(Highlight::Strong, &clock));
            text.push('\n');
        }
        text.push_str(&text::window(&window, &self.view.breakdown, &self.view.style));
        write(text).await
    }

    /// Shows the findings in all windows together.
    async fn end(&self, first: &Snapshot, last: &Snapshot) -> Result<()> {
        if self.view.json {
            return Ok(());
        }
        if first.taken == last.taken {
            let interval = format::duration(last.interval.as_secs_f64());
            return write(format!(
                "\nnothing to show: no collection since the start (one every {interval})\n"
            ))
            .await;
        }
        let window = Window::between(first, last);
        let title = format!("Findings in {}:", window.length());
        write(self.view.findings(&title, &window)).await
    }
}
