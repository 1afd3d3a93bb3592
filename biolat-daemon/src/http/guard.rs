//! What stands before every route: who may come in, and what every answer carries.

use std::{convert::Infallible, net::IpAddr, sync::Arc};

use hyper::{
    Request, StatusCode,
    body::Body,
    header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};

use super::{Answer, Service, text};
use crate::web_config::{Access, Verdict, WebConfig};

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

    /// Answers a request from this address, if it may come in.
    pub(super) async fn answer_to<B: Body>(
        &self,
        request: Request<B>,
        from: IpAddr,
    ) -> Result<Answer, Infallible> {
        let Some(guard) = &self.guard else { return self.answer(request).await };
        let access = guard.access().await;
        let mut answer = match guard.admits(&access, request.headers(), from).await {
            Verdict::Welcome => self.answer(request).await?,
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
