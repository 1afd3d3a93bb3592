//! Listening sockets, either passed by systemd or bound to the configured addresses.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    os::fd::{AsRawFd as _, OwnedFd},
};

use anyhow::{Result, anyhow, bail};
use socket2::{Domain, Protocol, Socket, Type};

/// The default address to listen on.
pub(crate) const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9976);

/// The listen backlog, which the kernel caps. When it is full, SYNs are dropped and clients retry after 1 s.
const BACKLOG: i32 = 4096;

/// Returns the sockets passed by systemd, and one bound to each of `addresses`, or to the default if there are none at all.
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

/// Binds all addresses; fails if one cannot be bound.
fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>> {
    addresses
        .iter()
        .map(|address| {
            listen(*address, addresses)
                .map_err(|error| anyhow!("cannot listen on {address}: {error}{}", remedy(&error)))
        })
        .collect()
}

/// Returns the first of `others` that cannot be bound alongside `address`, because they are the same or one of the two is a
/// wildcard.
pub(crate) fn overlap(address: SocketAddr, others: &[SocketAddr]) -> Option<SocketAddr> {
    // IPv4 and IPv6 do not overlap: if both are requested, [::] is bound for IPv6 only.
    let conflicts_with = |other: &SocketAddr| {
        address.port() == other.port()
            && address.port() != 0
            && address.is_ipv4() == other.is_ipv4()
            && (address == *other || address.ip().is_unspecified() || other.ip().is_unspecified())
    };
    others.iter().copied().find(conflicts_with)
}

/// Checks that `address` can be bound as one of `all` requested addresses. Does not listen, so no client can connect.
pub(crate) fn check_bindable(address: SocketAddr, all: &[SocketAddr]) -> io::Result<()> {
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

/// Returns the fix for an address that cannot be bound for a reason other than being in use.
pub(crate) fn step(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            Some("this host does not have that address; choose one with --listen")
        }
        io::ErrorKind::PermissionDenied => {
            Some("ports below 1024 need CAP_NET_BIND_SERVICE; choose another with --listen")
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
        // [::] also serves IPv4, unless an IPv4 address with the same port is requested.
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
    fn error_names_address_in_use() {
        let first = bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let address = first[0].local_addr().unwrap();
        let error = format!("{:#}", bind(&[address]).unwrap_err());
        assert!(error.contains(&address.to_string()) && error.contains("in use"), "{error}");
    }

    /// Binds two addresses on the same port. Retries with another port, because another program on this host may take the free
    /// port before it is bound.
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
    fn binds_wildcards_of_both_families() {
        if !std::path::Path::new("/proc/net/if_inet6").exists() {
            eprintln!("skipped: this kernel has no IPv6");
            return;
        }
        assert_eq!(bind_pair("[::]", "0.0.0.0").unwrap(), 2);
    }

    #[test]
    fn rejects_overlapping_addresses() {
        for (one, other, conflict) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("0.0.0.0", "127.0.0.1", true),
            ("127.0.0.1", "0.0.0.0", true),
            ("127.0.0.1", "127.0.0.2", false),
        ] {
            let [first, second] = [one, other].map(|ip| format!("{ip}:9976").parse().unwrap());
            assert_eq!(overlap(second, &[first]), conflict.then_some(first), "{one} {other}");
            assert_eq!(bind_pair(one, other).is_err(), conflict, "{one} {other}");
        }
        let [any, four, six]: [SocketAddr; 3] =
            ["[::]:1", "0.0.0.0:1", "[::1]:1"].map(|at| at.parse().unwrap());
        assert_eq!((overlap(four, &[any, six]), overlap(six, &[four, any])), (None, Some(any)));
        assert_eq!(overlap("0.0.0.0:0".parse().unwrap(), &["0.0.0.0:0".parse().unwrap()]), None);
    }
}
