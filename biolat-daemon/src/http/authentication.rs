//! Admits requests before they are routed, and adds the web config's headers to every response.

use std::{fmt, net::IpAddr, sync::Arc};

use hyper::{
    Request, StatusCode, Version,
    header::{CONNECTION, HOST, WWW_AUTHENTICATE},
};
use tokio_rustls::rustls::ServerConfig;

use super::{
    Service,
    admission::Admission,
    connection_slots::ConnectionSlot,
    responses::{HttpResponse, retry_later, set, text},
    routes::{Call, respond},
};
use crate::web_config::{Access, AuthOutcome, WebConfig};

/// The TLS handshake of the connection on which a request arrives.
pub(super) struct Handshake {
    /// TLS configuration of the handshake; `None` for plain HTTP.
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// Whether this is the first request after the handshake.
    pub(super) is_first_request: bool,
}

impl Handshake {
    /// Whether the handshake used this configuration.
    fn is_current(&self, access: &Access) -> bool {
        self.tls.as_ref().map(Arc::as_ptr) == access.tls.as_ref().map(Arc::as_ptr)
    }

    /// Whether a request can be answered under this configuration. After the TLS configuration changes, the first request on a
    /// connection is still answered: the handshake admitted the client, and no client repeats its first request on a new
    /// connection.
    fn admits(&self, access: &Access) -> bool {
        let both_have_tls = self.tls.is_some() && access.tls.is_some();
        self.is_current(access) || (self.is_first_request && both_have_tls)
    }
}

/// A request, other than the first, on a connection opened before the TLS configuration changed. The connection is closed without
/// a response. A client takes that for an idle timeout and repeats the request on a new connection, if it is still allowed to
/// connect.
#[derive(Debug)]
pub(super) struct StaleTls;

impl fmt::Display for StaleTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the TLS configuration has changed since the connection was made")
    }
}

impl std::error::Error for StaleTls {}

impl Service {
    /// Serves with the TLS, passwords and headers of this web config.
    #[must_use]
    pub fn with_web_config(mut self, web_config: WebConfig) -> Self {
        self.web_config = Some(Arc::new(web_config));
        self
    }

    /// Returns the current access configuration.
    pub(super) async fn access(&self) -> Arc<Access> {
        match &self.web_config {
            Some(web_config) => web_config.access().await,
            None => Arc::default(),
        }
    }

    /// Authenticates a request and responds to it.
    pub(super) async fn respond<B>(
        &self,
        request: Request<B>,
        from: IpAddr,
        handshake: &Handshake,
        slot: &ConnectionSlot,
    ) -> Result<HttpResponse, StaleTls> {
        let access = self.access().await;
        if !handshake.admits(&access) {
            return Err(StaleTls);
        }
        let is_outdated = !handshake.is_current(&access);
        // RFC 9112, section 3.2. Routes do not depend on the host, but a proxy in front of biolat may.
        if request.version() == Version::HTTP_11 && request.headers().get_all(HOST).iter().count() != 1 {
            return Ok(text(
                StatusCode::BAD_REQUEST,
                "bad request: HTTP/1.1 requires exactly one Host header\n",
            ));
        }
        let outcome = match &self.web_config {
            Some(web_config) => web_config.authenticate(&access, request.headers(), from).await,
            None => AuthOutcome::Allowed,
        };
        let mut response = match outcome {
            AuthOutcome::Allowed => {
                let call = Call {
                    service: self,
                    method: request.method(),
                    path: request.uri().path(),
                    query: request.uri().query().unwrap_or_default(),
                    headers: request.headers(),
                    admission: Admission::new(self.web_config.clone(), Arc::clone(&access), is_outdated),
                    slot,
                };
                respond(&call).await
            }
            AuthOutcome::Unauthorized => unauthorized(),
            AuthOutcome::Throttled => throttled(),
        };
        if is_outdated {
            set(&mut response, CONNECTION, "close");
        }
        for (name, value) in &access.headers {
            // The page sets its own Content-Security-Policy; one from the web config would block its script or allow too much.
            response.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
        Ok(response)
    }
}

fn unauthorized() -> HttpResponse {
    let mut response = text(StatusCode::UNAUTHORIZED, "unauthorized: user name and password required\n");
    set(&mut response, WWW_AUTHENTICATE, "Basic realm=\"biolat\", charset=\"UTF-8\"");
    response
}

fn throttled() -> HttpResponse {
    retry_later(
        StatusCode::TOO_MANY_REQUESTS,
        "too many requests: too many passwords from this address are being checked\n",
        "1",
    )
}
