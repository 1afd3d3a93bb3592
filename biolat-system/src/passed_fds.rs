//! File descriptors that systemd passes at the start: sockets to listen on, and those that it has stored for this service.
//! sd_listen_fds(3).

#![allow(unsafe_code, reason = "file descriptors from systemd are known by their numbers only")]

use std::{
    env,
    os::fd::{FromRawFd as _, OwnedFd, RawFd},
    process,
};

use anyhow::{Result, bail};
use rustix::io::{FdFlags, fcntl_setfd};

/// The first one.
const FIRST: RawFd = 3;

/// Names of those that biolat has stored begin with this.
pub const KEPT_PREFIX: &str = "biolat-probe-";

/// A file descriptor that biolat has stored.
#[derive(Debug)]
pub struct KeptFd {
    /// With which it was stored.
    pub name: String,
    pub fd: OwnedFd,
}

/// All file descriptors that systemd passes.
#[derive(Debug, Default)]
pub struct PassedFds {
    pub sockets: Vec<OwnedFd>,
    pub kept: Vec<KeptFd>,
}

/// All of them.
///
/// Can be called once: they then have owners, and a second call fails on them.
pub fn take() -> Result<PassedFds> {
    let number = |name| env::var(name).ok()?.parse::<u32>().ok();
    let count = match number("LISTEN_PID") {
        Some(pid) if pid == process::id() => number("LISTEN_FDS").unwrap_or_default(),
        _ => 0,
    };
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut passed = PassedFds::default();
    for number in FIRST..FIRST.saturating_add_unsigned(count) {
        let (name, fd) = (names.next().unwrap_or_default(), own(number)?);
        if name.starts_with(KEPT_PREFIX) {
            passed.kept.push(KeptFd { name: name.to_owned(), fd });
        } else {
            passed.sockets.push(fd);
        }
    }
    Ok(passed)
}

fn own(number: RawFd) -> Result<OwnedFd> {
    // SAFETY: may be called with any number.
    match unsafe { libc::fcntl(number, libc::F_GETFD) } {
        // A file that was opened by this process, or taken already, is closed on exec; one that came through exec is not.
        flags if flags >= 0 && flags & libc::FD_CLOEXEC == 0 => {}
        _ => {
            bail!("LISTEN_FDS names socket {number}, which was not passed: start biolat by its .socket unit")
        }
    }
    // SAFETY: it is open, and was not opened by this process, so that nothing else here owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        os::fd::{AsRawFd as _, RawFd},
    };

    use super::own;

    #[test]
    fn a_file_of_this_process_is_not_taken_for_one_of_systemd() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = own(socket.as_raw_fd()).unwrap_err().to_string();
        assert!(error.contains("was not passed"), "{error}");
        assert!(own(RawFd::MAX).is_err());
        drop(socket);
    }
}
