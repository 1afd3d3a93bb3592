//! File descriptors passed by systemd at startup: listening sockets, and descriptors stored for this service. See
//! sd_listen_fds(3).

#![allow(unsafe_code, reason = "file descriptors from systemd are known by their numbers only")]

use std::{
    env,
    os::fd::{FromRawFd as _, OwnedFd, RawFd},
    process,
};

use anyhow::{Result, bail};
use rustix::io::{FdFlags, fcntl_setfd};

/// Number of the first passed descriptor (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// Prefix of the names of descriptors that biolat has stored.
pub const KEPT_PREFIX: &str = "biolat-probe-";

/// A file descriptor stored by a previous biolat.
#[derive(Debug)]
pub struct KeptFd {
    /// Name that it was stored under.
    pub name: String,
    pub fd: OwnedFd,
}

/// All file descriptors passed by systemd.
#[derive(Debug, Default)]
pub struct PassedFds {
    pub sockets: Vec<OwnedFd>,
    pub kept: Vec<KeptFd>,
}

/// Takes ownership of all passed file descriptors.
///
/// Call this only once: a second call fails, because the descriptors already have owners.
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
    // SAFETY: valid for any number.
    match unsafe { libc::fcntl(number, libc::F_GETFD) } {
        // Descriptors opened by this process, or already taken, are closed on exec; those passed through exec are not.
        flags if flags >= 0 && flags & libc::FD_CLOEXEC == 0 => {}
        _ => {
            bail!(
                "LISTEN_FDS names socket {number}, which was not passed: start biolat with its .socket unit"
            )
        }
    }
    // SAFETY: it is open and was not opened by this process, so nothing else here owns it.
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
    fn rejects_descriptors_opened_by_this_process() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = own(socket.as_raw_fd()).unwrap_err().to_string();
        assert!(error.contains("was not passed"), "{error}");
        assert!(own(RawFd::MAX).is_err());
        drop(socket);
    }
}
