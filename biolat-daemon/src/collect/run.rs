//! The collector's thread: passes on the interval, and what it is told in between.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use biolat_common::bucket::{CELLS, LIMIT_NS, cell};
use tokio::sync::watch;

use super::Collector;
use crate::{histogram::Histogram, snapshot::Snapshot};

/// What the collector is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A disk came or went.
    Rescan,
    /// Make a last pass and end.
    Stop,
}

/// Log lines about passes come no closer than this.
const QUIET: Duration = Duration::from_secs(60);

/// Between two looks at the devices, however many of them come and go.
const REST: Duration = Duration::from_millis(100);

/// How passes went.
pub(super) struct Passes {
    /// How long they took.
    cells: [u64; CELLS],
    sum_ns: u128,
    pub(super) failures: u64,
    pub(super) overruns: u64,
    /// When a line was last logged.
    complained: Option<Instant>,
}

impl Default for Passes {
    fn default() -> Self {
        Self { cells: [0; CELLS], sum_ns: 0, failures: 0, overruns: 0, complained: None }
    }
}

impl Passes {
    fn record(&mut self, took: Duration, interval: Duration) {
        let ns = took.as_nanos();
        self.cells[cell(u64::try_from(ns).unwrap_or(u64::MAX).min(LIMIT_NS - 1))] += 1;
        self.sum_ns += ns;
        if took > interval {
            self.overruns += 1;
            if self.may_complain() {
                log::warn!(
                    "a pass took {took:.1?}, longer than the interval of {interval:?}: raise --interval"
                );
            }
        }
    }

    /// Whether a line may be logged: whatever goes wrong goes wrong on each pass.
    fn may_complain(&mut self) -> bool {
        let may = self.complained.is_none_or(|when| when.elapsed() >= QUIET);
        if may {
            self.complained = Some(Instant::now());
        }
        may
    }

    pub(super) fn histogram(&self) -> Histogram {
        Histogram::from_cells(self.cells, self.sum_ns)
    }
}

/// Makes passes until it is told to stop. Whatever fails, the last snapshot stays.
pub fn run(
    mut collector: Collector,
    interval: Duration,
    commands: &Receiver<Command>,
    snapshots: &watch::Sender<Option<Arc<Snapshot>>>,
) {
    let mut next = Instant::now();
    let mut rested = next;
    let mut rescan: Option<Instant> = None;
    loop {
        collector.timed_pass(interval, snapshots);
        // A pass that took too long delays the next one, and does not make up for lost ones.
        next = (next + interval).max(Instant::now());
        let mut fallow = collector.fallow_until();
        loop {
            let now = Instant::now();
            if now >= next {
                break;
            }
            if rescan.is_some_and(|due| now >= due) {
                rescan = None;
                if let Err(error) = collector.rescan() {
                    log::error!("{error:#}");
                }
                rested = Instant::now() + REST;
                fallow = collector.fallow_until();
                continue;
            }
            if fallow.is_some_and(|due| now >= due) {
                // What fails here fails on the next pass too, which says so.
                fallow = collector.end_fallow().ok().and_then(|()| collector.fallow_until());
                continue;
            }
            let wake = [rescan, fallow].into_iter().flatten().fold(next, Instant::min);
            match commands.recv_timeout(wake - now) {
                Ok(Command::Rescan) => {
                    rescan.get_or_insert(rested);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    collector.timed_pass(interval, snapshots);
                    return;
                }
            }
        }
    }
}

impl Collector {
    fn timed_pass(&mut self, interval: Duration, snapshots: &watch::Sender<Option<Arc<Snapshot>>>) {
        let began = Instant::now();
        let result = self.pass();
        self.passes.record(began.elapsed(), interval);
        match result {
            Ok(snapshot) => {
                snapshots.send_replace(Some(Arc::new(snapshot)));
            }
            Err(error) => {
                self.passes.failures += 1;
                if self.passes.may_complain() {
                    log::error!("a pass failed, the last figures stay: {error:#}");
                }
                let health = self.health();
                snapshots.send_if_modified(|last| {
                    let Some(snapshot) = last else { return false };
                    *last = Some(Arc::new(Snapshot { health, ..Snapshot::clone(snapshot) }));
                    true
                });
            }
        }
    }
}
