//! Tells systemd how we are, if systemd asked: sd_notify(3), a datagram to a socket.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// What there is to tell.
#[derive(Clone, Copy, Debug)]
pub enum State {
    /// There are figures.
    Ready,
    /// The end has begun.
    Stopping,
}

/// Tells it; without systemd nothing happens.
pub fn notify(state: State) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return };
    let message = match state {
        State::Ready => "READY=1",
        State::Stopping => "STOPPING=1",
    };
    if let Err(error) = send(path.as_bytes(), message) {
        log::warn!("cannot tell systemd {message}: {error}");
    }
}

fn send(path: &[u8], message: &str) -> io::Result<()> {
    let address = match path {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    };

    use super::send;

    #[test]
    fn an_abstract_socket_hears_it() {
        let name = format!("biolat-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        send(format!("@{name}").as_bytes(), "READY=1").unwrap();
        let mut buffer = [0; 32];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
        assert!(send(b"/nonexistent/socket", "x").is_err());
    }
}
