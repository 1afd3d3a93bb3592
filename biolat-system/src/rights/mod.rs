//! Privileges of the process. [`raise`] puts the permitted capabilities into effect at the start; [`drop_privileges`] is called
//! by each thread once the probe is attached, and leaves it what its [`Role`] needs.

#![allow(unsafe_code, reason = "signal masks and no_new_privs have no safe wrapper")]

mod calls;
mod capabilities;
mod isolation;

use std::{io, os::fd::RawFd};

use anyhow::{Context as _, Result};

pub use capabilities::raise;
pub use capabilities::{clear_effective, missing_capabilities, missing_of};
pub use isolation::isolate_thread;

/// What a thread does once the probe is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves HTTP and starts threads that encode. It needs no capability and never calls `bpf(2)`.
    Serving,
    /// Reads the probe's maps and sysfs. It uses no socket; creating maps for more series needs `CAP_BPF`. These maps and its
    /// state may be kept for the next daemon.
    Collecting { keeping: Option<Keeping> },
    /// Reads sysfs and this process' mounts, and nothing else.
    ReadingSysfs,
    /// Writes to an open map, by which the kernel lets it wait for runs of the probe. Up to Linux 5.18 that may need `CAP_BPF`.
    WaitingForRuns,
    /// Writes the history to two files that are open. It uses no socket and needs no capability.
    WritingHistory { files: [RawFd; 2] },
    /// Draws on a terminal. It needs no capability and opens no connection.
    Tui,
}

/// How the collector keeps maps for the next daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// It sends them on this socket, and writes its state to this file.
    WithSystemd { socket: RawFd, state: RawFd },
    /// It pins them.
    InPins,
}

/// Drops what the calling thread, and the threads it starts, no longer need: capabilities, new privileges on exec and, if
/// `filter`, system calls.
pub fn drop_privileges(role: Role, filter: bool) -> Result<()> {
    if !matches!(role, Role::Serving | Role::Tui) {
        block_signals().context("cannot block signals in a thread")?;
    }
    capabilities::keep(role).context("cannot drop capabilities")?;
    // SAFETY: plain numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } < 0 {
        return Err(io::Error::last_os_error()).context("cannot set no_new_privs");
    }
    if filter {
        calls::filter(role).context("cannot filter system calls (--no-seccomp disables the filter)")?;
    }
    Ok(())
}

/// Signals that tokio has handlers for, or that stop and continue the process.
const SIGNALS: [libc::c_int; 7] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGCONT, libc::SIGWINCH];

/// Their handlers write to a socket, which these threads may not: the kernel delivers them to another thread.
fn block_signals() -> io::Result<()> {
    // SAFETY: a signal set is plain numbers, for which zero is valid; the calls fill and read it.
    let result = unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        for signal in SIGNALS {
            libc::sigaddset(&raw mut signals, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}
