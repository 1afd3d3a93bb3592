//! A thread for sysfs reads that can block: some attributes wait for a lock that is held while a drive hangs. The collector waits
//! for a while and then goes on without the result, so one hung drive does not affect the others.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use biolat_system::{rights, runtime::no_thread};

use super::thread::LogLimit;

/// Time limit for a read.
const TIMEOUT: Duration = Duration::from_secs(2);

type Job = Box<dyn FnOnce() + Send>;

/// The thread, and its unfinished read.
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

    /// Runs a read in the thread. Returns `None` if it blocks, or an earlier read still does. The result of a read that takes too
    /// long is dropped.
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
            // After the timeout, nobody is waiting for the result.
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
                "sysfs cannot be read, probably because a drive hangs: known devices are still measured, new ones are not found"
            }
            Err(RecvTimeoutError::Disconnected) => {
                "the thread that reads sysfs has ended: restart biolat, and report this as a bug"
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
    fn waits_only_once_for_blocked_read() {
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
