//! Notifies systemd, if it asks for that: sd_notify(3), datagrams to a socket. The socket is connected at the start, as after
//! privileges are dropped none can be opened.

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    process,
    time::Duration,
};

/// A state to notify systemd of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    /// There is a first snapshot.
    Ready,
    /// Collections succeed: feeds the watchdog.
    Alive,
    Stopping,
}

/// systemd, if it started this process as a service of type `notify`.
pub(crate) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// systemd restarts the service if the watchdog is not fed for that long.
    pub(crate) watchdog: Option<Duration>,
}

impl ServiceManager {
    /// By the environment: sd_notify(3), sd_watchdog_enabled(3).
    pub(crate) fn of_environment() -> Self {
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

    /// Sends a state; without systemd this does nothing. Returns whether it was sent.
    pub(crate) fn notify(&self, state: State) -> bool {
        let Some(socket) = &self.socket else { return true };
        let message = match state {
            State::Ready => "READY=1",
            State::Alive => "WATCHDOG=1",
            State::Stopping => "STOPPING=1",
        };
        let sent = socket.send(message.as_bytes());
        if let Err(error) = &sent {
            log::warn!("cannot send {message} to systemd: {error}");
        }
        sent.is_ok()
    }
}

fn connect(path: &[u8]) -> io::Result<UnixDatagram> {
    let address = match path {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // If systemd does not read, do not wait for it.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    };

    use super::{ServiceManager, State, connect};

    #[test]
    fn notifications_arrive_at_an_abstract_socket() {
        let name = format!("biolat-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let connected = connect(format!("@{name}").as_bytes()).unwrap();
        let manager = ServiceManager { socket: Some(connected), watchdog: None };
        assert!(manager.notify(State::Ready));
        let mut buffer = [0; 32];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
        // Once the queue is full, notifying fails until it is read.
        while manager.notify(State::Alive) {}
        while socket.recv(&mut buffer).is_ok_and(|length| &buffer[..length] == b"WATCHDOG=1") {
            if manager.notify(State::Ready) {
                break;
            }
        }
        assert!(connect(b"/nonexistent/socket").is_err());
    }
}
