//! Replaces an attached probe of another version with this one. The kernel reads the list of programs once per completion, so
//! each completion is counted by the previous probe, by this one, or, for a few microseconds, by neither, but never by both.
//!
//! This relies on two precautions:
//!
//! - The previous probe is detached only once no other process has its links open. Other processes may take a moment to close
//!   them, and only the kernel's reference counts show when they have done so.
//! - When a tracepoint goes from two programs to one, or to none and back, the kernel waits for a grace period. So two
//!   placeholders, which do nothing, are attached during the takeover. With only one, detaching the previous probe would wait.

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
/// The program that reads the reference count of a link.
pub(super) const LINK_REFERENCES: &str = "link_references";

/// How long other processes are given to close the links.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The programs that a takeover needs, and where the kernel counts references.
pub(super) struct Takeover {
    pub(super) placeholders: [OwnedFd; 2],
    pub(super) link_references: OwnedFd,
    pub(super) members: LinkMembers,
}

impl Takeover {
    /// Attaches the programs instead of the ones behind the links, after all other processes have closed those links. Returns
    /// how long neither probe was attached.
    pub(super) fn replace(&self, last: Links, programs: &Programs) -> Result<(Links, Duration)> {
        let attach = |program: &OwnedFd| sys::attach(program.as_fd()).context("cannot attach a placeholder");
        let [one, _other] = [attach(&self.placeholders[0])?, attach(&self.placeholders[1])?];
        let own = self.references(one.as_fd())?;
        let began = Instant::now();
        for link in last.all() {
            while self.references(link)? != own {
                ensure!(began.elapsed() < CLOSE_TIMEOUT, "another process keeps the previous probe attached");
                thread::sleep(Duration::from_millis(1));
            }
        }
        let Links { complete, understudy, requeue, tag_wait } = last;
        // The understudy is detached first: alone, it would count every completion.
        drop(understudy);
        let detached = Instant::now();
        drop(complete);
        let complete = programs.attach_complete()?;
        let gap = detached.elapsed();
        drop((requeue, tag_wait));
        Ok((programs.links(complete), gap))
    }

    /// The sum of the reference counts of a link and its open file, meaningful only in comparison with another link's.
    fn references(&self, link: BorrowedFd<'_>) -> Result<u32> {
        let LinkMembers { file_count, file_private, link_count } = self.members;
        let descriptor = link.as_raw_fd().cast_unsigned();
        let arguments = [descriptor, file_count, file_private, link_count].map(u64::from);
        let references = programs::run(Some(&self.link_references), &arguments);
        let references = references.context("cannot read the reference count of a link")?;
        ensure!(references != 0, "the kernel does not show the reference count of a link");
        Ok(references)
    }
}
