//! The probe's programs and what attaches them, by file descriptor: the same whether this process has loaded them or has taken
//! them over.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use anyhow::{Context as _, Result};

use super::sys::{self, ProgramCounts};

/// Runs at each completion.
pub(super) const COMPLETE: &str = "block_rq_complete";
/// Runs at each completion after the first one, once the kernel has refused that one a completion.
pub(super) const UNDERSTUDY: &str = "understudy";
/// Runs when a request goes back to the queue.
pub(super) const REQUEUE: &str = "block_rq_requeue";
/// The daemon runs it, to look at the requests in flight.
pub(super) const INFLIGHT: &str = "inflight";
/// The daemon runs it, to look whether a cgroup still exists.
pub(super) const CGROUP_EXISTS: &str = "cgroup_exists";

/// The programs in the kernel. The probe works without all but the first.
pub(super) struct Programs {
    pub(super) complete: OwnedFd,
    pub(super) understudy: Option<OwnedFd>,
    pub(super) requeue: Option<OwnedFd>,
    pub(super) inflight: Option<OwnedFd>,
    pub(super) cgroup_exists: Option<OwnedFd>,
}

/// Programs are attached for as long as any process has these open.
pub struct Links {
    pub(super) complete: OwnedFd,
    /// Attached by the collector when it is needed.
    pub(super) understudy: Option<OwnedFd>,
    pub(super) requeue: Option<OwnedFd>,
}

impl Programs {
    pub(super) fn attach(&self) -> Result<Links> {
        Ok(Links { complete: self.attach_complete()?, understudy: None, requeue: self.attach_requeue() })
    }

    pub(super) fn attach_complete(&self) -> Result<OwnedFd> {
        sys::attach(self.complete.as_fd()).context("cannot attach the probe")
    }

    pub(super) fn attach_requeue(&self) -> Option<OwnedFd> {
        let attached = sys::attach(self.requeue.as_ref()?.as_fd());
        attached.inspect_err(|error| log::warn!("requeues are not counted: {error}")).ok()
    }

    /// The kernel's counts of the program that runs at each completion, with the misses of the one that counts requeues.
    pub(super) fn counts(&self) -> Result<ProgramCounts> {
        let of = |program: &OwnedFd| {
            let info = sys::program_info(program.as_fd()).context("cannot read the probe's statistics")?;
            Ok::<_, anyhow::Error>(info.counts)
        };
        let requeue = self.requeue.as_ref().map(of).transpose()?;
        Ok(with_requeue(of(&self.complete)?, requeue))
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let others = [&self.understudy, &self.requeue, &self.inflight, &self.cgroup_exists];
        std::iter::once(&self.complete).chain(others.into_iter().flatten()).map(|program| program.as_fd())
    }
}

/// The counts of the program that runs at each completion, with the misses of the one that counts requeues, if that is loaded.
fn with_requeue(complete: ProgramCounts, requeue: Option<ProgramCounts>) -> ProgramCounts {
    let requeue_misses = requeue.map_or(0, |counts| counts.recursion_misses);
    ProgramCounts { requeue_misses, ..complete }
}

impl Links {
    pub(super) fn all(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // The understudy's is kept last.
        std::iter::once(&self.complete).chain(&self.requeue).chain(&self.understudy).map(|link| link.as_fd())
    }
}

/// Runs a program that nothing triggers; returns its result.
pub(super) fn run(program: Option<&OwnedFd>, arguments: &[u64]) -> io::Result<u32> {
    let program = program.ok_or(io::ErrorKind::Unsupported)?;
    sys::run(program.as_fd(), arguments)
}

#[cfg(test)]
mod tests {
    use super::{super::sys::ProgramCounts, with_requeue};

    /// The kernel has a guard for each program.
    #[test]
    fn a_refused_requeue_is_no_refused_completion() {
        let counts =
            |recursion_misses| ProgramCounts { recursion_misses, runs: 10, ..ProgramCounts::default() };
        let of_both = with_requeue(counts(3), Some(counts(5)));
        assert_eq!((of_both.recursion_misses, of_both.requeue_misses, of_both.runs), (3, 5, 10));
        assert_eq!(with_requeue(counts(3), None).requeue_misses, 0);
    }
}
