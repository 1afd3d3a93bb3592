//! What stands before every route: who may come in, and what every answer carries.

use std::{fmt, net::IpAddr, sync::Arc};

use hyper::{Request, StatusCode, header::WWW_AUTHENTICATE};
use tokio_rustls::rustls::ServerConfig;

use super::{
    Service,
    connection_slots::ConnectionSlot,
    responses::{HttpResponse, later, set, text},
};
use crate::web_config::{Access, AuthOutcome, WebConfig};

/// A request on a connection that was made before the TLS changed. It ends without an answer: who may still come in
/// makes another connection and asks again, as every client does when an idle one has been closed.
#[derive(Debug)]
pub(super) struct StaleTls;

impl fmt::Display for StaleTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection is older than what it has to fulfil")
    }
}

impl std::error::Error for StaleTls {}

/// What a request was let in by.
pub(super) struct Admission {
    guard: Option<Arc<WebConfig>>,
    access: Arc<Access>,
}

impl Admission {
    /// Whether nothing has changed since. If something has, whoever may still come in has to show it.
    pub(super) async fn holds(&self) -> bool {
        match &self.guard {
            Some(guard) => Arc::ptr_eq(&guard.access().await, &self.access),
            None => true,
        }
    }
}

impl Service {
    /// Lets in whom this allows, and serves as it says.
    #[must_use]
    pub fn with_web_config(mut self, web_config: WebConfig) -> Self {
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

    /// Answers a request from this address, on a connection with this TLS and slot, if it may come in.
    pub(super) async fn answer_to<B>(
        &self,
        request: Request<B>,
        from: IpAddr,
        tls: Option<&Arc<ServerConfig>>,
        slot: &ConnectionSlot,
    ) -> Result<HttpResponse, StaleTls> {
        let access = self.access().await;
        if access.tls.as_ref().map(Arc::as_ptr) != tls.map(Arc::as_ptr) {
            return Err(StaleTls);
        }
        let verdict = match &self.guard {
            Some(guard) => guard.admits(&access, request.headers(), from).await,
            None => AuthOutcome::Allowed,
        };
        let mut answer = match verdict {
            AuthOutcome::Allowed => {
                let admission = Admission { guard: self.guard.clone(), access: Arc::clone(&access) };
                self.answer(&request, admission, slot).await
            }
            AuthOutcome::Unauthorized => unauthorized(),
            AuthOutcome::Throttled => busy(),
        };
        for (name, value) in &access.headers {
            // The page has a policy of its own: any other would shut its script out, or let others in.
            answer.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
        Ok(answer)
    }
}

fn unauthorized() -> HttpResponse {
    let mut answer =
        text(StatusCode::UNAUTHORIZED, "unauthorized: a user and the right password are wanted\n");
    set(&mut answer, WWW_AUTHENTICATE, "Basic realm=\"biolat\", charset=\"UTF-8\"");
    answer
}

fn busy() -> HttpResponse {
    later(StatusCode::TOO_MANY_REQUESTS, "too many passwords at once from this address\n", "1")
}
