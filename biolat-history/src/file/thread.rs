//! The thread that opens, reads and writes the files. A hung drive delays nothing else, and the thread shares no file descriptors
//! with the rest of the daemon: if the daemon is killed while the drive hangs, the next daemon can still start.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use biolat_system::{
    rights::{self, Role},
    runtime::no_thread,
};
use tokio::time::sleep;

use super::{Found, HistoryFile, Origin};
use crate::SharedHistory;

/// Time until the next attempt after an error, and the longest wait between attempts to lock the files.
const RETRY: Duration = Duration::from_secs(60);

/// Wait after the first attempt to lock the files: a daemon that is about to exit may still hold the locks.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// After this long without an answer from the drive, a warning is logged.
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// Handle of the thread. When it is dropped, the thread writes once more and exits.
pub struct FileWriter {
    path: PathBuf,
    started: Instant,
    /// Whether the drive has answered, or its silence has been logged.
    is_answered: Arc<AtomicBool>,
    recorded: SyncSender<()>,
    ended: Receiver<()>,
}

impl FileWriter {
    /// Starts the thread. Must be called before the calling thread drops its privileges, because after that no new thread could
    /// open a file for writing. `since_boot` is the clock that the history is recorded with.
    pub fn start(
        path: PathBuf,
        origin: Origin,
        history: SharedHistory,
        since_boot: impl Fn() -> Duration + Send + 'static,
        seccomp: bool,
    ) -> Result<Self> {
        let (recorded, recordings) = sync_channel(1);
        let (is_ended, ended) = sync_channel(1);
        let is_answered = Arc::new(AtomicBool::new(false));
        history.set_awaits_file(true);
        let (own_path, answered) = (path.clone(), Arc::clone(&is_answered));
        let run = move || {
            let _is_ended: SyncSender<()> = is_ended;
            rights::isolate_thread();
            let opened = HistoryFile::open(&own_path, origin).and_then(|file| {
                rights::drop_privileges(Role::WritingHistory { files: file.fds() }, seccomp)?;
                Ok(file)
            });
            answered.store(true, Relaxed);
            let result = opened.and_then(|file| {
                let mut writer =
                    Writer { file, history: history.clone(), failed: None, is_removal_logged: false };
                if writer.lock(&recordings)? {
                    writer.read(since_boot);
                    writer.run(&recordings);
                }
                Ok(())
            });
            if let Err(error) = result {
                log::warn!("--history-file: {error:#}: keeping the history in memory only");
                history.set_awaits_file(false);
            }
        };
        let name = "history".to_owned();
        thread::Builder::new()
            .name(name)
            .spawn(run)
            .map_err(no_thread("the thread that writes the history"))?;
        Ok(Self { path, started: Instant::now(), is_answered, recorded, ended })
    }

    /// Announces a new interval. If the thread is still writing, its next write includes the interval.
    pub fn recorded(&self) {
        let _ = self.recorded.try_send(());
        if self.started.elapsed() > MAX_SILENCE && !self.is_answered.swap(true, Relaxed) {
            log::warn!(
                "cannot open the history in {}: its drive has not answered for {MAX_SILENCE:?}: keeping it in memory until it does",
                self.path.display()
            );
        }
    }

    /// Waits until everything is written. It polls, because the thread has no descriptor to wake this one with.
    pub async fn end(self) {
        drop(self.recorded);
        while self.ended.try_recv() != Err(TryRecvError::Disconnected) {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

struct Writer {
    file: HistoryFile,
    history: SharedHistory,
    /// Time of the last failed write. `None` once a write succeeds.
    failed: Option<Instant>,
    /// Whether the removal of a file was logged.
    is_removal_logged: bool,
}

impl Writer {
    /// Waits until no other process has the files locked. Returns false if the daemon stops first.
    fn lock(&self, recordings: &Receiver<()>) -> Result<bool> {
        let mut wait = FIRST_RETRY;
        let mut is_logged = false;
        while !self.file.lock()? {
            let next = Instant::now() + wait;
            if wait > FIRST_RETRY && !std::mem::replace(&mut is_logged, true) {
                log::warn!(
                    "cannot use the history in {}: another process has it locked (a running or hung biolat-daemon): \
                     keeping the history in memory, trying again every minute",
                    self.file.path.display()
                );
            }
            wait = (2 * wait).min(RETRY);
            loop {
                match recordings.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// Continues the history in the files, if there is one.
    fn read(&mut self, since_boot: impl Fn() -> Duration) {
        let was_empty = self.file.is_empty();
        let found = self.file.read(self.history.limits());
        let shown = self.file.path.display();
        let Some(Found { restoring, is_whole }) = found else {
            if !was_empty {
                log::warn!("the history in {shown} is corrupt, or its format is unknown: starting a new one");
            }
            self.history.set_awaits_file(false);
            return;
        };
        if !is_whole {
            log::warn!("the history in {shown} is corrupt at its end: keeping what precedes that");
        }
        let intervals = self.history.take_over(restoring, since_boot(), SystemTime::now());
        log::info!("resumed the history in {shown}: {intervals} intervals");
    }

    fn run(&mut self, recordings: &Receiver<()>) {
        loop {
            let is_last = recordings.recv().is_err();
            let waits = self.failed.is_some_and(|failed| failed.elapsed() < RETRY);
            if !waits || is_last {
                self.write();
            }
            if is_last {
                return;
            }
        }
    }

    fn write(&mut self) {
        let written = self.file.write(&self.history);
        self.log_removal();
        let shown = self.file.path.display();
        let had_failed = self.failed.is_some();
        match written {
            Ok(()) => {
                if had_failed {
                    log::info!("the history is written to {shown} again");
                }
                self.failed = None;
            }
            Err(error) => {
                if !had_failed {
                    log::warn!(
                        "cannot write the history to {shown}: {error}: keeping it in memory, trying again every minute"
                    );
                }
                self.failed = Some(Instant::now());
            }
        }
    }

    fn log_removal(&mut self) {
        if self.file.is_removed() && !std::mem::replace(&mut self.is_removal_logged, true) {
            log::warn!(
                "the history in {} was removed: it will be lost when biolat-daemon stops; restart it to start a new file",
                self.file.path.display()
            );
        }
    }
}
