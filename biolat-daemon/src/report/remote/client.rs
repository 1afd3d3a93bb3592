//! One HTTP client for one URL: a connection that is kept while it can be, and what went wrong in words.

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

use super::{
    sound::sound,
    target::{PATH, Target},
    tls,
};
use crate::{api, api::Snapshot, terminal::plain, version};

/// How long a connection, a handshake and an answer may take, each.
const PATIENCE: Duration = Duration::from_secs(10);

/// A snapshot of many hundred devices has a few megabytes.
const MOST_BYTES: usize = 64 << 20;

/// What an answer was.
#[derive(Debug)]
pub(super) enum Fetched {
    /// A snapshot that was not seen yet.
    New(Box<Snapshot>),
    /// The same as the last one.
    Same,
    /// There is none yet.
    NotReady,
}

pub(super) struct Client {
    target: Target,
    authorization: Option<HeaderValue>,
    tls: Option<Arc<ClientConfig>>,
    connection: Option<SendRequest<Empty<Bytes>>>,
    /// Of the last snapshot.
    tag: Option<HeaderValue>,
}

impl Client {
    /// A client that has not said anything yet.
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

    /// Asks for the latest snapshot.
    pub(super) async fn fetch(&mut self) -> Result<Fetched> {
        let kept = self.connection.take().filter(SendRequest::is_ready);
        let answer = match kept {
            // A server may end an idle connection at any time: then another one is made.
            Some(mut connection) => match self.ask(&mut connection).await {
                Ok(answer) => Ok((connection, answer)),
                Err(_) => self.ask_anew().await,
            },
            None => self.ask_anew().await,
        };
        let (connection, answer) = answer?;
        let fetched = timeout(PATIENCE, self.read(answer));
        let fetched = fetched.await.unwrap_or_else(|_| Err(self.too_slow("its answer")));
        if fetched.is_ok() {
            self.connection = Some(connection);
        }
        fetched
    }

    async fn ask_anew(&self) -> Result<(SendRequest<Empty<Bytes>>, Response<Incoming>)> {
        let mut connection = self.connect().await?;
        let answer = self.ask(&mut connection).await?;
        Ok((connection, answer))
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>> {
        let target = &self.target;
        let stream = timeout(PATIENCE, TcpStream::connect((target.host.as_str(), target.port)));
        let stream = stream.await.map_err(|_| self.too_slow("a connection"))?.map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::ConnectionRefused => ": is biolat-daemon running there, on that port?",
                _ => "",
            };
            anyhow!("cannot connect to {target}: {error}{hint}")
        })?;
        let _ = stream.set_nodelay(true);
        let Some(config) = &self.tls else { return self.greet(stream).await };
        let name = ServerName::try_from(target.host.clone())
            .map_err(|_| anyhow!("'{}' is not a name that a certificate can be for", target.host))?;
        let stream = timeout(PATIENCE, TlsConnector::from(Arc::clone(config)).connect(name, stream));
        let stream = stream.await.map_err(|_| self.too_slow("a TLS handshake"))?.map_err(|error| {
            let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
            let said = cause.map_or_else(|| error.to_string(), tls::explain);
            anyhow!("cannot trust {target}: {said}")
        })?;
        self.greet(stream).await
    }

    async fn greet<S>(&self, stream: S) -> Result<SendRequest<Empty<Bytes>>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // What fails there fails the request.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn ask(&self, connection: &mut SendRequest<Empty<Bytes>>) -> Result<Response<Incoming>> {
        let mut request = Request::get(format!("{}{PATH}", self.target.prefix))
            .header(HOST, self.target.authority())
            .header(USER_AGENT, concat!("biolat-daemon/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT_ENCODING, "gzip");
        for (name, value) in [(AUTHORIZATION, &self.authorization), (IF_NONE_MATCH, &self.tag)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let answer = timeout(PATIENCE, connection.send_request(request.body(Empty::new())?));
        let answer = answer.await.map_err(|_| self.too_slow("an answer"))?;
        answer.map_err(|error| match refusal(&error) {
            Some(refused) => anyhow!("{} refused the connection: {}", self.target, tls::explain(refused)),
            None => anyhow!(error).context(format!("{} does not answer", self.target)),
        })
    }

    async fn read(&mut self, answer: Response<Incoming>) -> Result<Fetched> {
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MOST_BYTES).collect().await.map(|body| body.to_bytes());
        let body =
            body.map_err(|error| anyhow!("{} broke off in the midst of its answer: {error}", self.target))?;
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
                anyhow!("{target} does not take this user and password")
            }
            (StatusCode::UNAUTHORIZED, _) => anyhow!(
                "{target} wants a password: give --user NAME, and it in BIOLAT_PASSWORD or --password-file FILE"
            ),
            (StatusCode::NOT_FOUND, _) => anyhow!(
                "{target} has no {PATH}: a biolat that is too old for `report --from` (before {}), or not biolat",
                version::VERSION
            ),
            (_, Some(location)) => anyhow!("{target} answers that it is at {location} now: give that"),
            _ => {
                let said = String::from_utf8_lossy(&body[..body.len().min(200)]);
                let said = plain(said.lines().next().unwrap_or_default().trim());
                anyhow!("{target} answers {status}{}{said}", if said.is_empty() { "" } else { ": " })
            }
        }
    }

    fn too_slow(&self, what: &str) -> anyhow::Error {
        anyhow!("{}: no end of {what} after {} s", self.target, PATIENCE.as_secs())
    }
}

/// What rustls has to say of a failed request: a server may refuse a client after the handshake.
fn refusal(error: &hyper::Error) -> Option<&rustls::Error> {
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
        GzDecoder::new(body).take(MOST_BYTES as u64).read_to_end(&mut unpacked)?;
        &unpacked[..]
    } else {
        body
    };
    // The version first: another one's fields may be others.
    let versions: Versions = serde_json::from_slice(json)
        .map_err(|error| anyhow!("what it answers is not what biolat answers: {error}"))?;
    if versions.version != api::VERSION {
        bail!(
            "it is biolat {}, whose answers are of version {}, and this one reads version {}: use the same biolat",
            plain(&versions.biolat),
            versions.version,
            api::VERSION
        );
    }
    sound(serde_json::from_slice(json).map_err(|error| anyhow!("its answer is malformed: {error}"))?)
}
