//! Privileges of the process. [`raise`] makes the permitted capabilities effective at startup. Once the probe is attached, each
//! thread calls [`drop_privileges`], which leaves it only what its [`Role`] needs.

#![allow(unsafe_code, reason = "signal masks and no_new_privs have no safe wrapper")]

mod calls;
mod capabilities;
mod isolation;

use std::{io, os::fd::RawFd};

use anyhow::{Context as _, Result};

pub use capabilities::raise;
pub use capabilities::{clear_effective, missing_capabilities, missing_of};
pub use isolation::isolate_thread;

/// Job of a thread once the probe is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves HTTP and starts encoder threads. Needs no capability and never calls `bpf(2)`.
    Serving,
    /// Reads the probe's maps and sysfs. Uses no socket except systemd's; needs `CAP_BPF` to create maps for more series. Can
    /// keep these maps and its state for the next daemon.
    Collecting { keeping: Option<Keeping> },
    /// Reads only sysfs and this process's mounts.
    ReadingSysfs,
    /// Updates an open map to make the kernel wait for runs of the probe. Up to Linux 5.18 that can need `CAP_BPF`.
    WaitingForRuns,
    /// Writes the history to two open files. Uses no socket and needs no capability.
    WritingHistory { files: [RawFd; 2] },
    /// Draws on a terminal. Needs no capability and opens no connection.
    Tui,
}

/// Where the collector keeps maps for the next daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Sends them on this socket, and writes its state to this file.
    WithSystemd { socket: RawFd, state: RawFd },
    /// Pins them in a BPF file system.
    InPins,
}

/// Drops what the calling thread and the threads that it starts no longer need: capabilities, new privileges on exec and, if
/// `filter` is set, system calls.
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

/// Signals that have tokio handlers, and those that stop or continue the process.
const SIGNALS: [libc::c_int; 7] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGCONT, libc::SIGWINCH];

/// Blocks signals in a thread that is not allowed to write to the socket used by their handlers. The kernel delivers them to
/// another thread.
fn block_signals() -> io::Result<()> {
    // SAFETY: a signal set is plain numbers, for which zero is valid. The calls fill and read it.
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
