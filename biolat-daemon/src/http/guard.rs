//! What stands before every route: who may come in, and what every answer carries.

use std::{fmt, net::IpAddr, sync::Arc};

use hyper::{
    Request, StatusCode,
    body::Body,
    header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};

use tokio_rustls::rustls::ServerConfig;

use super::{Answer, Service, text};
use crate::web_config::{Access, Verdict, WebConfig};

/// A request on a connection that was made before the TLS changed. It ends without an answer: who may still come in
/// makes another connection and asks again, as every client does when an idle one has been closed.
#[derive(Debug)]
pub(super) struct Outdated;

impl fmt::Display for Outdated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection is older than what it has to fulfil")
    }
}

impl std::error::Error for Outdated {}

impl Service {
    /// Lets in whom this allows, and serves as it says.
    #[must_use]
    pub fn guarded_by(mut self, web_config: WebConfig) -> Self {
        self.guard = Some(Arc::new(web_config));
        self
    }

    /// What holds for a connection or a request now.
    pub(super) async fn access(&self) -> Arc<Access> {
        match &self.guard {
            Some(guard) => guard.access().await,
            None => Arc::default(),
        }
    }

    /// Answers a request from this address, on a connection with this TLS, if it may come in.
    pub(super) async fn answer_to<B: Body>(
        &self,
        request: Request<B>,
        from: IpAddr,
        tls: Option<&Arc<ServerConfig>>,
    ) -> Result<Answer, Outdated> {
        let access = self.access().await;
        if access.tls.as_ref().map(Arc::as_ptr) != tls.map(Arc::as_ptr) {
            return Err(Outdated);
        }
        let verdict = match &self.guard {
            Some(guard) => guard.admits(&access, request.headers(), from).await,
            None => Verdict::Welcome,
        };
        let mut answer = match verdict {
            Verdict::Welcome => {
                let Ok(answer) = self.answer(request).await;
                answer
            }
            Verdict::Stranger => unauthorized(),
            Verdict::Busy => busy(),
        };
        for (name, value) in &access.headers {
            answer.headers_mut().insert(name.clone(), value.clone());
        }
        Ok(answer)
    }
}

fn unauthorized() -> Answer {
    let mut answer =
        text(StatusCode::UNAUTHORIZED, "unauthorized: a user and the right password are wanted\n");
    let scheme = HeaderValue::from_static("Basic realm=\"biolat\", charset=\"UTF-8\"");
    answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    answer
}

fn busy() -> Answer {
    let mut answer = text(StatusCode::TOO_MANY_REQUESTS, "too many passwords at once from this address\n");
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}
