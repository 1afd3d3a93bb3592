//! Separate file descriptor tables for threads that a hung drive can block. If the process is killed while such a thread waits in
//! the kernel, the process remains until the thread returns, and all descriptors in the thread's table stay open: listening
//! sockets, the lock on the pin directory, the probe's links. The next daemon needs these.

use std::{fs, io, os::fd::RawFd, path::Path};

use super::block_signals;
use crate::log_lines;

const STANDARD_ERROR: RawFd = 2;

/// Gives the calling thread its own descriptor table, which contains only the standard streams, the log's terminal and the event
/// that wakes the serving thread. Has to be called before the thread opens anything, and before anything that contains a
/// descriptor is moved to the thread.
pub fn isolate_thread() {
    // Signal handlers write to a socket, which is closed in this thread.
    if let Err(error) = block_signals().and_then(|()| unshare()).and_then(|()| close_others()) {
        log::warn!(
            "cannot give a thread its own file descriptor table: {error}: if biolat is killed while a drive hangs, the next \
             one cannot start; allow close_range(2)"
        );
    }
}

/// Stops sharing the descriptor table with other threads.
fn unshare() -> io::Result<()> {
    // An empty range: no descriptor has this number. Seccomp profiles of container runtimes allow this call, but not unshare(2).
    // SAFETY: plain numbers.
    let is_done =
        unsafe { libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, libc::CLOSE_RANGE_UNSHARE) } == 0;
    if is_done { Ok(()) } else { unshare_before_5_9() }
}

/// Does the same on Linux 5.8, which lacks close_range(2).
fn unshare_before_5_9() -> io::Result<()> {
    // SAFETY: a plain number.
    if unsafe { libc::unshare(libc::CLONE_FILES) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn close_others() -> io::Result<()> {
    let own = Path::new("/proc/thread-self/fd");
    // List everything before closing anything. The list includes the descriptor of the directory itself, which is closed at the
    // end of the statement.
    let numbers: Vec<RawFd> =
        fs::read_dir(own)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for number in numbers {
        let is_event = || {
            let target = fs::read_link(own.join(number.to_string()));
            target.is_ok_and(|target| target == Path::new("anon_inode:[eventfd]"))
        };
        if number > STANDARD_ERROR && log_lines::terminal() != Some(number) && !is_event() {
            // SAFETY: it belongs only to this thread's table, and nothing in this thread owns it.
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
    fn isolated_thread_keeps_only_standard_streams_and_events() {
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
