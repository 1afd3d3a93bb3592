//! Each address to serve on: whether it is free, and if not, whether biolat is there already.

use std::{io, net::SocketAddr};

use super::{finding::Finding, neighbour::Neighbour};
use crate::listen;

const ID: &str = "port";

/// `neighbour` asks who has an address.
pub(super) fn port(
    address: SocketAddr,
    bound: io::Result<()>,
    neighbour: impl Fn(SocketAddr) -> Neighbour,
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
    let is_here = match neighbour(address) {
        Neighbour::Ready(version) => format!("biolat runs already, and is ready: {version}"),
        Neighbour::NotReady => "biolat runs already, and is not ready yet".to_owned(),
        Neighbour::Https => "biolat runs already, by https, which was not asked further".to_owned(),
        Neighbour::Password => "biolat runs already, and wants a password".to_owned(),
        Neighbour::Other => return taken(address, subject, "is taken by another program"),
        Neighbour::Silent(why) => {
            return taken(address, subject, &format!("is taken, and who has it does not answer: {why}"));
        }
    };
    Finding::note(ID, subject, is_here)
}

/// An address that another one takes, which is to be served on too.
pub(super) fn twice(address: SocketAddr, other: SocketAddr) -> Finding {
    let text = match address == other {
        true => format!("{address} is given twice"),
        false => format!("{address} and {other} cannot be listened on at once"),
    };
    Finding::fail(ID, format!("port {}", address.port()), text).step("give --listen one of the two")
}

fn taken(address: SocketAddr, subject: String, how: &str) -> Finding {
    Finding::fail(ID, subject, format!("{address} {how}")).step(format!(
        "choose another port with --listen, or end that program: `sudo ss -ltnp 'sport = :{}'` tells which it is",
        address.port()
    ))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{
        super::{
            finding::Verdict::{Fail, Note, Ok as Fine},
            neighbour::Neighbour,
        },
        port, twice,
    };

    #[test]
    fn who_has_it() {
        let address = "127.0.0.1:9976".parse().unwrap();
        let finding = port(address, Ok(()), |_| panic!("nobody to ask"));
        assert_eq!((finding.id, finding.verdict, finding.subject.as_str()), ("port", Fine, "port 9976"));
        for (neighbour, verdict, expected) in [
            (Neighbour::Ready("0.1.0 (abc)".into()), Note, "is ready: 0.1.0 (abc)"),
            (Neighbour::NotReady, Note, "not ready"),
            (Neighbour::Https, Note, "https"),
            (Neighbour::Password, Note, "password"),
            (Neighbour::Other, Fail, "another program"),
            (Neighbour::Silent("timed out".into()), Fail, "timed out"),
        ] {
            let in_use = io::Error::from_raw_os_error(libc::EADDRINUSE);
            let finding = port(address, Err(in_use), |_| neighbour.clone());
            assert_eq!(finding.verdict, verdict, "{finding:?}");
            assert!(finding.text.contains(expected), "{finding:?}");
            let fix = format!("{:?}", finding.fix);
            assert_eq!(verdict == Fail, fix.contains("ss -ltnp 'sport = :9976'"), "{fix}");
        }
    }

    #[test]
    fn two_of_one() {
        let [any, one] = ["0.0.0.0:80", "127.0.0.1:80"].map(|address| address.parse().unwrap());
        for (finding, expected) in
            [(twice(one, any), "127.0.0.1:80 and 0.0.0.0:80"), (twice(one, one), "given twice")]
        {
            assert_eq!((finding.id, finding.verdict), ("port", Fail));
            assert!(finding.text.contains(expected), "{finding:?}");
        }
    }

    #[test]
    fn what_cannot_be_listened_on() {
        for (code, expected) in [(libc::EADDRNOTAVAIL, "does not have"), (libc::EACCES, "below 1024")] {
            let refused = Err(io::Error::from_raw_os_error(code));
            let finding = port("192.0.2.1:80".parse().unwrap(), refused, |_| panic!("nobody to ask"));
            assert_eq!(finding.verdict, Fail);
            assert!(format!("{:?}", finding.fix).contains(expected), "{finding:?}");
        }
        let refused = Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        assert!(port("[::1]:80".parse().unwrap(), refused, |_| panic!("nobody to ask")).fix.is_empty());
    }
}
