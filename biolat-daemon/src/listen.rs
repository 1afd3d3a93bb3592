//! Sockets to listen on: those that systemd passes, and those that are bound to an address.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    os::fd::{AsRawFd as _, OwnedFd},
};

use anyhow::{Result, anyhow, bail};
use socket2::{Domain, Protocol, Socket, Type};

/// The address to listen on by default.
pub(crate) const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9976);

/// The backlog; the kernel caps it. When it is full, a client's SYN is dropped and it retries after 1 s.
const BACKLOG: i32 = 4096;

/// Every socket to serve on: those that systemd has passed, and these addresses.
pub fn open(addresses: &[SocketAddr], passed: impl IntoIterator<Item = OwnedFd>) -> Result<Vec<TcpListener>> {
    let mut listeners = passed.into_iter().map(listener).collect::<Result<Vec<_>>>()?;
    if listeners.is_empty() && addresses.is_empty() {
        return bind(&[DEFAULT]);
    }
    listeners.extend(bind(addresses)?);
    Ok(listeners)
}

fn listener(fd: OwnedFd) -> Result<TcpListener> {
    let number = fd.as_raw_fd();
    let socket = Socket::from(fd);
    let is_tcp = socket.r#type().is_ok_and(|kind| kind == Type::STREAM)
        && socket.local_addr().is_ok_and(|address| address.as_socket().is_some());
    if !is_tcp || !socket.is_listener()? {
        bail!(
            "socket {number}, passed by systemd, does not listen on TCP: in the .socket unit, set ListenStream= to a port, \
             and Accept=no"
        );
    }
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

/// The first of these addresses that includes, or is included in, `address`.
pub(crate) fn overlap(address: SocketAddr, others: &[SocketAddr]) -> Option<SocketAddr> {
    // IPv4 and IPv6 do not overlap: [::] is bound without IPv4 where an IPv4 address is asked for too.
    let is_taken_by = |other: &SocketAddr| {
        address.port() == other.port()
            && address.port() != 0
            && address.is_ipv4() == other.is_ipv4()
            && (address == *other || address.ip().is_unspecified() || other.ip().is_unspecified())
    };
    others.iter().copied().find(is_taken_by)
}

/// Whether an address can be bound, next to `all` that are asked for. It is not listened on, so that nobody can connect.
pub(crate) fn is_free(address: SocketAddr, all: &[SocketAddr]) -> io::Result<()> {
    bind_one(address, all).map(drop)
}

fn remedy(error: &io::Error) -> String {
    let step = match error.kind() {
        io::ErrorKind::AddrInUse => {
            Some("is biolat running already? If not, choose another port with --listen")
        }
        _ => step(error),
    };
    step.map(|step| format!(": {step}")).unwrap_or_default()
}

/// The fix for an address that cannot be bound for other reasons than that it is in use.
pub(crate) fn step(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            Some("this host does not have that address, choose one with --listen")
        }
        io::ErrorKind::PermissionDenied => {
            Some("ports below 1024 need CAP_NET_BIND_SERVICE, choose another with --listen")
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
        // [::] includes IPv4, unless an IPv4 address with this port is asked for.
        let has_ipv4 = all.iter().any(|other| other.is_ipv4() && other.port() == address.port());
        socket.set_only_v6(has_ipv4)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use anyhow::Result;

    use super::{bind, overlap};

    #[test]
    fn a_port_in_use_is_named() {
        let first = bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let address = first[0].local_addr().unwrap();
        let error = format!("{:#}", bind(&[address]).unwrap_err());
        assert!(error.contains(&address.to_string()) && error.contains("in use"), "{error}");
    }

    /// Binds two addresses that have the same port, which is free for both of them or for neither: whatever else runs here
    /// may take a port between finding it and binding it.
    fn bind_pair(one: &str, other: &str) -> Result<usize> {
        const ATTEMPTS: usize = 100;
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let found = bind(&[format!("{one}:0").parse()?])?;
            let port = found[0].local_addr()?.port();
            drop(found);
            match bind(&[format!("{one}:{port}").parse()?, format!("{other}:{port}").parse()?]) {
                Ok(listeners) => return Ok(listeners.len()),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap())
    }

    #[test]
    fn every_address_of_both_kinds() {
        if !std::path::Path::new("/proc/net/if_inet6").exists() {
            eprintln!("this kernel has no IPv6: nothing to test here");
            return;
        }
        assert_eq!(bind_pair("[::]", "0.0.0.0").unwrap(), 2);
    }

    #[test]
    fn addresses_that_overlap_cannot_be_bound() {
        for (one, other, is_twice) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("0.0.0.0", "127.0.0.1", true),
            ("127.0.0.1", "0.0.0.0", true),
            ("127.0.0.1", "127.0.0.2", false),
        ] {
            let [first, second] = [one, other].map(|ip| format!("{ip}:9976").parse().unwrap());
            assert_eq!(overlap(second, &[first]), is_twice.then_some(first), "{one} {other}");
            assert_eq!(bind_pair(one, other).is_err(), is_twice, "{one} {other}");
        }
        let [any, four, six]: [SocketAddr; 3] =
            ["[::]:1", "0.0.0.0:1", "[::1]:1"].map(|at| at.parse().unwrap());
        assert_eq!((overlap(four, &[any, six]), overlap(six, &[four, any])), (None, Some(any)));
        assert_eq!(overlap("0.0.0.0:0".parse().unwrap(), &["0.0.0.0:0".parse().unwrap()]), None);
    }
}
