//! An HTTP client for one URL. It keeps its connection open, and explains errors.

use std::{
    io::{self, Read as _},
    marker::PhantomData,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use biolat_model::{text::sanitize, version};
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
    http::response::Parts,
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

use super::{
    credentials::Credentials,
    document::{Document, Endpoint, parse},
    target::Target,
    tls,
};

/// Timeout for each of connect, handshake and response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A snapshot of a thousand devices with four ops each takes 9 MiB. In memory it may be ten times as large.
const MAX_BYTES: usize = 16 << 20;

/// Result of a request.
#[derive(Debug)]
pub(super) enum Fetched<T> {
    /// The document of a new snapshot.
    New(Box<T>),
    /// No new snapshot since the last request.
    Same,
    /// No snapshot yet, with the server's message.
    NotReady(String),
}

/// A client for one document.
pub(super) struct Client<T> {
    pub(super) target: Target,
    authorization: Option<HeaderValue>,
    tls: Option<Arc<ClientConfig>>,
    connection: Option<SendRequest<Empty<Bytes>>>,
    /// Appended to the path: empty, or starting with a question mark.
    query: String,
    /// ETag of the last snapshot.
    tag: Option<HeaderValue>,
    document: PhantomData<fn() -> T>,
}

impl<T: Document> Client<T> {
    /// Requests the document of the latest snapshot.
    pub(super) async fn fetch(&mut self) -> Result<Fetched<T>> {
        let (connection, answer) = self.answer().await?;
        let fetched = timeout(REQUEST_TIMEOUT, self.read(answer));
        let fetched = fetched.await.unwrap_or_else(|_| Err(self.too_slow("the answer", REQUEST_TIMEOUT)));
        if fetched.is_ok() {
            self.connection = Some(connection);
        }
        fetched
    }

    async fn read(&mut self, answer: Response<Incoming>) -> Result<Fetched<T>> {
        let (head, body) = answer.into_parts();
        match head.status {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED => return Ok(Fetched::Same),
            StatusCode::SERVICE_UNAVAILABLE => {
                let body = self.whole(body).await?;
                return Ok(Fetched::NotReady(first_line(&body)));
            }
            _ => return Err(self.refused(&head, &self.whole(body).await?)),
        }
        let body = self.whole(body).await?;
        let document =
            document(&body, is_gzip(&head)).with_context(|| format!("cannot read {}", self.target))?;
        self.tag = head.headers.get(ETAG).cloned();
        Ok(Fetched::New(Box::new(document)))
    }
}

impl<T: Endpoint> Client<T> {
    /// Creates a client, without connecting yet.
    pub(super) fn new(target: Target, query: String, credentials: &Credentials) -> Result<Self> {
        let ca_file = credentials.ca_file.as_deref();
        if ca_file.is_some() && !target.tls {
            bail!("--ca-file requires TLS: give https://{} instead of {target}", target.authority());
        }
        let login = credentials.login(&target)?;
        let tls = if target.tls { Some(Arc::new(tls::config(ca_file)?)) } else { None };
        let authorization = login.map(|(user, password)| -> Result<_> {
            let token = STANDARD.encode(format!("{user}:{password}"));
            let mut value = HeaderValue::try_from(format!("Basic {token}"))?;
            value.set_sensitive(true);
            Ok(value)
        });
        let authorization = authorization.transpose()?;
        Ok(Self { target, authorization, tls, connection: None, query, tag: None, document: PhantomData })
    }

    /// Sends the request. Returns the response and its connection.
    pub(super) async fn answer(&mut self) -> Result<(SendRequest<Empty<Bytes>>, Response<Incoming>)> {
        let kept = self.connection.take().filter(SendRequest::is_ready);
        match kept {
            // A server may close an idle connection at any time: connect again.
            Some(mut connection) => match self.request(&mut connection).await {
                Ok(answer) => Ok((connection, answer)),
                Err(_) => self.reconnect().await,
            },
            None => self.reconnect().await,
        }
    }

    async fn reconnect(&self) -> Result<(SendRequest<Empty<Bytes>>, Response<Incoming>)> {
        let mut connection = self.connect().await?;
        let answer = self.request(&mut connection).await?;
        Ok((connection, answer))
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>> {
        let target = &self.target;
        let stream = timeout(REQUEST_TIMEOUT, TcpStream::connect((target.host.as_str(), target.port)));
        let slow = |_| {
            anyhow!("{}: is that host up, and its port open?", self.too_slow("connecting", REQUEST_TIMEOUT))
        };
        let stream = stream.await.map_err(slow)?.map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::ConnectionRefused => ": is biolat-daemon running there, on that port?",
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => ": is that host up?",
                // The error comes from name resolution, not from a system call.
                _ if error.raw_os_error().is_none() => ": check the name",
                _ => "",
            };
            anyhow!("cannot connect to {target}: {error}{hint}")
        })?;
        let _ = stream.set_nodelay(true);
        let Some(config) = &self.tls else { return self.http(stream).await };
        let name = ServerName::try_from(target.host.clone())
            .map_err(|_| anyhow!("'{}' is not a valid name for a TLS certificate", target.host))?;
        let stream = timeout(REQUEST_TIMEOUT, TlsConnector::from(Arc::clone(config)).connect(name, stream));
        let stream = stream.await.map_err(|_| self.too_slow("the TLS handshake", REQUEST_TIMEOUT))?.map_err(
            |error| {
                let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
                let message = cause.map_or_else(|| error.to_string(), tls::explain);
                anyhow!("no TLS connection to {target}: {message}")
            },
        )?;
        self.http(stream).await
    }

    async fn http<S>(&self, stream: S) -> Result<SendRequest<Empty<Bytes>>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Its errors are also reported by the request.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn request(&self, connection: &mut SendRequest<Empty<Bytes>>) -> Result<Response<Incoming>> {
        let mut request = Request::get(format!("{}{}{}", self.target.prefix, T::PATH, self.query))
            .header(HOST, self.target.authority())
            .header(USER_AGENT, concat!("biolat/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT_ENCODING, "gzip");
        for (name, value) in [(AUTHORIZATION, &self.authorization), (IF_NONE_MATCH, &self.tag)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let answer = timeout(REQUEST_TIMEOUT, connection.send_request(request.body(Empty::new())?));
        let slow =
            |_| anyhow!("{}: is that biolat-daemon's port?", self.too_slow("the answer", REQUEST_TIMEOUT));
        answer.await.map_err(slow)?.map_err(|error| match tls_error(&error) {
            Some(error) => anyhow!("{} refused the connection: {}", self.target, tls::explain(error)),
            None => anyhow!(error).context(format!("{} does not answer", self.target)),
        })
    }

    /// Reads a body of limited size.
    pub(super) async fn whole(&self, body: Incoming) -> Result<Bytes> {
        let body = timeout(REQUEST_TIMEOUT, Limited::new(body, MAX_BYTES).collect()).await;
        let body = body.map_err(|_| self.too_slow("the answer", REQUEST_TIMEOUT))?;
        Ok(body.map_err(|error| self.interrupted(error.as_ref()))?.to_bytes())
    }

    pub(super) fn interrupted(&self, error: &dyn std::error::Error) -> anyhow::Error {
        anyhow!("{} closed the connection in the middle of its answer: {error}", self.target)
    }

    /// Explains a response without a document.
    pub(super) fn refused(&self, head: &Parts, body: &[u8]) -> anyhow::Error {
        let (target, status) = (&self.target, head.status);
        let location = head.headers.get(LOCATION).and_then(|to| to.to_str().ok());
        match (status, location) {
            (StatusCode::UNAUTHORIZED, _) if self.authorization.is_some() => {
                anyhow!("{target} rejects this user name and password")
            }
            (StatusCode::UNAUTHORIZED, _) => anyhow!(
                "{target} requires a password: give --user NAME, and the password in BIOLAT_PASSWORD or --password-file FILE"
            ),
            (StatusCode::NOT_FOUND, _) if !body.starts_with(b"not found: --") => anyhow!(
                "{target} has no {}: it is not biolat-daemon, or a version older than {} that does not support `{}`",
                T::PATH,
                version::VERSION,
                T::COMMAND
            ),
            (_, Some(location)) => anyhow!("{target} redirects to {location}: give that URL"),
            _ => {
                let message = first_line(body);
                anyhow!("{target} answers {status}{}{message}", if message.is_empty() { "" } else { ": " })
            }
        }
    }

    pub(super) fn too_slow(&self, what: &str, limit: Duration) -> anyhow::Error {
        anyhow!("{}: {what} took longer than {} s", self.target, limit.as_secs())
    }
}

pub(super) fn is_gzip(head: &Parts) -> bool {
    head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip")
}

/// The first line of a server's message, sanitized.
fn first_line(body: &[u8]) -> String {
    let message = String::from_utf8_lossy(&body[..body.len().min(200)]);
    sanitize::text(message.lines().next().unwrap_or_default().trim())
}

/// The TLS error behind a failed request: with TLS 1.3, a server rejects a client only after the handshake.
fn tls_error(error: &hyper::Error) -> Option<&rustls::Error> {
    let io = std::error::Error::source(error)?.downcast_ref::<io::Error>()?;
    io.get_ref()?.downcast_ref()
}

fn document<T: Document>(body: &[u8], gzip: bool) -> Result<T> {
    let mut unpacked = Vec::new();
    let json = if gzip {
        GzDecoder::new(body).take(MAX_BYTES as u64 + 1).read_to_end(&mut unpacked)?;
        if unpacked.len() > MAX_BYTES {
            bail!("the answer is larger than {} MiB", MAX_BYTES >> 20);
        }
        &unpacked[..]
    } else {
        body
    };
    parse(json)
}

#[cfg(test)]
mod tests {
    use biolat_model::snapshot::Snapshot;
    use proptest::{collection::vec, prelude::*};

    use super::document;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn rejects_arbitrary_bytes(bytes in vec(any::<u8>(), 0..200), gzip: bool) {
            let error = format!("{:#}", document::<Snapshot>(&bytes, gzip).unwrap_err());
            prop_assert!(!error.contains(char::is_control), "{error:?}");
        }
    }
}
