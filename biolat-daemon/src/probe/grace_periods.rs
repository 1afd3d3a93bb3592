//! Waits for runs of the probe. A grace period of RCU ends when all runs have ended that were in progress when it began. A run
//! that is preempted may take seconds, so a thread of its own waits.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Sender, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use aya::maps::{Array, ArrayOfMaps, IterableMap as _, Map, MapData};

use super::sys;
use crate::runtime::no_thread;

/// A grace period that takes longer is logged.
const LONG: Duration = Duration::from_secs(1);

/// After this, a wait that failed is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// Returns after a grace period.
type Wait = Box<dyn FnMut() -> Result<()> + Send>;

type Job = Box<dyn FnOnce(&mut Wait) + Send>;

/// An array of maps that no program uses. When it is written to, the kernel waits for all programs that run.
///
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/bpf/syscall.c#L145>
struct Barrier {
    maps: ArrayOfMaps<MapData>,
    entry: Array<MapData, u64>,
}

impl Barrier {
    fn create() -> Result<Self> {
        const CONTEXT: &str = "cannot create a map";
        let entry: Array<_, u64> = Array::create(1, 0).context(CONTEXT)?;
        let maps = sys::create_array_of_maps(entry.map()).context(CONTEXT)?;
        let maps = Map::ArrayOfMaps(MapData::from_fd(maps).context(CONTEXT)?);
        Ok(Self { maps: ArrayOfMaps::try_from(maps)?, entry })
    }

    /// A grace period.
    fn wait(&mut self) -> Result<()> {
        self.maps.set(0, self.entry.map(), 0).context("cannot wait for runs of the probe")
    }
}

/// Grace periods by number: each begins after the one before has ended.
#[derive(Default)]
struct Progress {
    /// The last that is to begin.
    wanted: u64,
    /// The last that has begun, and when.
    begun: u64,
    begun_at: Option<Instant>,
    /// The last that has ended.
    ended: u64,
    /// The last that was logged because it takes long.
    logged: u64,
}

/// The thread that waits. It ends with the last clone of this.
#[derive(Clone)]
pub struct GracePeriods {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    progress: Mutex<Progress>,
    ended: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets grace periods pass until there is no need for another one.
    fn catch_up(&self, mut wait: impl FnMut() -> Result<()>) {
        let mut is_logged = false;
        loop {
            let mut progress = self.lock();
            if progress.ended >= progress.wanted {
                progress.begun_at = None;
                return;
            }
            progress.begun += 1;
            progress.begun_at.get_or_insert_with(Instant::now);
            let number = progress.begun;
            drop(progress);
            match wait() {
                Ok(()) => {
                    let mut progress = self.lock();
                    progress.ended = number;
                    progress.begun_at = None;
                    self.ended.notify_all();
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        log::error!("{error:#}; trying again");
                    }
                    thread::sleep(RETRY);
                }
            }
        }
    }
}

impl GracePeriods {
    pub(super) fn start() -> Result<Self> {
        let mut barrier = Barrier::create()?;
        Self::with(Box::new(move || barrier.wait()))
    }

    fn with(mut wait: Wait) -> Result<Self> {
        let (jobs, received) = channel::<Job>();
        thread::Builder::new()
            .name("rcu".to_owned())
            .spawn(move || received.into_iter().for_each(|job| job(&mut wait)))
            .map_err(no_thread("the thread that waits for grace periods"))?;
        Ok(Self { jobs, shared: Arc::default() })
    }

    /// Asks for a grace period that begins after this call; returns its number.
    #[must_use]
    pub fn request(&self) -> u64 {
        let mut progress = self.shared.lock();
        if progress.wanted <= progress.begun {
            progress.wanted = progress.begun + 1;
            let shared = Arc::clone(&self.shared);
            // Without the thread, nothing ends any more.
            let _ = self.jobs.send(Box::new(move |wait| shared.catch_up(wait)));
        }
        progress.wanted
    }

    /// Whether this one has ended.
    #[must_use]
    pub fn has_ended(&self, number: u64) -> bool {
        self.shared.lock().ended >= number
    }

    /// Waits for the end of this one. `false`: it took longer than the timeout.
    #[must_use]
    pub fn wait(&self, number: u64, timeout: Duration) -> bool {
        let progress = self.shared.lock();
        let is_pending = |progress: &mut Progress| progress.ended < number;
        let waited = self.shared.ended.wait_timeout_while(progress, timeout, is_pending);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Waits for the end of this one, however long it takes.
    pub fn wait_to_the_end(&self, number: u64) {
        while !self.wait(number, LONG) {
            self.log_long_wait();
        }
    }

    /// Logs that a grace period takes long, once for each.
    pub fn log_long_wait(&self) {
        let mut progress = self.shared.lock();
        let waited = progress.begun_at.map(|begun_at| begun_at.elapsed()).unwrap_or_default();
        if waited >= LONG && progress.logged < progress.begun {
            progress.logged = progress.begun;
            log::warn!(
                "a run of the probe has not ended for {waited:.1?}, its task may be preempted: slots of devices that are gone \
                 and, with --workloads, the next figures wait for it; look for real-time tasks (SCHED_FIFO) that do not yield"
            );
        }
    }

    /// Runs something in the thread, such as what drops its privileges.
    pub fn in_thread<T: Send + 'static>(&self, run: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let (sender, result) = sync_channel(1);
        let job = Box::new(move |_: &mut Wait| drop(sender.send(run())));
        self.jobs.send(job).ok().context("the thread that waits for grace periods has ended")?;
        result.recv().context("the thread that waits for grace periods does not answer")
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::channel,
        time::{Duration, Instant},
    };

    use anyhow::bail;

    use super::{GracePeriods, Shared};

    /// Nobody has to wait, and what was asked for meanwhile is the next grace period.
    #[test]
    fn a_run_that_is_preempted_stops_nobody() {
        const SHORT: Duration = Duration::from_millis(20);
        let (end, ends) = channel();
        let grace_periods = GracePeriods::with(Box::new(move || Ok(ends.recv()?))).unwrap();
        let first = grace_periods.request();
        // It has not begun before the thread has asked for it.
        let began = Instant::now();
        while grace_periods.shared.lock().begun < first {
            assert!(began.elapsed() < Duration::from_secs(5));
        }
        let second = grace_periods.request();
        assert!(second > first && second == grace_periods.request());
        assert!(!grace_periods.wait(first, SHORT) && !grace_periods.has_ended(first));
        end.send(()).unwrap();
        grace_periods.wait_to_the_end(first);
        assert!(grace_periods.has_ended(first) && !grace_periods.wait(second, SHORT));
        end.send(()).unwrap();
        grace_periods.wait_to_the_end(second);
    }

    #[test]
    fn a_wait_that_failed_is_none() {
        let shared = Shared::default();
        shared.lock().wanted = 1;
        let mut waits = 0;
        shared.catch_up(|| {
            waits += 1;
            if waits == 1 {
                bail!("out of memory");
            }
            assert_eq!(shared.lock().ended, 0);
            Ok(())
        });
        assert_eq!((waits, shared.lock().ended), (2, 2));
    }
}
