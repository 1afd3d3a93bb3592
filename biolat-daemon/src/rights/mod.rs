//! What the process may do. What it was started with is [taken up](take_up), and [given up](give_up) once the probe
//! is attached, by each of the two threads for itself, so that neither may do what only the other one has to.

mod calls;
mod capabilities;

use std::io;

use anyhow::{Context as _, Result};

pub use capabilities::{lacking, take_up};
pub(crate) use capabilities::{lacks, lay_down};

/// The threads that go on from there: the collector's, and that of who reads what it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// Talks to the network, and starts threads that encode. It needs no capability and never calls `bpf(2)`.
    Serving,
    /// Reads the probe's maps and sysfs. It has no business with any socket; making a map for more series takes `CAP_BPF`.
    Collecting,
    /// Shows things on a terminal: it needs no capability either, and no connection.
    Showing,
}

/// Gives up what the calling thread, and whatever it starts, does not need any more: capabilities, new privileges and, if
/// `filter`, system calls.
pub fn give_up(thread: Thread, filter: bool) -> Result<()> {
    if thread == Thread::Collecting {
        leave_signals_to_others().context("cannot leave signals to the serving thread")?;
    }
    capabilities::keep(thread).context("cannot give up capabilities")?;
    // SAFETY: plain numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } < 0 {
        return Err(io::Error::last_os_error()).context("cannot give up new privileges");
    }
    if filter {
        calls::filter(thread).context("cannot filter system calls (--no-seccomp does without)")?;
    }
    Ok(())
}

/// What asks the process for something.
const TOLD: [libc::c_int; 7] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGCONT, libc::SIGWINCH];

/// It is told to the other thread by a socket, which this one must not touch.
fn leave_signals_to_others() -> io::Result<()> {
    // SAFETY: plain numbers, for which zero is valid; the calls fill and read the set.
    let result = unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        for signal in TOLD {
            libc::sigaddset(&raw mut signals, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}
