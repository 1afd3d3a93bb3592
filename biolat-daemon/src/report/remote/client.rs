//! An HTTP client for one URL: it keeps its connection, and explains its errors.

use std::{
    io::{self, Read as _},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, ETAG, HOST, HeaderValue, IF_NONE_MATCH, LOCATION,
        USER_AGENT,
    },
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{self, ClientConfig, pki_types::ServerName},
};

use super::{sanitize_snapshot::sanitized, tls};
use crate::{
    api,
    api::Snapshot,
    report::target::{PATH, Target},
    sanitize, version,
};

/// For each of connecting, the handshake, and the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A snapshot of many hundred devices has a few megabytes.
const MAX_BYTES: usize = 64 << 20;

/// The outcome of a request.
#[derive(Debug)]
pub(super) enum Fetched {
    /// A new snapshot.
    New(Box<Snapshot>),
    /// No new snapshot since the last request.
    Same,
    /// No snapshot yet.
    NotReady,
}

pub(super) struct Client {
    target: Target,
    authorization: Option<HeaderValue>,
    tls: Option<Arc<ClientConfig>>,
    connection: Option<SendRequest<Empty<Bytes>>>,
    /// The ETag of the last snapshot.
    tag: Option<HeaderValue>,
}

impl Client {
    /// Does not connect yet.
    pub(super) fn new(
        target: Target,
        credentials: Option<(String, String)>,
        tls: Option<ClientConfig>,
    ) -> Result<Self> {
        let authorization = credentials.map(|(user, password)| -> Result<_> {
            let token = STANDARD.encode(format!("{user}:{password}"));
            let mut value = HeaderValue::try_from(format!("Basic {token}"))?;
            value.set_sensitive(true);
            Ok(value)
        });
        let (authorization, tls) = (authorization.transpose()?, tls.map(Arc::new));
        Ok(Self { target, authorization, tls, connection: None, tag: None })
    }

    /// Requests the latest snapshot.
    pub(super) async fn fetch(&mut self) -> Result<Fetched> {
        let kept = self.connection.take().filter(SendRequest::is_ready);
        let answer = match kept {
            // A server may close an idle connection at any time: then a new one is made.
            Some(mut connection) => match self.request(&mut connection).await {
                Ok(answer) => Ok((connection, answer)),
                Err(_) => self.reconnect().await,
            },
            None => self.reconnect().await,
        };
        let (connection, answer) = answer?;
        let fetched = timeout(REQUEST_TIMEOUT, self.read(answer));
        let fetched = fetched.await.unwrap_or_else(|_| Err(self.too_slow("the answer")));
        if fetched.is_ok() {
            self.connection = Some(connection);
        }
        fetched
    }

    async fn reconnect(&self) -> Result<(SendRequest<Empty<Bytes>>, Response<Incoming>)> {
        let mut connection = self.connect().await?;
        let answer = self.request(&mut connection).await?;
        Ok((connection, answer))
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>> {
        let target = &self.target;
        let stream = timeout(REQUEST_TIMEOUT, TcpStream::connect((target.host.as_str(), target.port)));
        let stream = stream.await.map_err(|_| self.too_slow("connecting"))?.map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::ConnectionRefused => ": is biolat-daemon running there, on that port?",
                _ => "",
            };
            anyhow!("cannot connect to {target}: {error}{hint}")
        })?;
        let _ = stream.set_nodelay(true);
        let Some(config) = &self.tls else { return self.http(stream).await };
        let name = ServerName::try_from(target.host.clone())
            .map_err(|_| anyhow!("'{}' is not a valid name for a TLS certificate", target.host))?;
        let stream = timeout(REQUEST_TIMEOUT, TlsConnector::from(Arc::clone(config)).connect(name, stream));
        let stream = stream.await.map_err(|_| self.too_slow("the TLS handshake"))?.map_err(|error| {
            let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
            let said = cause.map_or_else(|| error.to_string(), tls::explain);
            anyhow!("no TLS connection to {target}: {said}")
        })?;
        self.http(stream).await
    }

    async fn http<S>(&self, stream: S) -> Result<SendRequest<Empty<Bytes>>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Its errors are those of the request too.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn request(&self, connection: &mut SendRequest<Empty<Bytes>>) -> Result<Response<Incoming>> {
        let mut request = Request::get(format!("{}{PATH}", self.target.prefix))
            .header(HOST, self.target.authority())
            .header(USER_AGENT, concat!("biolat-daemon/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT_ENCODING, "gzip");
        for (name, value) in [(AUTHORIZATION, &self.authorization), (IF_NONE_MATCH, &self.tag)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let answer = timeout(REQUEST_TIMEOUT, connection.send_request(request.body(Empty::new())?));
        let answer = answer.await.map_err(|_| self.too_slow("the answer"))?;
        answer.map_err(|error| match tls_error(&error) {
            Some(error) => anyhow!("{} refused the connection: {}", self.target, tls::explain(error)),
            None => anyhow!(error).context(format!("{} does not answer", self.target)),
        })
    }

    async fn read(&mut self, answer: Response<Incoming>) -> Result<Fetched> {
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_BYTES).collect().await.map(|body| body.to_bytes());
        let body = body
            .map_err(|error| anyhow!("{} closed the connection within its answer: {error}", self.target))?;
        match head.status {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED => return Ok(Fetched::Same),
            StatusCode::SERVICE_UNAVAILABLE => return Ok(Fetched::NotReady),
            status => {
                let location = head.headers.get(LOCATION).and_then(|to| to.to_str().ok());
                return Err(self.refused(status, location, &body));
            }
        }
        let gzip = head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
        let snapshot = snapshot(&body, gzip).with_context(|| format!("cannot read {}", self.target))?;
        self.tag = head.headers.get(ETAG).cloned();
        Ok(Fetched::New(Box::new(snapshot)))
    }

    fn refused(&self, status: StatusCode, location: Option<&str>, body: &[u8]) -> anyhow::Error {
        let target = &self.target;
        match (status, location) {
            (StatusCode::UNAUTHORIZED, _) if self.authorization.is_some() => {
                anyhow!("{target} rejects this user name and password")
            }
            (StatusCode::UNAUTHORIZED, _) => anyhow!(
                "{target} requires a password: give --user NAME, and the password in BIOLAT_PASSWORD or --password-file FILE"
            ),
            (StatusCode::NOT_FOUND, _) => anyhow!(
                "{target} has no {PATH}: it is not biolat, or one older than {} that does not support `report --from`",
                version::VERSION
            ),
            (_, Some(location)) => anyhow!("{target} redirects to {location}: give that URL"),
            _ => {
                let said = String::from_utf8_lossy(&body[..body.len().min(200)]);
                let said = sanitize::text(said.lines().next().unwrap_or_default().trim());
                anyhow!("{target} answers {status}{}{said}", if said.is_empty() { "" } else { ": " })
            }
        }
    }

    fn too_slow(&self, what: &str) -> anyhow::Error {
        anyhow!("{}: {what} took longer than {} s", self.target, REQUEST_TIMEOUT.as_secs())
    }
}

/// The TLS error of a failed request: with TLS 1.3 a server rejects a client after the handshake.
fn tls_error(error: &hyper::Error) -> Option<&rustls::Error> {
    let io = std::error::Error::source(error)?.downcast_ref::<io::Error>()?;
    io.get_ref()?.downcast_ref()
}

fn snapshot(body: &[u8], gzip: bool) -> Result<Snapshot> {
    #[derive(serde::Deserialize)]
    struct Versions {
        version: u32,
        biolat: String,
    }
    let mut unpacked = Vec::new();
    let json = if gzip {
        GzDecoder::new(body).take(MAX_BYTES as u64).read_to_end(&mut unpacked)?;
        &unpacked[..]
    } else {
        body
    };
    // The version first: another version may have other fields.
    let versions: Versions = serde_json::from_slice(json)
        .map_err(|error| anyhow!("the answer is not a snapshot of biolat: {error}"))?;
    if versions.version != api::VERSION {
        bail!(
            "biolat {} there has version {} of the API, and this one reads version {}: use the same version of biolat",
            sanitize::text(&versions.biolat),
            versions.version,
            api::VERSION
        );
    }
    sanitized(serde_json::from_slice(json).map_err(|error| anyhow!("malformed answer: {error}"))?)
}
