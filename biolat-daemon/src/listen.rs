//! Sockets to listen on.

use std::{
    io,
    net::{Ipv6Addr, SocketAddr, TcpListener},
};

use anyhow::{Result, anyhow};
use socket2::{Domain, Protocol, Socket, Type};

const BACKLOG: i32 = 512;

/// Binds every address, or none.
pub fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>> {
    addresses
        .iter()
        .map(|address| {
            bind_one(*address, addresses)
                .map_err(|error| anyhow!("cannot listen on {address}: {error}{}", remedy(&error)))
        })
        .collect()
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => ": is biolat running already? Else choose another port with --listen",
        io::ErrorKind::AddrNotAvailable => ": this host does not have that address, choose one with --listen",
        io::ErrorKind::PermissionDenied => ": ports below 1024 take a right, choose another with --listen",
        _ => "",
    }
}

fn bind_one(address: SocketAddr, all: &[SocketAddr]) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        // [::] takes IPv4 too, unless somebody wants that on its own.
        let twin = all.iter().any(|other| other.is_ipv4() && other.port() == address.port());
        socket.set_only_v6(twin)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::bind;

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
}
