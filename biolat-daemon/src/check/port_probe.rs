//! A minimal HTTP client that finds out whether biolat or another program listens on a port.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// The program that listens on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PortOwner {
    /// biolat with a snapshot; the value is its version.
    Ready(String),
    /// biolat without a snapshot.
    NotReady,
    /// biolat with TLS.
    Https,
    /// biolat that requires a password.
    Password,
    /// Another program.
    Other,
    /// A program that does not answer, and the error.
    Silent(String),
}

/// How long a response may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of bytes read from a response.
const MAX_BYTES: usize = 64 << 20;

/// Finds out which program listens on an address of this host.
pub(super) fn probe(address: SocketAddr) -> PortOwner {
    owner(address).unwrap_or_else(|error| match error.kind() {
        io::ErrorKind::WouldBlock => PortOwner::Silent(format!("no answer within {PROBE_TIMEOUT:?}")),
        // The program does not speak HTTP.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => PortOwner::Other,
        _ => PortOwner::Silent(error.to_string()),
    })
}

fn owner(address: SocketAddr) -> io::Result<PortOwner> {
    let healthy = get(address, "/-/healthy", |_| false)?;
    if healthy.starts_with("HTTP/1.1 401") && healthy.contains("realm=\"biolat\"") {
        return Ok(PortOwner::Password);
    }
    if healthy.starts_with("HTTP/1.1 400")
        && healthy.contains("this is an HTTPS server and got plain HTTP: begin with")
    {
        return Ok(PortOwner::Https);
    }
    if !healthy.starts_with("HTTP/1.1 200") || !healthy.ends_with("\r\n\r\nhealthy\n") {
        return Ok(PortOwner::Other);
    }
    let metrics = get(address, "/metrics", |read| version(read).is_some())?;
    Ok(match version(&metrics) {
        Some(version) => PortOwner::Ready(version),
        None if metrics.starts_with("HTTP/1.1 503") && metrics.contains("not ready: no ") => {
            PortOwner::NotReady
        }
        None => PortOwner::Other,
    })
}

/// Sends a request and reads the response until it ends or `is_enough` accepts the text read last.
fn get(address: SocketAddr, path: &str, is_enough: impl Fn(&str) -> bool) -> io::Result<String> {
    let ends = Instant::now() + PROBE_TIMEOUT;
    let mut stream = TcpStream::connect_timeout(&reachable(address), PROBE_TIMEOUT)?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT))?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut searched) = (Vec::new(), 0);
    let mut part = vec![0; 64 << 10];
    loop {
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        stream.set_read_timeout(Some(left))?;
        let length = match stream.read(&mut part) {
            // With a timeout set, a read fails with EINTR if the process is stopped and continued: signal(7).
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        answer.extend_from_slice(&part[..length]);
        if length == 0 || answer.len() > MAX_BYTES {
            break;
        }
        // A match can begin in the previous part.
        if is_enough(&String::from_utf8_lossy(&answer[searched..])) {
            break;
        }
        searched = answer.len().saturating_sub(1024);
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Replaces a wildcard address with the loopback address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn version(metrics: &str) -> Option<String> {
    let (_, info) = metrics.split_once("biolat_build_info{")?;
    let (labels, _) = info.split_once('}')?;
    let label = |name: &str| Some(labels.split_once(&format!("{name}=\""))?.1.split_once('"')?.0);
    Some(format!("{} ({})", label("version")?, label("revision")?))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{SocketAddr, TcpListener},
        thread,
    };

    use super::{PortOwner, probe, reachable, version};

    /// Starts a server that sends one of these answers per connection.
    fn answering(answers: &[&str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answers: Vec<_> = answers.iter().map(|&answer| answer.to_owned()).collect();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn recognizes_other_programs() {
        for answer in ["", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\n\r\nPrometheus Server is Healthy.\n"] {
            assert_eq!(probe(answering(&[answer])), PortOwner::Other, "{answer}");
        }
        for answer in [
            "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"other\"\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.",
        ] {
            assert_eq!(probe(answering(&[answer])), PortOwner::Other, "{answer}");
        }
        let healthy = "HTTP/1.1 200 OK\r\n\r\nhealthy\n";
        assert_eq!(probe(answering(&[healthy, "HTTP/1.1 200 OK\r\n\r\nup 1\n"])), PortOwner::Other);
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(matches!(probe(closed), PortOwner::Silent(_)));
    }

    #[test]
    fn times_out_without_an_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let owner = probe(listener.local_addr().unwrap());
        assert_eq!(owner, PortOwner::Silent("no answer within 3s".into()));
    }

    #[test]
    fn reads_version_from_build_info() {
        let info = "# TYPE x\nbiolat_build_info{version=\"0.1.0\",revision=\"abc\"} 1\n";
        assert_eq!(version(info).as_deref(), Some("0.1.0 (abc)"));
        assert_eq!((version("biolat_build_info{version=\"0."), version("")), (None, None));
    }

    #[test]
    fn reaches_wildcards_via_loopback() {
        let reached = |address: &str| reachable(address.parse().unwrap()).to_string();
        assert_eq!(reached("0.0.0.0:1"), "127.0.0.1:1");
        assert_eq!(reached("[::]:1"), "[::1]:1");
        assert_eq!(reached("192.0.2.1:1"), "192.0.2.1:1");
    }
}
