//! The daemon without root, as the chart runs it.

use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use caps::{
    CapSet::{Ambient, Effective, Inheritable, Permitted},
    CapsHashSet,
};

use super::{Folder, daemon::program, kernel};

/// The chart's user.
const USER: u32 = 65532;

/// Copies the daemon to where every user can run it; only root can access the build directory.
pub(crate) fn copy(folder: &Folder) -> PathBuf {
    let copy = folder.0.join("biolat-daemon");
    fs::copy(program(), &copy).unwrap();
    copy
}

/// Returns a command that runs as the chart's user with only these capabilities.
pub(crate) fn command(program: &Path, capabilities: CapsHashSet) -> Command {
    kernel::unlimit_locked_memory();
    let mut command = Command::new(program);
    change_user(command.args(["--listen", "127.0.0.1:0", "--interval", "100ms"]), capabilities);
    command
}

/// Makes a command run as the chart's user with only these capabilities.
pub(crate) fn change_user(command: &mut Command, capabilities: CapsHashSet) -> &mut Command {
    let change_user = move || {
        // SAFETY: integers, and a null pointer that setgroups does not read.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_KEEPCAPS, 1) < 0
                || libc::setgroups(0, std::ptr::null()) < 0
                || libc::setgid(USER) < 0
                || libc::setuid(USER) < 0
        };
        if refused {
            return Err(io::Error::last_os_error());
        }
        for set in [Permitted, Effective, Inheritable, Ambient] {
            caps::set(None, set, &capabilities).map_err(io::Error::other)?;
        }
        Ok(())
    };
    // SAFETY: takes no lock that another thread of the parent can hold, except the allocator's, which the C library handles.
    unsafe { command.pre_exec(change_user) }
}
