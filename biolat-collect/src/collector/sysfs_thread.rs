//! A thread for reads of sysfs that may block: some attributes wait for a lock that is held for as long as a drive hangs. The
//! collector waits for such a read for a while, and then goes on without it: other drives do not suffer from one that hangs.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use biolat_system::{rights, runtime::no_thread};

use super::thread::LogLimit;

/// How long a read may take.
const TIMEOUT: Duration = Duration::from_secs(2);

type Job = Box<dyn FnOnce() + Send>;

/// The thread, and the read that it has not finished yet.
pub(super) struct SysfsThread {
    jobs: SyncSender<Job>,
    blocked: Option<Blocked>,
    timeout: Duration,
    error_log: LogLimit,
}

struct Blocked {
    since: Instant,
    /// Disconnected once the read has finished.
    finished: Receiver<()>,
}

impl SysfsThread {
    pub(super) fn start() -> Result<Self> {
        let (jobs, received) = sync_channel::<Job>(1);
        thread::Builder::new()
            .name("sysfs".to_owned())
            .spawn(move || {
                rights::isolate_thread();
                received.into_iter().for_each(|job| job());
            })
            .map_err(no_thread("the thread that reads sysfs"))?;
        Ok(Self { jobs, blocked: None, timeout: TIMEOUT, error_log: LogLimit::default() })
    }

    /// Reads something; none if that blocks, or an earlier read still does. The result of a read that takes too long is
    /// dropped.
    pub(super) fn read<T: Send + 'static>(&mut self, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if let Some(blocked) = &self.blocked {
            if blocked.finished.recv_timeout(Duration::ZERO) == Err(RecvTimeoutError::Timeout) {
                return None;
            }
            log::info!("sysfs can be read again, after {:.0?}", blocked.since.elapsed());
            self.blocked = None;
        }
        let (sender, result) = sync_channel(1);
        let (finish, finished) = sync_channel(1);
        let since = Instant::now();
        let job = Box::new(move || {
            let _finish: SyncSender<()> = finish;
            // Nobody waits for it any more if it took too long.
            let _ = sender.send(read());
        });
        let result = match self.jobs.send(job) {
            Ok(()) => result.recv_timeout(self.timeout),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        };
        let error = match result {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Timeout) => {
                self.blocked = Some(Blocked { since, finished });
                "reading sysfs blocks: a drive may hang; the known devices are still measured, new ones are not found"
            }
            Err(RecvTimeoutError::Disconnected) => {
                "the thread that reads sysfs has ended: please report it, and restart biolat"
            }
        };
        if self.error_log.allows() {
            log::error!("{error}");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::channel,
        time::{Duration, Instant},
    };

    use super::SysfsThread;

    #[test]
    fn a_read_that_blocks_is_waited_for_once() {
        let mut thread = SysfsThread { timeout: Duration::from_millis(100), ..SysfsThread::start().unwrap() };
        assert_eq!(thread.read(|| 1), Some(1));
        let (end, blocks) = channel::<()>();
        assert_eq!(thread.read(move || blocks.recv().is_ok()), None);
        let began = Instant::now();
        assert_eq!(thread.read(|| 2), None);
        assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
        drop(end);
        let mut again = || {
            std::thread::sleep(Duration::from_millis(1));
            thread.read(|| 3)
        };
        assert_eq!((0..5000).find_map(|_| again()), Some(3));
    }
}
