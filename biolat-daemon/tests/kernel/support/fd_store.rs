//! The file descriptor store of a service manager, as far as the daemon needs one: it keeps the descriptors it is sent, and
//! passes them to the next daemon.

use std::{
    collections::BTreeMap,
    io::IoSliceMut,
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::{net::UnixDatagram, process::CommandExt as _},
    },
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::{Folder, daemon::program};

/// File descriptors by name.
pub(crate) type Stored = BTreeMap<String, Vec<OwnedFd>>;

/// The store of one service.
pub(crate) struct FdStore {
    folder: Folder,
    socket: UnixDatagram,
    stored: Arc<Mutex<Stored>>,
    ended: Arc<()>,
}

impl FdStore {
    pub(crate) fn new(name: &str) -> Self {
        let folder = Folder::new(name, true);
        let socket = UnixDatagram::bind(folder.0.join("notify")).unwrap();
        let (stored, ended) = (Arc::default(), Arc::new(()));
        let (reader, shared, alive) =
            (socket.try_clone().unwrap(), Arc::clone(&stored), Arc::downgrade(&ended));
        reader.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        thread::spawn(move || {
            while alive.strong_count() > 0 {
                receive(&reader, &shared);
            }
        });
        Self { folder, socket, stored, ended }
    }

    /// Returns a command that runs the given daemon program and passes it the stored descriptors.
    pub(crate) fn command_of(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
        // LISTEN_PID is known only in the child.
        let mut command = Command::new("sh");
        command.args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""]).arg(program);
        command.args(["--listen", "127.0.0.1:0"]).args(arguments);
        let stored = self.stored.lock().unwrap();
        let all = || stored.iter().flat_map(|(name, fds)| fds.iter().map(move |fd| (name.as_str(), fd)));
        let names: Vec<_> = all().map(|(name, _)| name).collect();
        // Uses raw numbers, because a duplicate in this process would keep the probe attached.
        let fds: Vec<_> = all().map(|(_, fd)| fd.as_raw_fd()).collect();
        command.env("NOTIFY_SOCKET", self.folder.0.join("notify")).env("FDSTORE", "1100");
        command.env("LISTEN_FDS", fds.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        let pass_fds = move || {
            for (fd, number) in fds.iter().zip(3..) {
                // SAFETY: plain numbers; nothing else owns these descriptors in the child.
                if unsafe { libc::dup2(*fd, number) } < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: the call is async-signal-safe.
        unsafe { command.pre_exec(pass_fds) };
        command
    }

    /// Returns the daemon's command.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(program(), arguments)
    }

    /// Returns the names, each with its number of file descriptors.
    pub(crate) fn names(&self) -> BTreeMap<String, usize> {
        let stored = self.stored.lock().unwrap();
        stored.iter().map(|(name, fds)| (name.clone(), fds.len())).collect()
    }

    /// Returns the first file descriptor with this name suffix.
    pub(crate) fn get(&self, kind: &str) -> OwnedFd {
        let stored = self.stored.lock().unwrap();
        let (_, fds) = stored.iter().find(|(name, _)| name.ends_with(kind)).unwrap();
        fds[0].as_fd().try_clone_to_owned().unwrap()
    }

    /// Duplicates everything that is stored.
    pub(crate) fn duplicate(&self) -> Stored {
        let stored = self.stored.lock().unwrap();
        let duplicate = |fd: &OwnedFd| fd.try_clone().unwrap();
        stored.iter().map(|(name, fds)| (name.clone(), fds.iter().map(duplicate).collect())).collect()
    }

    /// Puts back descriptors that the daemon has removed.
    pub(crate) fn restore(&self, more: Stored) {
        let duplicate_above_300 =
            |(name, fds): (_, Vec<_>)| (name, fds.iter().map(duplicate_above_300).collect());
        self.stored.lock().unwrap().extend(more.into_iter().map(duplicate_above_300));
    }

    /// Removes the descriptors with this name suffix.
    pub(crate) fn remove(&self, kind: &str) {
        self.stored.lock().unwrap().retain(|name, _| !name.ends_with(kind));
    }

    /// Removes everything, as when the service is stopped.
    pub(crate) fn clear(&self) {
        self.stored.lock().unwrap().clear();
    }
}

impl Drop for FdStore {
    fn drop(&mut self) {
        self.ended = Arc::new(());
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// Duplicates a descriptor to a number above any that a daemon receives.
fn duplicate_above_300(fd: &OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(fd, 300).unwrap()
}

fn receive(socket: &UnixDatagram, stored: &Mutex<Stored>) {
    let mut bytes = [0; 512];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let Ok(received) = received else { return };
    let message = String::from_utf8(bytes[..received.bytes].to_vec()).unwrap();
    let has = |line: &str| message.lines().any(|found| found == line);
    let name = message.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or("stored").to_owned();
    let mut stored = stored.lock().unwrap();
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds: Vec<_> = fds.flatten().map(|fd| duplicate_above_300(&fd)).collect();
    if has("FDSTORE=1") {
        // systemd polls stored descriptors, and drops those that report an error, as maps do.
        assert!(has("FDPOLL=0"), "{message}");
        stored.entry(name).or_default().extend(fds);
    } else if has("FDSTOREREMOVE=1") {
        stored.remove(&name);
    }
}
