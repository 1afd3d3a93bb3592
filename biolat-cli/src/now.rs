//! `biolat` without a command: what stands out on a host now, in sentences.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Result, anyhow, bail};
use biolat_client::{MAX_OUTAGE, Target, Update, fetch};
use biolat_common::series::Phase;
use biolat_model::{
    api::ApiSlowLog,
    interval,
    snapshot::{SlowIo, Snapshot},
    text::format,
};
use biolat_system::log_lines;

use super::{
    findings::counted,
    json,
    options::{CommonOptions, HistogramOptions},
    output::write,
    progress::Progress,
    source::{Needs, Source, is_daemon_here, without_daemon},
    stop::StopSignals,
    view::View,
    window::Window,
};

/// Measures for `length` and shows the findings.
pub(super) async fn run(options: &CommonOptions, length: Duration) -> Result<ExitCode> {
    let mut stop = StopSignals::listen()?;
    tokio::select! {
        shown = show(options, length) => shown.map(|()| ExitCode::SUCCESS),
        () = stop.received() => Ok(ExitCode::SUCCESS),
    }
}

async fn show(options: &CommonOptions, length: Duration) -> Result<()> {
    let view = View::of_histograms(&HistogramOptions::default(), options);
    let (mut source, daemon) = open(options, Needs { window: length, slow: Some(interval::SLOW) }).await?;
    if !options.json {
        view.introduce(&[source.about.clone()]).await?;
    }
    let first = Arc::clone(&source.first);
    let mut progress = Progress::new(Some(source.window()));
    let last = loop {
        let update = tokio::select! {
            update = source.next() => update?,
            () = progress.tick() => continue,
        };
        match update {
            Update::Snapshot(last) => {
                let passed = last.taken.duration_since(first.taken).unwrap_or_default();
                // Collections are not exactly on time.
                if passed.as_secs_f64() > source.window().as_secs_f64() * 0.9 {
                    break last;
                }
            }
            Update::Retrying(error) => {
                progress.clear();
                log_lines::write_text(&format!("{error}; retrying\n"));
            }
        }
    };
    progress.clear();
    let mut window = Window::between(&first, &last);
    if let Some(daemon) = daemon {
        window.slow = slow_ios(daemon, options, &first, &last).await;
    }
    if options.json {
        return write(json::line(&window, &last.host, &view.breakdown, None)?).await;
    }
    write(view.findings(&summary(&window, &view), &window)).await
}

/// The slow and failed I/Os that a daemon recorded between two snapshots, on the devices shown. They only add to the findings, so an
/// error means that there are none.
async fn slow_ios(daemon: Target, options: &CommonOptions, first: &Snapshot, last: &Snapshot) -> Vec<SlowIo> {
    let log: Option<ApiSlowLog> = fetch(daemon, &options.source.credentials()).await.ok().flatten();
    let is_shown = |io: &SlowIo| last.devices.iter().any(|view| view.device.name == io.device);
    let is_within = |io: &SlowIo| io.completed > first.taken && io.completed <= last.taken;
    log.into_iter().flat_map(|log| log.ios.to_vec()).filter(|io| is_within(io) && is_shown(io)).collect()
}

/// Connects to the daemon given by `--host` or the one on this host, and says which, or else attaches a probe of its own.
async fn open(options: &CommonOptions, needs: Needs) -> Result<(Source, Option<Target>)> {
    if let Some(target) = &options.source.host {
        let source = Source::open_remote(target, options, needs, MAX_OUTAGE).await?;
        return Ok((source, Some(target.clone())));
    }
    if !is_daemon_here().await {
        let own = Source::open_own(options, needs).await;
        return Ok((own.map_err(|error| anyhow!("{}", without_daemon(&error)))?, None));
    }
    let here = Target::here();
    match Source::open_remote(&here, options, needs, MAX_OUTAGE).await {
        Ok(source) => Ok((source, Some(here))),
        Err(refused) => match Source::open_own(options, needs).await {
            Ok(source) => Ok((source, None)),
            Err(_) => bail!("{refused:#}; as root, biolat measures without the daemon"),
        },
    }
}

/// `5 s: 3 devices, 1,234 I/Os per second, p99 1.2 ms`.
fn summary(window: &Window, view: &View) -> String {
    let all = window.all();
    let rate = window.rate(all.ios());
    let devices = counted(window.devices.len() as u64, "device");
    let rate =
        if rate >= 10.0 || rate == 0.0 { format::count(rate.round() as u64) } else { format!("{rate:.1}") };
    let p99 = all.of(Phase::Total).percentile(0.99);
    let p99 = p99.map(|p99| format!(", p99 {}", view.style.numbers.bounds(p99))).unwrap_or_default();
    format!("{}: {devices}, {rate} I/Os per second{p99}", window.length())
}
