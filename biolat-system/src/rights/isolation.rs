//! A file descriptor table of its own for a thread that a drive may hang. A process that is killed while a thread waits in the
//! kernel stays until that thread returns, and with it each descriptor in the thread's table: a socket that listens, the lock on a
//! folder of pins, the probe's links. The next daemon needs them.

use std::{fs, io, os::fd::RawFd, path::Path};

use super::block_signals;
use crate::log_lines;

const STANDARD_ERROR: RawFd = 2;

/// Gives the calling thread a descriptor table of its own with what it needs alone: the standard streams, the terminal of the log,
/// and the event that wakes the thread that serves. To be called before the thread opens anything, and before anything that
/// contains a descriptor is moved to it.
pub fn isolate_thread() {
    // Handlers write to a socket.
    if let Err(error) = block_signals().and_then(|()| unshare()).and_then(|()| close_others()) {
        log::warn!(
            "cannot give a thread its own file descriptors: {error}: while a drive hangs, a biolat that was killed blocks the \
             next one; allow close_range(2)"
        );
    }
}

/// From now on, no other thread has the same table.
fn unshare() -> io::Result<()> {
    // The range is empty: no descriptor has this number. Seccomp profiles of container runtimes allow this call, but not the other.
    // SAFETY: plain numbers.
    let is_done =
        unsafe { libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, libc::CLOSE_RANGE_UNSHARE) } == 0;
    if is_done { Ok(()) } else { unshare_before_5_9() }
}

/// The same on Linux 5.8, which does not have close_range(2).
fn unshare_before_5_9() -> io::Result<()> {
    // SAFETY: a plain number.
    if unsafe { libc::unshare(libc::CLONE_FILES) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn close_others() -> io::Result<()> {
    let own = Path::new("/proc/thread-self/fd");
    // The list before anything is closed: its own descriptor is in it, and closed at the end of this line.
    let numbers: Vec<RawFd> =
        fs::read_dir(own)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for number in numbers {
        let is_event = || {
            let target = fs::read_link(own.join(number.to_string()));
            target.is_ok_and(|target| target == Path::new("anon_inode:[eventfd]"))
        };
        if number > STANDARD_ERROR && log_lines::terminal() != Some(number) && !is_event() {
            // SAFETY: it is of this thread's table alone, and nothing in this thread owns it.
            unsafe { libc::close(number) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::fd::{AsRawFd as _, RawFd},
        path::Path,
        thread,
    };

    use rustix::event::{EventfdFlags, eventfd};

    use super::{close_others, unshare, unshare_before_5_9};

    #[test]
    fn a_thread_keeps_standard_streams_and_events_and_closes_nothing_of_others() {
        let (file, event) =
            (File::open("/proc/self/stat").unwrap(), eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        for unshare in [unshare, unshare_before_5_9] {
            let isolated = || {
                unshare().unwrap();
                close_others().unwrap();
                let is_open = |number: RawFd| fs::read_link(format!("/proc/thread-self/fd/{number}")).is_ok();
                let [file, event] = [file.as_raw_fd(), event.as_raw_fd()].map(is_open);
                (is_open(2), event, file)
            };
            let found = thread::scope(|scope| scope.spawn(isolated).join().unwrap());
            assert_eq!(found, (Path::new("/proc/self/fd/2").exists(), true, false));
            assert!(file.metadata().is_ok());
        }
    }
}
