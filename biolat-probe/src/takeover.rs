//! Attaches a probe in place of that of another version. The kernel runs a completion by the list of programs that it found when it
//! began with it, so that each is counted by the last probe, by this one, or for some microseconds by none, and never twice.
//!
//! Two things make sure of it:
//!
//! - The last probe is detached once this process alone has its links: who else had them may take a moment to close them. Only the
//!   kernel's own counts of references tell that.
//! - A tracepoint that goes to a single program, or to none and back, makes the kernel wait for a grace period. Two placeholders, which
//!   do nothing, are attached meanwhile. With one, the last probe could not be detached without such a wait.

use std::{
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    kernel::LinkMembers,
    programs::{self, Links, Programs},
    sys,
};

pub(super) const PLACEHOLDERS: [&str; 2] = ["placeholder", "other_placeholder"];
/// Counts the references to a link.
pub(super) const LINK_REFERENCES: &str = "link_references";

/// How long others may take to close the links.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The programs that a takeover needs.
pub(super) struct Takeover {
    pub(super) placeholders: [OwnedFd; 2],
    pub(super) link_references: OwnedFd,
    pub(super) members: LinkMembers,
}

impl Takeover {
    /// Attaches programs in place of those that the links attach, once nobody else has these. Returns for how long none was attached.
    pub(super) fn replace(&self, last: Links, programs: &Programs) -> Result<(Links, Duration)> {
        let attach = |program: &OwnedFd| sys::attach(program.as_fd()).context("cannot attach a placeholder");
        let [one, _other] = [attach(&self.placeholders[0])?, attach(&self.placeholders[1])?];
        let own = self.references(one.as_fd())?;
        let began = Instant::now();
        for link in last.all() {
            while self.references(link)? != own {
                ensure!(began.elapsed() < CLOSE_TIMEOUT, "another process keeps its probe attached");
                thread::sleep(Duration::from_millis(1));
            }
        }
        let Links { complete, understudy, requeue } = last;
        // First, so that it counts no completion that only it is shown.
        drop(understudy);
        let detached = Instant::now();
        drop(complete);
        let complete = programs.attach_complete()?;
        let gap = detached.elapsed();
        drop(requeue);
        Ok((Links { complete, understudy: None, requeue: programs.attach_requeue() }, gap))
    }

    /// The references to a link and its open file, as a number to be compared.
    fn references(&self, link: BorrowedFd<'_>) -> Result<u32> {
        let LinkMembers { file_count, file_private, link_count } = self.members;
        let descriptor = link.as_raw_fd().cast_unsigned();
        let arguments = [descriptor, file_count, file_private, link_count].map(u64::from);
        let references = programs::run(Some(&self.link_references), &arguments);
        let references = references.context("cannot count the references to a link")?;
        ensure!(references != 0, "the kernel does not show the references to a link");
        Ok(references)
    }
}
