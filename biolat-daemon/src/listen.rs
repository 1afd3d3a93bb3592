//! Sockets to listen on: those that systemd hands over, and those that are asked for.

use std::{
    env, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    ops::Range,
    os::fd::{FromRawFd as _, RawFd},
    process,
};

use anyhow::{Result, anyhow, bail};
use socket2::{Domain, Protocol, Socket, Type};

/// Where to listen if nobody says.
pub const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9976);

/// As many as the kernel allows: who finds no room is not refused, but comes again a second later.
const BACKLOG: i32 = 4096;

/// The first socket that systemd hands over.
const FIRST: RawFd = 3;

/// Every socket to serve on. Call it once, before any file is opened: what is handed over is known by its number alone.
pub fn open(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>> {
    let mut listeners = handed_over().map(take).collect::<Result<Vec<_>>>()?;
    if listeners.is_empty() && addresses.is_empty() {
        return bind(&[DEFAULT]);
    }
    listeners.extend(bind(addresses)?);
    Ok(listeners)
}

/// As sd_listen_fds(3) has it.
fn handed_over() -> Range<RawFd> {
    let number = |name| env::var(name).ok()?.parse::<u32>().ok();
    let count = match number("LISTEN_PID") {
        Some(pid) if pid == process::id() => number("LISTEN_FDS").unwrap_or_default(),
        _ => 0,
    };
    FIRST..FIRST.saturating_add_unsigned(count)
}

fn take(fd: RawFd) -> Result<TcpListener> {
    // SAFETY: any number may be asked about.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        bail!("LISTEN_FDS tells of a socket {fd} that is not there: start biolat by its .socket unit");
    }
    // SAFETY: it is there and, before any other is opened, nobody's but ours.
    let socket = unsafe { Socket::from_raw_fd(fd) };
    let is_tcp = socket.r#type().is_ok_and(|kind| kind == Type::STREAM)
        && socket.local_addr().is_ok_and(|address| address.as_socket().is_some());
    if !is_tcp || !socket.is_listener()? {
        bail!(
            "socket {fd}, which systemd handed over, is not one that listens on TCP: in the .socket unit, \
             ListenStream= takes a port, and Accept=no"
        );
    }
    socket.set_cloexec(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Binds every address, or none.
fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>> {
    addresses
        .iter()
        .map(|address| {
            listen(*address, addresses)
                .map_err(|error| anyhow!("cannot listen on {address}: {error}{}", remedy(&error)))
        })
        .collect()
}

/// Which of these addresses takes that one too.
pub fn overlap(address: SocketAddr, others: &[SocketAddr]) -> Option<SocketAddr> {
    // IPv4 and IPv6 do not: [::] leaves the other kind alone where that is wanted too.
    let is_taken_by = |other: &SocketAddr| {
        address.port() == other.port()
            && address.port() != 0
            && address.is_ipv4() == other.is_ipv4()
            && (address == *other || address.ip().is_unspecified() || other.ip().is_unspecified())
    };
    others.iter().copied().find(is_taken_by)
}

/// Whether an address could be listened on, beside all that are wanted; nobody can connect while that is found out.
pub fn is_free(address: SocketAddr, all: &[SocketAddr]) -> io::Result<()> {
    bind_one(address, all).map(drop)
}

fn remedy(error: &io::Error) -> String {
    let step = match error.kind() {
        io::ErrorKind::AddrInUse => Some("is biolat running already? Else choose another port with --listen"),
        _ => step(error),
    };
    step.map(|step| format!(": {step}")).unwrap_or_default()
}

/// What to do about an address that cannot be listened on, for other reasons than that it is in use.
pub fn step(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            Some("this host does not have that address, choose one with --listen")
        }
        io::ErrorKind::PermissionDenied => {
            Some("ports below 1024 take a right, choose another with --listen")
        }
        _ => None,
    }
}

fn listen(address: SocketAddr, all: &[SocketAddr]) -> io::Result<TcpListener> {
    let socket = bind_one(address, all)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn bind_one(address: SocketAddr, all: &[SocketAddr]) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        // [::] takes IPv4 too, unless somebody wants that on its own.
        let twin = all.iter().any(|other| other.is_ipv4() && other.port() == address.port());
        socket.set_only_v6(twin)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::{bind, overlap};

    #[test]
    fn a_port_in_use_is_named() {
        let first = bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let address = first[0].local_addr().unwrap();
        let error = format!("{:#}", bind(&[address]).unwrap_err());
        assert!(error.contains(&address.to_string()) && error.contains("in use"), "{error}");
    }

    #[test]
    fn every_address_of_both_kinds() {
        if !std::path::Path::new("/proc/net/if_inet6").exists() {
            eprintln!("this kernel has no IPv6: nothing to test here");
            return;
        }
        let probe = bind(&["[::]:0".parse().unwrap()]).unwrap();
        let port = probe[0].local_addr().unwrap().port();
        drop(probe);
        let both = [format!("0.0.0.0:{port}").parse().unwrap(), format!("[::]:{port}").parse().unwrap()];
        assert_eq!(bind(&both).unwrap().len(), 2);
    }

    #[test]
    fn addresses_that_overlap_cannot_be_bound() {
        let port = bind(&["127.0.0.1:0".parse().unwrap()]).unwrap()[0].local_addr().unwrap().port();
        for (one, other, is_twice) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("0.0.0.0", "127.0.0.1", true),
            ("127.0.0.1", "0.0.0.0", true),
            ("127.0.0.1", "127.0.0.2", false),
        ] {
            let [one, other] = [one, other].map(|ip| format!("{ip}:{port}").parse().unwrap());
            assert_eq!(overlap(other, &[one]), is_twice.then_some(one), "{one} {other}");
            assert_eq!(bind(&[one, other]).is_err(), is_twice, "{one} {other}");
        }
        let [any, four, six]: [SocketAddr; 3] =
            ["[::]:1", "0.0.0.0:1", "[::1]:1"].map(|at| at.parse().unwrap());
        assert_eq!((overlap(four, &[any, six]), overlap(six, &[four, any])), (None, Some(any)));
        assert_eq!(overlap("0.0.0.0:0".parse().unwrap(), &["0.0.0.0:0".parse().unwrap()]), None);
    }
}
