//! The thread that opens, reads and writes the files: a drive that does not answer holds up nothing else.

use std::{
    path::PathBuf,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use tokio::{sync::oneshot, time::timeout};

use super::{Found, HistoryFile, Origin};
use crate::{
    history::{SharedHistory, Store},
    rights::{self, Role},
    runtime::no_thread,
};

/// How long after an error the files are left alone.
const RETRY: Duration = Duration::from_secs(60);

/// How long the history waits for what the files have.
const LONGEST_READ: Duration = Duration::from_secs(30);

/// Has the history written. When it is dropped, the thread writes once more, and ends.
pub(crate) struct FileWriter {
    path: PathBuf,
    history: SharedHistory,
    /// What the files have, once it has been read.
    read: oneshot::Receiver<Option<Box<Store>>>,
    recorded: SyncSender<()>,
    ended: oneshot::Receiver<()>,
}

impl FileWriter {
    /// Starts the thread. To be called before this thread drops its privileges, as it may then open no file to write to.
    /// `since_boot` tells the time that the history is recorded with.
    pub(crate) fn start(
        path: PathBuf,
        origin: Origin,
        history: SharedHistory,
        since_boot: impl Fn() -> Duration + Send + 'static,
        seccomp: bool,
    ) -> Result<Self> {
        let (recorded, recordings) = sync_channel(1);
        let (is_read, read) = oneshot::channel();
        let (is_ended, ended) = oneshot::channel();
        let (own_path, own_history) = (path.clone(), history.clone());
        let run = move || {
            let opened = HistoryFile::open(&own_path, origin).and_then(|file| {
                rights::drop_privileges(Role::WritingHistory { files: file.fds() }, seccomp)?;
                Ok(file)
            });
            let file = match opened {
                Ok(file) => file,
                Err(error) => {
                    log::warn!("--history-file: {error:#}: keeping the history in memory alone");
                    return;
                }
            };
            let mut writer = Writer { file, history: own_history, failed: None };
            let store = writer.read(since_boot);
            // Nobody waits for it any more.
            if is_read.send(store.map(Box::new)).is_ok() {
                writer.run(&recordings);
            }
            let _ = is_ended.send(());
        };
        let name = "history".to_owned();
        thread::Builder::new()
            .name(name)
            .spawn(run)
            .map_err(no_thread("the thread that writes the history"))?;
        Ok(Self { path, history, read, recorded, ended })
    }

    /// Waits until the files have been read, and goes on with what they have. None if they cannot be used.
    pub(crate) async fn ready(mut self) -> Option<Self> {
        match timeout(LONGEST_READ, &mut self.read).await {
            Ok(Ok(store)) => {
                if let Some(store) = store {
                    self.history.replace(*store);
                }
                Some(self)
            }
            // The thread has said why.
            Ok(Err(_)) => None,
            Err(_) => {
                log::warn!(
                    "cannot read the history in {} within {LONGEST_READ:?}: keeping it in memory alone",
                    self.path.display()
                );
                None
            }
        }
    }

    /// There is another interval. If the thread is still writing, it writes both next.
    pub(crate) fn recorded(&self) {
        let _ = self.recorded.try_send(());
    }

    /// Waits until all is written.
    pub(crate) async fn end(self) {
        drop(self.recorded);
        let _ = self.ended.await;
    }
}

struct Writer {
    file: HistoryFile,
    history: SharedHistory,
    /// When writing failed, if it did the last time.
    failed: Option<Instant>,
}

impl Writer {
    /// What the files have, if they have anything.
    fn read(&mut self, since_boot: impl Fn() -> Duration) -> Option<Store> {
        let (limits, opened) = self.history.limits();
        let was_empty = self.file.is_empty();
        let found = self.file.read(limits);
        let shown = self.file.path.display();
        let Some(Found { restoring, is_whole }) = found else {
            if !was_empty {
                log::warn!(
                    "the history in {shown} is damaged, or of a version that cannot be read: beginning a new one"
                );
            }
            return None;
        };
        if !is_whole {
            log::warn!("the end of the history in {shown} is damaged: going on with what is before it");
        }
        let store = restoring.end(opened, since_boot(), SystemTime::now());
        log::info!("going on with the history in {shown}: {} intervals", store.intervals().count());
        Some(store)
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
}
