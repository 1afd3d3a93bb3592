//! Waits for runs of the probe to end. An RCU grace period ends when all runs that were in progress at its beginning have ended.
//! A preempted run may take seconds, so a separate thread waits.
//!
//! Since Linux 7.0 SRCU protects the tracepoint, but each run of a program is still an RCU reader. The end of a grace period says
//! nothing about what happens between the two programs of one completion.

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
use biolat_system::runtime::no_thread;

use super::sys;

/// Minimum duration of a grace period that is logged as long.
const LONG: Duration = Duration::from_secs(1);

/// Delay before a failed wait is retried.
const RETRY: Duration = Duration::from_millis(100);

/// A function that returns when a grace period has ended.
type Wait = Box<dyn FnMut() -> Result<()> + Send>;

type Job = Box<dyn FnOnce(&mut Wait) + Send>;

/// An array of maps that no program uses. A write to it returns when all programs that were running have ended.
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

    fn wait(&mut self) -> Result<()> {
        self.maps.set(0, self.entry.map(), 0).context("cannot wait for runs of the probe")
    }
}

/// Progress of the numbered grace periods. Each begins when the previous one has ended.
#[derive(Default)]
struct Progress {
    /// Number of the last one that was requested.
    wanted: u64,
    /// Number of the last one that has begun.
    begun: u64,
    /// Start of the current one; `None` if there is none.
    begun_at: Option<Instant>,
    /// Number of the last one that has ended.
    ended: u64,
    /// Number of the last one that was logged as long.
    logged: u64,
    /// Total time that callers have spent waiting.
    waited: Duration,
}

/// A handle to the waiting thread, which ends when the last clone is dropped.
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

    /// Waits for one grace period after another until all requested ones have ended.
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

    /// Requests a grace period that begins after this call, and returns its number.
    #[must_use]
    pub fn request(&self) -> u64 {
        let mut progress = self.shared.lock();
        if progress.wanted <= progress.begun {
            progress.wanted = progress.begun + 1;
            let shared = Arc::clone(&self.shared);
            // Fails only if the thread is gone; then no grace period ever ends.
            let _ = self.jobs.send(Box::new(move |wait| shared.catch_up(wait)));
        }
        progress.wanted
    }

    /// Whether the grace period with this number has ended.
    #[must_use]
    pub fn has_ended(&self, number: u64) -> bool {
        self.shared.lock().ended >= number
    }

    /// Waits until the grace period with this number has ended. Returns `false` on a timeout.
    #[must_use]
    pub fn wait(&self, number: u64, timeout: Duration) -> bool {
        let began = Instant::now();
        let progress = self.shared.lock();
        let is_pending = |progress: &mut Progress| progress.ended < number;
        let waited = self.shared.ended.wait_timeout_while(progress, timeout, is_pending);
        let (mut progress, result) = waited.unwrap_or_else(PoisonError::into_inner);
        progress.waited += began.elapsed();
        !result.timed_out()
    }

    /// Total time that callers have spent waiting, doing no work.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.shared.lock().waited
    }

    /// Whether the current grace period is a long one.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.shared.lock().begun_at.is_some_and(|begun_at| begun_at.elapsed() >= LONG)
    }

    /// Waits until the grace period with this number has ended, however long that takes.
    pub fn wait_to_the_end(&self, number: u64) {
        while !self.wait(number, LONG) {
            self.log_long_wait();
        }
    }

    /// Logs the current grace period if it is long, but only once.
    pub fn log_long_wait(&self) {
        let mut progress = self.shared.lock();
        let waited = progress.begun_at.map(|begun_at| begun_at.elapsed()).unwrap_or_default();
        if waited >= LONG && progress.logged < progress.begun {
            progress.logged = progress.begun;
            log::warn!(
                "an RCU grace period has not ended for {waited:.1?}, probably because a task was preempted in the probe: there \
                 are no new figures until it ends (unless --workloads is off), but nothing is lost; look for real-time tasks \
                 that monopolize a CPU (ps -eLo cls,rtprio,psr,pcpu,comm) and for RCU stalls in the kernel's log"
            );
        }
    }

    /// Runs a function in the thread, for example one that drops the thread's privileges.
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

    use super::{GracePeriods, LONG, Shared};

    /// Callers need not wait, and a request during a grace period is for the next one.
    #[test]
    fn preempted_run_does_not_block_callers() {
        const SHORT: Duration = Duration::from_millis(20);
        let (end, ends) = channel();
        let grace_periods = GracePeriods::with(Box::new(move || Ok(ends.recv()?))).unwrap();
        let first = grace_periods.request();
        // The grace period begins when the thread starts to wait for it.
        let began = Instant::now();
        while grace_periods.shared.lock().begun < first {
            assert!(began.elapsed() < Duration::from_secs(5));
        }
        let second = grace_periods.request();
        assert!(second > first && second == grace_periods.request());
        assert!(!grace_periods.wait(first, SHORT) && !grace_periods.has_ended(first));
        assert!(grace_periods.waited() >= SHORT, "{:?}", grace_periods.waited());
        end.send(()).unwrap();
        grace_periods.wait_to_the_end(first);
        assert!(grace_periods.has_ended(first) && !grace_periods.wait(second, SHORT));
        end.send(()).unwrap();
        grace_periods.wait_to_the_end(second);
    }

    #[test]
    fn a_grace_period_of_a_second_is_long() {
        let (end, ends) = channel();
        let grace_periods = GracePeriods::with(Box::new(move || Ok(ends.recv()?))).unwrap();
        let number = grace_periods.request();
        assert!(!grace_periods.is_long() && !grace_periods.wait(number, LONG + LONG / 10));
        assert!(grace_periods.is_long());
        end.send(()).unwrap();
        grace_periods.wait_to_the_end(number);
        assert!(!grace_periods.is_long());
        assert!(grace_periods.waited() >= LONG, "{:?}", grace_periods.waited());
    }

    #[test]
    fn retries_failed_wait() {
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
