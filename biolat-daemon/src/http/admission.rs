//! What stands before every route: who may come in, and what every answer carries.

use std::{fmt, net::IpAddr, sync::Arc};

use hyper::{Request, StatusCode, header::WWW_AUTHENTICATE};
use tokio_rustls::rustls::ServerConfig;

use super::{
    Service,
    connection_slots::Place,
    responses::{Answer, later, set, text},
};
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

/// What a request was let in by.
pub(super) struct Leave {
    guard: Option<Arc<WebConfig>>,
    access: Arc<Access>,
}

impl Leave {
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

    /// Answers a request from this address, on a connection with this TLS and place, if it may come in.
    pub(super) async fn answer_to<B>(
        &self,
        request: Request<B>,
        from: IpAddr,
        tls: Option<&Arc<ServerConfig>>,
        place: &Place,
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
                let leave = Leave { guard: self.guard.clone(), access: Arc::clone(&access) };
                self.answer(&request, leave, place).await
            }
            Verdict::Stranger => unauthorized(),
            Verdict::Busy => busy(),
        };
        for (name, value) in &access.headers {
            // The page has a policy of its own: any other would shut its script out, or let others in.
            answer.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
        Ok(answer)
    }
}

fn unauthorized() -> Answer {
    let mut answer =
        text(StatusCode::UNAUTHORIZED, "unauthorized: a user and the right password are wanted\n");
    set(&mut answer, WWW_AUTHENTICATE, "Basic realm=\"biolat\", charset=\"UTF-8\"");
    answer
}

fn busy() -> Answer {
    later(StatusCode::TOO_MANY_REQUESTS, "too many passwords at once from this address\n", "1")
}
