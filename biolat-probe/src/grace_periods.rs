//! Waits for runs of the probe. An RCU grace period ends when all runs have ended that were in progress when it began. A
//! preempted run may take seconds, so a separate thread waits.

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

/// A longer grace period is logged.
const LONG: Duration = Duration::from_secs(1);

/// Time before a failed wait is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// Returns when a grace period has ended.
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

/// Numbered grace periods: each begins when the previous one has ended.
#[derive(Default)]
struct Progress {
    /// The last one that was requested.
    wanted: u64,
    /// The last one that has begun.
    begun: u64,
    /// When the current one began; `None` if there is none.
    begun_at: Option<Instant>,
    /// The last one that has ended.
    ended: u64,
    /// The last one that was logged because it is long.
    logged: u64,
    /// Time that callers have spent waiting.
    waited: Duration,
}

/// The thread that waits. It ends when the last clone is dropped.
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

    /// Waits for grace periods until all that were requested have ended.
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

    /// Requests a grace period that begins after this call; returns its number.
    #[must_use]
    pub fn request(&self) -> u64 {
        let mut progress = self.shared.lock();
        if progress.wanted <= progress.begun {
            progress.wanted = progress.begun + 1;
            let shared = Arc::clone(&self.shared);
            // Fails only without the thread; then no grace period ends any more.
            let _ = self.jobs.send(Box::new(move |wait| shared.catch_up(wait)));
        }
        progress.wanted
    }

    /// Whether the grace period with this number has ended.
    #[must_use]
    pub fn has_ended(&self, number: u64) -> bool {
        self.shared.lock().ended >= number
    }

    /// Waits for its end. `false`: the timeout came first.
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

    /// Time that callers have spent waiting so far: none of it is work.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.shared.lock().waited
    }

    /// Whether the current grace period is a long one.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.shared.lock().begun_at.is_some_and(|begun_at| begun_at.elapsed() >= LONG)
    }

    /// Waits for its end, however long it takes.
    pub fn wait_to_the_end(&self, number: u64) {
        while !self.wait(number, LONG) {
            self.log_long_wait();
        }
    }

    /// Logs a long grace period, once.
    pub fn log_long_wait(&self) {
        let mut progress = self.shared.lock();
        let waited = progress.begun_at.map(|begun_at| begun_at.elapsed()).unwrap_or_default();
        if waited >= LONG && progress.logged < progress.begun {
            progress.logged = progress.begun;
            log::warn!(
                "an RCU grace period has not ended for {waited:.1?}, probably because a task was preempted in the probe: unless \
                 --workloads is off the next figures wait for it, then they continue and nothing is lost; look for real-time \
                 tasks that keep a CPU (ps -eLo cls,rtprio,psr,pcpu,comm) and for RCU stalls in the kernel's log"
            );
        }
    }

    /// Runs a function in the thread, such as the one that drops its privileges.
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

    /// A caller need not wait, and a request during a grace period is for the next one.
    #[test]
    fn a_preempted_run_blocks_no_caller() {
        const SHORT: Duration = Duration::from_millis(20);
        let (end, ends) = channel();
        let grace_periods = GracePeriods::with(Box::new(move || Ok(ends.recv()?))).unwrap();
        let first = grace_periods.request();
        // It begins when the thread waits for it.
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
    fn a_failed_wait_is_no_grace_period() {
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
