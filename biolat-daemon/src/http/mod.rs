//! The HTTP server. It never reads a map: every answer comes from the latest snapshot.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | the figures, in the format that `Accept` asks for, compressed if asked; 503 before the first pass |
//! | `/-/healthy` | 200 while the process lives |
//! | `/-/ready` | 200 once there are figures, 503 before |
//! | `/` | a page for people |
//!
//! `GET` and `HEAD` alone; anything else is 405. With passwords, every path wants one.

mod bodies;
mod connections;
mod guard;
pub mod negotiate;
mod page;
mod places;
mod stream;

use std::{convert::Infallible, net::IpAddr, sync::Arc};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes},
    header::{ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY},
};
use tokio::sync::watch;

use crate::{expose::Shape, snapshot::Snapshot, web_config::WebConfig};
use bodies::Latest;

pub use connections::{Limits, serve};

type Answer = Response<Full<Bytes>>;

/// What the routes need.
#[derive(Clone)]
pub struct Service {
    latest: Arc<Latest>,
    guard: Option<Arc<WebConfig>>,
}

impl Service {
    /// Serves the latest of these snapshots, with histograms of this shape.
    #[must_use]
    pub fn new(snapshots: watch::Receiver<Option<Arc<Snapshot>>>, shape: Shape) -> Self {
        Self { latest: Arc::new(Latest::new(snapshots, shape)), guard: None }
    }

    /// Answers a request. Bodies of requests are not read.
    pub async fn answer<B: Body>(&self, request: Request<B>) -> Result<Answer, Infallible> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served here\n");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(refusal);
        }
        Ok(match request.uri().path() {
            "/metrics" => self.metrics(&request).await,
            "/-/healthy" => text(StatusCode::OK, "healthy\n"),
            "/-/ready" if self.latest.snapshot().is_some() => text(StatusCode::OK, "ready\n"),
            "/-/ready" => not_ready(),
            "/" => page(self.latest.snapshot().as_deref()),
            _ => text(StatusCode::NOT_FOUND, "not found: there is /metrics, /-/healthy, /-/ready and /\n"),
        })
    }

    async fn metrics<B>(&self, request: &Request<B>) -> Answer {
        let format = negotiate::format(request.headers());
        let gzip = negotiate::gzip(request.headers());
        let latest = Arc::clone(&self.latest);
        let body = match tokio::task::spawn_blocking(move || latest.body(format, gzip)).await {
            Ok(Some(body)) => body,
            Ok(None) => return not_ready(),
            Err(_) => return text(StatusCode::INTERNAL_SERVER_ERROR, "the figures could not be encoded\n"),
        };
        let mut answer = Response::new(Full::new(body));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
        headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        if gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }
}

/// Whoever has one IPv6 address has the 2^64 beside it.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        four => four,
    }
}

fn not_ready() -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, "not ready: no pass of the collector has succeeded yet\n")
}

fn text(status: StatusCode, body: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

fn page(snapshot: Option<&Snapshot>) -> Answer {
    let mut answer = Response::new(Full::new(page::render(snapshot).into()));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        "content-security-policy",
        HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'"),
    );
    answer
}
