//! `biolat open`: serves the page and the API of a saved history on the loopback address.

use std::{
    net::Ipv4Addr,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use biolat_daemon::http::{self, Limits, SavedHistory, ServeConfig, Service};
use biolat_history::{SharedHistory, Store};
use biolat_model::{snapshot::Snapshot, text::format};
use biolat_system::{clock, log_lines};
use serde::Serialize;
use tokio::{net::TcpListener, sync::watch, task::spawn_blocking};

use super::{
    cli::OpenCommand,
    output::{self, write},
    past::read_saved,
    saved::{SavedHead, name_of},
    stop::{StopSignals, show_until_stopped},
};

/// Serves the file until a signal arrives.
pub(super) async fn run(command: &OpenCommand) -> Result<ExitCode> {
    show_until_stopped(StopSignals::listen()?, |stopped| serve(command, stopped)).await
}

async fn serve(command: &OpenCommand, mut stopped: watch::Receiver<bool>) -> Result<()> {
    let OpenCommand { file, browser, port, json } = command;
    // Listen before reading the file, because reading drops the privileges that a port below 1024 requires.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).await;
    let listener = listener
        .with_context(|| format!("cannot listen on {}:{port}; give another --port", Ipv4Addr::LOCALHOST))?;
    let address = format!("http://{}/", listener.local_addr()?);
    let (head, store) = tokio::select! {
        read = read_saved(file, None) => read?,
        _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
    };
    let served = Served { url: &address, host: &head.history.host, saved: head.saved };
    let about = served.shown(*json)?;
    let service = service(head, store).with_context(|| name_of(file))?;
    write(about).await?;
    if *browser {
        tokio::spawn(open_in_browser(address));
    }
    http::serve(vec![listener], service, Limits::default(), stopped).await;
    Ok(())
}

#[derive(Serialize)]
struct Served<'a> {
    url: &'a str,
    host: &'a str,
    saved: f64,
}

impl Served<'_> {
    fn shown(&self, json: bool) -> Result<String> {
        if json {
            return output::json_line(self);
        }
        let (host, saved) = (format::host(self.host), clock::local_with_date(self.saved));
        let text = format!("serving the history of {host}, saved at {saved}, on {} until Ctrl-C", self.url);
        Ok(output::lines([text.as_str()]))
    }
}

/// Responds as the daemon did when the file was saved.
fn service(SavedHead { saved, history: head, snapshot, slow }: SavedHead, store: Store) -> Result<Service> {
    let range = store.range().context("it has no intervals")?;
    let saved = time(saved).context("it is damaged: an invalid time")?;
    let mut snapshot = snapshot.unwrap_or_else(|| Snapshot {
        host: head.host.clone(),
        interval: Duration::try_from_secs_f64(head.interval).unwrap_or_default(),
        taken: saved,
        started: range[0],
        ..Snapshot::default()
    });
    let threshold = slow.as_ref().and_then(|log| log.threshold);
    if let Some(log) = slow {
        snapshot.slow = log.ios;
    }
    let config = ServeConfig {
        slow: threshold.and_then(|threshold| Duration::try_from_secs_f64(threshold).ok()),
        saved: Some(SavedHistory { saved, head, range }),
        ..ServeConfig::default()
    };
    let (_, snapshots) = watch::channel(Some(Arc::new(snapshot)));
    Ok(Service::new(snapshots, config).with_history(SharedHistory::of(store)))
}

fn time(seconds: f64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

/// Opens the address in the desktop's browser, or logs why that failed. The child is unprivileged, because privileges were
/// already dropped.
async fn open_in_browser(address: String) {
    const PROGRAM: &str = "xdg-open";
    let opened = spawn_blocking(move || {
        let mut command = Command::new(PROGRAM);
        command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C ends this process, not the browser.
        command.process_group(0).status()
    });
    let why = match opened.await {
        Ok(Ok(status)) if status.success() => return,
        Ok(Ok(status)) => format!("{PROGRAM} failed: {status}"),
        Ok(Err(error)) => format!("cannot run {PROGRAM}: {error}"),
        // Cancelled before it started.
        Err(_) => return,
    };
    log_lines::write_text(&format!("cannot open the browser: {why}; open the address yourself\n"));
}
