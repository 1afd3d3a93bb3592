//! Malformed requests: valid ones with bytes changed, removed, repeated or inserted. Each must end in time with a response or a
//! closed connection, and must not affect the server. For a longer run: `PROPTEST_CASES=100000 cargo test abuse`.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use biolat_daemon::http::{Limits, Service};
use biolat_history::{HistoryLimits, SharedHistory};
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};

use crate::support::{
    server::Server,
    snapshots::{serve_config, snapshot},
};

/// Time limit for the response to any request.
const TIMEOUT: Duration = Duration::from_secs(5);

const REQUESTS: [&str; 5] = [
    "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1\r\n\r\n",
    "GET /api/v1/snapshot HTTP/1.1\r\nHost: x\r\nIf-None-Match: W/\"1-2-3\"\r\nAccept-Encoding: gzip\r\n\r\n",
    "GET /api/v1/history?from=2026-01-05T03:00:00%2B01:00&to=-1m&step=10s HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "GET / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabcGET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n",
];

/// Byte sequences that trip up parsers.
const PIECES: [&[u8]; 16] = [
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b"\xff\xfe",
    b"HTTP/1.1",
    b"Host: y\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 18446744073709551616\r\n",
    b"Content-Length: -1\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: h2c\r\nConnection: Upgrade\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

#[derive(Clone, Debug)]
enum Mutation {
    Replace(Index, u8),
    Remove(Index, usize),
    Repeat(Index, usize, usize),
    Insert(Index, &'static [u8]),
    Truncate(Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        (any::<Index>(), 1..20_usize).prop_map(|(at, length)| Mutation::Remove(at, length)),
        (any::<Index>(), 1..30_usize, 1..400_usize)
            .prop_map(|(at, length, times)| Mutation::Repeat(at, length, times)),
        (any::<Index>(), select(&PIECES[..])).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        any::<Index>().prop_map(Mutation::Truncate),
    ]
}

impl Mutation {
    fn apply(&self, request: &mut Vec<u8>) {
        if request.is_empty() {
            return;
        }
        let range = |at: &Index, length: usize| {
            let start = at.index(request.len());
            start..(start + length).min(request.len())
        };
        match self {
            Self::Replace(at, byte) => {
                let at = at.index(request.len());
                request[at] = *byte;
            }
            Self::Remove(at, length) => drop(request.drain(range(at, *length))),
            Self::Repeat(at, length, times) => {
                let range = range(at, *length);
                let repeated = request[range.clone()].repeat(*times);
                request.splice(range, repeated);
            }
            Self::Insert(at, piece) => {
                let at = at.index(request.len());
                request.splice(at..at, piece.iter().copied());
            }
            Self::Truncate(at) => request.truncate(at.index(request.len())),
        }
    }
}

/// Address of a server shared by all tests of this process.
fn server() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let (sender, address) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let history = SharedHistory::new(
                    HistoryLimits { age: Duration::from_secs(600), bytes: 1 << 20 },
                    Duration::ZERO,
                );
                history.record(&Arc::new(snapshot(1)), Duration::from_secs(9));
                let service = |seen| Service::new(seen, serve_config()).with_history(history);
                let server = Server::start_service(Some(snapshot(1)), Limits::default(), service).await;
                sender.send(server.address).unwrap();
                server.serving.await.unwrap();
            });
        });
        address.recv().unwrap()
    })
}

/// Returns everything that the server sends before it closes the connection.
fn response(request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // The server may have closed the connection already.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(Shutdown::Write);
    let (mut response, began) = (Vec::new(), Instant::now());
    let _ = stream.read_to_end(&mut response);
    assert!(began.elapsed() < TIMEOUT, "the connection did not end in time after {}", request.escape_ascii());
    response
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3000)
    ) })]

    #[test]
    fn answers_or_closes_malformed_requests(request in select(&REQUESTS[..]), mutations in vec(mutation(), 1..6)) {
        let mut request = request.as_bytes().to_vec();
        mutations.iter().for_each(|mutation| mutation.apply(&mut request));
        let response = response(&request);
        prop_assert!(
            response.is_empty() || response.starts_with(b"HTTP/1."),
            "{} for {}", response.escape_ascii(), request.escape_ascii()
        );
        let healthy = self::response(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        prop_assert!(healthy.starts_with(b"HTTP/1.1 200"), "after {}", request.escape_ascii());
    }
}
