//! Tells systemd how we are, if systemd asked: sd_notify(3), datagrams to a socket. It is connected at the start, as later
//! no socket can be made.

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

/// What there is to tell.
#[derive(Clone, Copy, Debug)]
pub enum State {
    /// There are figures.
    Ready,
    /// There still are new ones.
    Alive,
    /// The end has begun.
    Stopping,
}

/// Whom to tell, if anybody.
pub struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// How long it bears to hear nothing.
    pub watchdog: Option<Duration>,
}

impl ServiceManager {
    /// As the environment says.
    #[must_use]
    pub fn of_environment() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|path| {
            connect(path.as_bytes())
                .inspect_err(|error| log::warn!("cannot reach systemd's socket NOTIFY_SOCKET: {error}"))
                .ok()
        });
        let number = |name| env::var(name).ok()?.parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&time| is_ours && time > 0);
        Self { socket, watchdog: watchdog.map(Duration::from_micros) }
    }

    /// Tells it; without systemd nothing happens. `false`: it is not told yet.
    pub fn notify(&self, state: State) -> bool {
        let Some(socket) = &self.socket else { return true };
        let message = match state {
            State::Ready => "READY=1",
            State::Alive => "WATCHDOG=1",
            State::Stopping => "STOPPING=1",
        };
        let told = socket.send(message.as_bytes());
        if let Err(error) = &told {
            log::warn!("cannot tell systemd {message}: {error}");
        }
        told.is_ok()
    }
}

fn connect(path: &[u8]) -> io::Result<UnixDatagram> {
    let address = match path {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // Whoever does not listen is not waited for.
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
    fn an_abstract_socket_hears_it() {
        let name = format!("biolat-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let connected = connect(format!("@{name}").as_bytes()).unwrap();
        let manager = ServiceManager { socket: Some(connected), watchdog: None };
        assert!(manager.notify(State::Ready));
        let mut buffer = [0; 32];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
        // Whoever does not listen is told later.
        while manager.notify(State::Alive) {}
        while socket.recv(&mut buffer).is_ok_and(|length| &buffer[..length] == b"WATCHDOG=1") {
            if manager.notify(State::Ready) {
                break;
            }
        }
        assert!(connect(b"/nonexistent/socket").is_err());
    }
}
