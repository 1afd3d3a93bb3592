//! Notifies systemd if it asked for that, and stores file descriptors with it, by sending datagrams to a socket: see
//! sd_notify(3). Sockets are connected at startup, because none can be opened after privileges have been dropped.

use std::{
    env,
    ffi::OsStr,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd as _, BorrowedFd, RawFd},
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    process,
    time::Duration,
};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// A state to report to systemd.
#[derive(Clone, Copy, Debug)]
pub enum Notification {
    /// The first snapshot is available.
    Ready,
    /// Collections succeed. Feeds the watchdog.
    Alive,
    Stopping,
}

/// systemd, if it started this process as a service with `Type=notify`.
pub struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// Time without a notification after which systemd restarts the service.
    pub watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Takes its configuration from the environment: sd_notify(3), sd_watchdog_enabled(3).
    pub fn of_environment() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|path| {
            connect(path.as_bytes())
                .inspect_err(|error| log::warn!("cannot connect to systemd's NOTIFY_SOCKET: {error}"))
                .ok()
        });
        let number = |name| env::var(name).ok()?.parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&time| is_ours && time > 0);
        Self { socket, watchdog: watchdog.map(Duration::from_micros) }
    }

    /// Sends a state and returns whether that succeeded. Does nothing without systemd.
    pub fn notify(&self, state: Notification) -> bool {
        let Some(socket) = &self.socket else { return true };
        let message = match state {
            Notification::Ready => "READY=1",
            Notification::Alive => "WATCHDOG=1",
            Notification::Stopping => "STOPPING=1",
        };
        let sent = socket.send(message.as_bytes());
        if let Err(error) = &sent {
            log::warn!("cannot send {message} to systemd: {error}");
        }
        sent.is_ok()
    }
}

/// Maximum number of file descriptors per message in the kernel (`SCM_MAX_FD`).
const MAX_FDS: usize = 253;

/// How long systemd may take to read a message; after that, storing fails.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// This service's file descriptor store in systemd. systemd passes the descriptors to the next process, even after a crash, and
/// closes them when the service is stopped.
#[derive(Debug)]
pub struct FdStore(UnixDatagram);

impl FdStore {
    /// Returns the store, if there is one. Since version 254, systemd sets `FDSTORE` to the store's size; with earlier versions,
    /// the unit has to set it.
    pub fn of_environment() -> Option<Self> {
        let size = env::var("FDSTORE").ok()?.parse::<u32>().ok()?;
        let path = env::var_os("NOTIFY_SOCKET").filter(|_| size > 0)?;
        let connected = connect(path.as_bytes()).and_then(|socket| {
            socket.set_nonblocking(false)?;
            socket.set_write_timeout(Some(STORE_TIMEOUT))?;
            Ok(Self(socket))
        });
        connected.inspect_err(|error| log::warn!("cannot connect to systemd's NOTIFY_SOCKET: {error}")).ok()
    }

    /// Returns the raw descriptor of the store's socket.
    pub fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Stores file descriptors under a name, in addition to those already stored.
    pub fn store(&self, name: &str, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        // Without FDPOLL=0, systemd would drop the maps, because most of them report an error when polled.
        let message = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        for fds in fds.chunks(MAX_FDS) {
            let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !control.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            sendmsg(&self.0, &[IoSlice::new(message.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    /// Removes all file descriptors stored under a name.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let message = format!("FDSTOREREMOVE=1\nFDNAME={name}");
        let control = &mut SendAncillaryBuffer::default();
        sendmsg(&self.0, &[IoSlice::new(message.as_bytes())], control, SendFlags::NOSIGNAL).map(drop)?;
        Ok(())
    }
}

fn connect(path: &[u8]) -> io::Result<UnixDatagram> {
    let address = match path {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // Never wait for systemd to read.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    };

    use super::{Notification, ServiceManager, connect};

    #[test]
    fn sends_notifications_to_abstract_socket() {
        let name = format!("biolat-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let connected = connect(format!("@{name}").as_bytes()).unwrap();
        let manager = ServiceManager { socket: Some(connected), watchdog: None };
        assert!(manager.notify(Notification::Ready));
        let mut buffer = [0; 32];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
        // Once the queue is full, notifying fails until the queue is read.
        while manager.notify(Notification::Alive) {}
        while socket.recv(&mut buffer).is_ok_and(|length| &buffer[..length] == b"WATCHDOG=1") {
            if manager.notify(Notification::Ready) {
                break;
            }
        }
        assert!(connect(b"/nonexistent/socket").is_err());
    }
}
