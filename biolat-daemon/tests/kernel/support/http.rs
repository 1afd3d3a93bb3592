//! A minimal HTTP client: one request per connection.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// An HTTP response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn get(address: SocketAddr, path: &str, headers: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}\r\n")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let invalid = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(invalid)?;
    let body = bytes.split_off(end + 4);
    let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok()).ok_or_else(invalid)?;
    let body = if head.contains("transfer-encoding: chunked") { unchunk(&body) } else { body };
    Ok(Answer { status, head, body })
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap().trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        body.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 2 + size + 2..];
    }
    body
}
