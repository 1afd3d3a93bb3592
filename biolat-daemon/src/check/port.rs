//! Checks each listen address: whether it is free or, if not, whether biolat already listens there.

use std::{io, net::SocketAddr};

use super::{finding::Finding, port_probe::PortOwner};
use crate::listen;

const ID: &str = "port";

/// Checks an address. `probe` finds out which program listens there.
pub(super) fn port(
    address: SocketAddr,
    bound: io::Result<()>,
    probe: impl Fn(SocketAddr) -> PortOwner,
) -> Finding {
    let subject = format!("port {}", address.port());
    let Err(error) = bound else { return Finding::ok(ID, subject, format!("{address} is free")) };
    if error.kind() != io::ErrorKind::AddrInUse {
        let finding = Finding::fail(ID, subject, format!("cannot listen on {address}: {error}"));
        return match listen::step(&error) {
            Some(step) => finding.step(step),
            None => finding,
        };
    }
    let running = match probe(address) {
        PortOwner::Ready(version) => format!("biolat is already running, and ready: {version}"),
        PortOwner::NotReady => "biolat is already running, and not ready yet".to_owned(),
        PortOwner::Https => "biolat is already running, with TLS".to_owned(),
        PortOwner::Password => "biolat is already running, and requires a password".to_owned(),
        PortOwner::Other => return taken(address, subject, "is taken by another program"),
        PortOwner::Silent(why) => {
            return taken(address, subject, &format!("is taken by a program that does not answer: {why}"));
        }
    };
    Finding::note(ID, subject, running)
}

/// Reports an address that conflicts with another `--listen` address.
pub(super) fn conflict(address: SocketAddr, other: SocketAddr) -> Finding {
    let text = match address == other {
        true => format!("{address} is given twice"),
        false => format!("{address} and {other} conflict"),
    };
    Finding::fail(ID, format!("port {}", address.port()), text).step("give only one of them to --listen")
}

fn taken(address: SocketAddr, subject: String, how: &str) -> Finding {
    Finding::fail(ID, subject, format!("{address} {how}")).step(format!(
        "choose another port with --listen, or stop that program; `sudo ss -ltnp 'sport = :{}'` shows it",
        address.port()
    ))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{
        super::{
            finding::Verdict::{Fail, Note, Ok as Fine},
            port_probe::PortOwner,
        },
        conflict, port,
    };

    #[test]
    fn reports_port_owner() {
        let address = "127.0.0.1:9976".parse().unwrap();
        let finding = port(address, Ok(()), |_| panic!("not needed"));
        assert_eq!((finding.id, finding.verdict, finding.subject.as_str()), ("port", Fine, "port 9976"));
        for (probe, verdict, expected) in [
            (PortOwner::Ready("0.1.0 (abc)".into()), Note, "and ready: 0.1.0 (abc)"),
            (PortOwner::NotReady, Note, "not ready"),
            (PortOwner::Https, Note, "TLS"),
            (PortOwner::Password, Note, "password"),
            (PortOwner::Other, Fail, "another program"),
            (PortOwner::Silent("timed out".into()), Fail, "timed out"),
        ] {
            let in_use = io::Error::from_raw_os_error(libc::EADDRINUSE);
            let finding = port(address, Err(in_use), |_| probe.clone());
            assert_eq!(finding.verdict, verdict, "{finding:?}");
            assert!(finding.text.contains(expected), "{finding:?}");
            let fix = format!("{:?}", finding.fix);
            assert_eq!(verdict == Fail, fix.contains("ss -ltnp 'sport = :9976'"), "{fix}");
        }
    }

    #[test]
    fn reports_conflicting_addresses() {
        let [any, one] = ["0.0.0.0:80", "127.0.0.1:80"].map(|address| address.parse().unwrap());
        for (finding, expected) in [
            (conflict(one, any), "127.0.0.1:80 and 0.0.0.0:80 conflict"),
            (conflict(one, one), "given twice"),
        ] {
            assert_eq!((finding.id, finding.verdict), ("port", Fail));
            assert!(finding.text.contains(expected), "{finding:?}");
        }
    }

    #[test]
    fn reports_addresses_that_cannot_be_bound() {
        for (code, expected) in [(libc::EADDRNOTAVAIL, "does not have"), (libc::EACCES, "below 1024")] {
            let refused = Err(io::Error::from_raw_os_error(code));
            let finding = port("192.0.2.1:80".parse().unwrap(), refused, |_| panic!("not needed"));
            assert_eq!(finding.verdict, Fail);
            assert!(format!("{:?}", finding.fix).contains(expected), "{finding:?}");
        }
        let refused = Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        assert!(port("[::1]:80".parse().unwrap(), refused, |_| panic!("not needed")).fix.is_empty());
    }
}
