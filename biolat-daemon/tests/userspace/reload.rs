//! Renewing a certificate and rewriting an unchanged web config: no request on a new connection fails.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use biolat_daemon::{
    http::{Limits, Service},
    web_config::WebConfig,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::sleep,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::pki_types::{CertificateDer, ServerName},
};

use crate::support::{
    certificates::{Authority, Folder},
    server::Server,
    snapshots::{serve_config, snapshot},
};

const CONFIG: &str = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";
/// Enough for several renewals: the files are checked once a second.
const TEST_TIME: Duration = Duration::from_secs(5);
/// Delay between handshake and request, during which renewals can occur.
const THINK_TIME: Duration = Duration::from_millis(100);

/// A server with a certificate, and a client that trusts it.
struct Fixture {
    folder: Folder,
    authority: Authority,
    server: Server,
    connector: TlsConnector,
}

impl Fixture {
    async fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let authority = Authority::new("authority");
        authority.issue("server").write(&folder);
        let config = WebConfig::open(&folder.write("web.yml", CONFIG)).unwrap();
        let service = |seen| Service::new(seen, serve_config()).with_web_config(config);
        let server = Server::start_service(Some(snapshot(1)), Limits::default(), service).await;
        let connector = TlsConnector::from(Arc::new(authority.client().with_no_client_auth()));
        Self { folder, authority, server, connector }
    }
}

/// Opens a connection. Also returns the server's certificate.
async fn connect(
    address: SocketAddr,
    connector: &TlsConnector,
) -> (TlsStream<TcpStream>, CertificateDer<'static>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
    (stream, certificate)
}

#[tokio::test]
async fn answers_new_connections_during_renewal() {
    let fixture = Fixture::new("reload").await;
    let ends = Instant::now() + TEST_TIME;
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        let (address, connector) = (fixture.server.address, fixture.connector.clone());
        clients.spawn(async move {
            let (mut answers, mut certificates) = (0, HashSet::new());
            while Instant::now() < ends {
                let (mut stream, certificate) = connect(address, &connector).await;
                certificates.insert(certificate.to_vec());
                sleep(THINK_TIME).await;
                let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
                stream.write_all(request).await.unwrap();
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer).await;
                assert!(answer.starts_with(b"HTTP/1.1 200"), "answer {answers}: {}", answer.escape_ascii());
                let expires = b"\nbiolat_certificate_expiry_timestamp_seconds 4102444800\n";
                assert!(answer.windows(expires.len()).any(|part| part == expires), "no expiry in 2100");
                answers += 1;
            }
            (answers, certificates.len())
        });
    }
    let mut renewals = 0;
    while Instant::now() < ends {
        fixture.authority.issue("server").write(&fixture.folder);
        renewals += 1;
        sleep(Duration::from_millis(300)).await;
    }
    for (answers, certificates) in clients.join_all().await {
        assert!(answers > 10 && certificates > 1, "{answers} answers, {certificates} certificates");
    }
    assert!(renewals > 5, "{renewals} renewals");
}

/// The same content, written again: connections stay open and are served.
#[tokio::test]
async fn rewritten_identical_files_change_nothing() {
    let fixture = Fixture::new("again").await;
    let (mut stream, _) = connect(fixture.server.address, &fixture.connector).await;
    for round in 0..8 {
        stream.write_all(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = [0; 1024];
        let read = stream.read(&mut answer).await.unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "request {round}: {read} bytes");
        for name in ["web.yml", "server.pem", "server.key"] {
            let content = std::fs::read_to_string(fixture.folder.0.join(name)).unwrap();
            fixture.folder.write(name, &content);
        }
        sleep(Duration::from_millis(500)).await;
    }
}
