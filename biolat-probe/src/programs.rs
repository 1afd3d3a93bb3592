//! The probe's programs and links, as file descriptors. It does not matter whether this process loaded them or took them over.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use anyhow::{Context as _, Result};

use super::sys::{self, ProgramCounts};

/// Runs at each completion.
pub(super) const COMPLETE: &str = "block_rq_complete";
/// Runs at each completion, after the first program. Attached once the kernel has refused to run the first program.
pub(super) const UNDERSTUDY: &str = "understudy";
/// Runs when a request returns to the queue.
pub(super) const REQUEUE: &str = "block_rq_requeue";
/// Runs when a task is about to sleep because no tag is free.
pub(super) const TAG_WAIT: &str = "block_rq_tag_wait";
/// Run by the daemon to survey the requests in flight.
pub(super) const INFLIGHT: &str = "inflight";
/// Run by the daemon to check whether a cgroup still exists.
pub(super) const CGROUP_EXISTS: &str = "cgroup_exists";

/// What follows if one of the optional programs cannot be loaded or attached.
pub(super) const REQUEUES_NOT_COUNTED: &str = "requeues are not counted";
pub(super) const TAG_WAITS_NOT_COUNTED: &str = "waits for a tag are not counted";

/// The loaded programs. Only the first is required.
pub(super) struct Programs {
    pub(super) complete: OwnedFd,
    pub(super) understudy: Option<OwnedFd>,
    pub(super) requeue: Option<OwnedFd>,
    pub(super) tag_wait: Option<OwnedFd>,
    pub(super) inflight: Option<OwnedFd>,
    pub(super) cgroup_exists: Option<OwnedFd>,
}

/// The links. The programs are attached as long as any process has these open.
pub struct Links {
    pub(super) complete: OwnedFd,
    /// Attached later, by the collector, when it is needed.
    pub(super) understudy: Option<OwnedFd>,
    pub(super) requeue: Option<OwnedFd>,
    pub(super) tag_wait: Option<OwnedFd>,
}

impl Programs {
    pub(super) fn attach(&self) -> Result<Links> {
        Ok(self.links(self.attach_complete()?))
    }

    pub(super) fn attach_complete(&self) -> Result<OwnedFd> {
        sys::attach(self.complete.as_fd()).context("cannot attach the probe")
    }

    /// Attaches the optional programs, except the understudy, and returns their links with this one.
    pub(super) fn links(&self, complete: OwnedFd) -> Links {
        let attach = |program: &Option<OwnedFd>, consequence: &str| {
            let attached = sys::attach(program.as_ref()?.as_fd());
            attached.inspect_err(|error| log::warn!("{consequence}: {error}")).ok()
        };
        Links {
            complete,
            understudy: None,
            requeue: attach(&self.requeue, REQUEUES_NOT_COUNTED),
            tag_wait: attach(&self.tag_wait, TAG_WAITS_NOT_COUNTED),
        }
    }

    /// The kernel's counts for the program that runs at each completion, plus the misses of the programs that count requeues and
    /// waits for a tag.
    pub(super) fn counts(&self) -> Result<ProgramCounts> {
        let of = |program: &OwnedFd| {
            let info = sys::program_info(program.as_fd()).context("cannot read the probe's statistics")?;
            Ok::<_, anyhow::Error>(info.counts)
        };
        let requeue = self.requeue.as_ref().map(of).transpose()?;
        let tag_wait = self.tag_wait.as_ref().map(of).transpose()?;
        Ok(with_misses(of(&self.complete)?, requeue, tag_wait))
    }

    /// All programs.
    pub(super) fn all(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let others = [&self.understudy, &self.requeue, &self.tag_wait, &self.inflight, &self.cgroup_exists];
        std::iter::once(&self.complete).chain(others.into_iter().flatten()).map(|program| program.as_fd())
    }
}

/// Adds the misses of the programs that count requeues and waits for a tag, if they are loaded.
fn with_misses(
    complete: ProgramCounts,
    requeue: Option<ProgramCounts>,
    tag_wait: Option<ProgramCounts>,
) -> ProgramCounts {
    let misses = |counts: Option<ProgramCounts>| counts.map_or(0, |counts| counts.recursion_misses);
    ProgramCounts { requeue_misses: misses(requeue), tag_wait_misses: misses(tag_wait), ..complete }
}

impl Links {
    pub(super) fn all(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // The understudy's link comes last, because it is attached and stored after the others.
        let all = std::iter::once(&self.complete).chain(&self.requeue).chain(&self.tag_wait);
        all.chain(&self.understudy).map(|link| link.as_fd())
    }
}

/// Returns how often the kernel refused to run a program because it was already running on that CPU.
pub(super) fn refused_runs(program: &OwnedFd) -> Result<u64> {
    let info = sys::program_info(program.as_fd()).context("cannot read the programs' statistics")?;
    Ok(info.counts.recursion_misses)
}

/// Runs a program that is not attached, and returns its result.
pub(super) fn run(program: Option<&OwnedFd>, arguments: &[u64]) -> io::Result<u32> {
    let program = program.ok_or(io::ErrorKind::Unsupported)?;
    sys::run(program.as_fd(), arguments)
}

#[cfg(test)]
mod tests {
    use super::{super::sys::ProgramCounts, with_misses};

    /// The kernel has a recursion guard per program.
    #[test]
    fn counts_misses_of_each_program_separately() {
        let counts =
            |recursion_misses| ProgramCounts { recursion_misses, runs: 10, ..ProgramCounts::default() };
        let counted = with_misses(counts(3), Some(counts(5)), Some(counts(7)));
        assert_eq!((counted.recursion_misses, counted.runs), (3, 10));
        assert_eq!((counted.requeue_misses, counted.tag_wait_misses), (5, 7));
        let counted = with_misses(counts(3), None, None);
        assert_eq!((counted.requeue_misses, counted.tag_wait_misses), (0, 0));
    }
}
