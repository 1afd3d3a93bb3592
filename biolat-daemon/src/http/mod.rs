//! The HTTP server. It never reads a map: every answer comes from the latest snapshot.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | the figures, in the format that `Accept` asks for, compressed if asked; 503 before the first pass |
//! | `/api/v1/snapshot` | the same as JSON (`docs/api.md`), compressed if asked; 304 if `If-None-Match` names it; 503 before the first pass |
//! | `/api/v1/events` | a stream of events, one for each pass; 503 if there are many already, 404 with `--no-ui` |
//! | `/-/healthy` | 200 while the process lives |
//! | `/-/ready` | 200 once there are figures, 503 before |
//! | `/` | a page for people |
//!
//! `GET` and `HEAD` alone; anything else is 405. With passwords, every path wants one.

mod admission;
mod bodies;
mod conditional;
mod connection_slots;
mod connections;
mod events;
pub mod negotiate;
mod page;
mod responses;
mod tracked_stream;

use std::{sync::Arc, time::Duration};

use http_body_util::Either;
use hyper::{
    Method, Request, Response, StatusCode,
    header::{
        ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName,
        HeaderValue, VARY,
    },
};
use tokio::sync::watch;

use crate::{expose::HistogramFormat, snapshot::Snapshot, web_config::WebConfig};
use admission::Admission;
use bodies::{BodyCache, BodyKind};
use connection_slots::ConnectionSlot;
use events::EventStream;
use responses::{HttpResponse, later, not_modified, not_ready, set, text, whole};

pub use connections::{Limits, serve};

/// What is served, beside the figures themselves.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// What histograms look like in `/metrics`.
    pub histograms: HistogramFormat,
    /// The host's name.
    pub host: String,
    /// How often there are new figures.
    pub interval: Duration,
    /// Whether the page is live, and passes are told as they end.
    pub live: bool,
}

/// What the routes need.
#[derive(Clone)]
pub struct Service {
    latest: Arc<BodyCache>,
    live: bool,
    guard: Option<Arc<WebConfig>>,
}

impl Service {
    /// Serves the latest of these snapshots.
    #[must_use]
    pub fn new(snapshots: watch::Receiver<Option<Arc<Snapshot>>>, config: ServeConfig) -> Self {
        let live = config.live;
        Self { latest: Arc::new(BodyCache::new(snapshots, config)), live, guard: None }
    }

    /// Answers a request that is let in. Bodies of requests are not read.
    async fn answer<B>(
        &self,
        request: &Request<B>,
        admission: Admission,
        slot: &ConnectionSlot,
    ) -> HttpResponse {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served here\n");
            set(&mut refusal, ALLOW, "GET, HEAD");
            return refusal;
        }
        let headers = request.headers();
        match request.uri().path() {
            "/metrics" => self.metrics(headers).await,
            "/api/v1/snapshot" => self.snapshot(headers).await,
            "/api/v1/events" if !self.live => text(
                StatusCode::NOT_FOUND,
                "not found: --no-ui turns the events off; ask for /api/v1/snapshot now and then\n",
            ),
            "/api/v1/events" => self.events(request.method(), admission, slot),
            "/-/healthy" => text(StatusCode::OK, "healthy\n"),
            "/-/ready" if self.latest.snapshot().is_some() => text(StatusCode::OK, "ready\n"),
            "/-/ready" => not_ready(),
            "/" => self.page(headers).await,
            path => text(StatusCode::NOT_FOUND, self.there_is(path)),
        }
    }

    /// In slot of what was asked for.
    fn there_is(&self, path: &str) -> &'static str {
        match (path == "/api" || path.starts_with("/api/"), self.live) {
            (true, true) => "not found: there is /api/v1/snapshot and /api/v1/events\n",
            (true, false) => "not found: there is /api/v1/snapshot\n",
            (false, true) => {
                "not found: there is /metrics, /api/v1/snapshot, /api/v1/events, /-/healthy, /-/ready and /\n"
            }
            (false, false) => "not found: there is /metrics, /api/v1/snapshot, /-/healthy, /-/ready and /\n",
        }
    }

    async fn metrics(&self, headers: &HeaderMap) -> HttpResponse {
        let format = negotiate::format(headers);
        match self.body(BodyKind::Metrics(format), negotiate::gzip(headers)).await {
            Ok((_, mut answer)) => {
                set(&mut answer, CONTENT_TYPE, format.content_type());
                set(&mut answer, VARY, "Accept, Accept-Encoding");
                answer
            }
            Err(refusal) => refusal,
        }
    }

    async fn snapshot(&self, headers: &HeaderMap) -> HttpResponse {
        let mut answer = match self.latest.snapshot().map(|snapshot| conditional::tag(&snapshot)) {
            None => return not_ready(),
            // Not even encoded.
            Some(tag) if conditional::has(headers, &tag) => tagged(not_modified(), &tag),
            Some(_) => match self.body(BodyKind::Json, negotiate::gzip(headers)).await {
                Ok((snapshot, answer)) => tagged(answer, &conditional::tag(&snapshot)),
                Err(refusal) => return refusal,
            },
        };
        set(&mut answer, CONTENT_TYPE, "application/json");
        set(&mut answer, VARY, "Accept-Encoding");
        set(&mut answer, CACHE_CONTROL, "no-cache");
        answer
    }

    /// The latest snapshot, and an answer that has it as its body.
    async fn body(&self, kind: BodyKind, gzip: bool) -> Result<(Arc<Snapshot>, HttpResponse), HttpResponse> {
        let latest = Arc::clone(&self.latest);
        let (snapshot, body) = encoding(move || latest.body(kind, gzip)).await?.ok_or_else(not_ready)?;
        Ok((snapshot, whole(body, gzip)))
    }

    fn events(&self, method: &Method, admission: Admission, slot: &ConnectionSlot) -> HttpResponse {
        if method == Method::GET && !slot.become_stream() {
            let mut refusal = later(
                StatusCode::SERVICE_UNAVAILABLE,
                "as many streams of events as there may be: ask for /api/v1/snapshot now and then\n",
                "10",
            );
            set(&mut refusal, CONNECTION, "close");
            return refusal;
        }
        let mut answer =
            Response::new(Either::Right(EventStream::new(self.latest.snapshots(), admission, slot)));
        set(&mut answer, CONTENT_TYPE, "text/event-stream");
        set(&mut answer, CACHE_CONTROL, "no-store");
        // A stream's slot is a stream's to its end.
        set(&mut answer, CONNECTION, "close");
        // nginx would keep events until there are some kilobytes of them.
        set(&mut answer, HeaderName::from_static("x-accel-buffering"), "no");
        answer
    }

    async fn page(&self, headers: &HeaderMap) -> HttpResponse {
        let live = self.live;
        let mut answer = match self.latest.snapshot() {
            Some(_) => match self.body(BodyKind::Page, negotiate::gzip(headers)).await {
                Ok((_, answer)) => answer,
                Err(refusal) => return refusal,
            },
            None => whole(page::render(None, live).into(), false),
        };
        set(&mut answer, CONTENT_TYPE, "text/html; charset=utf-8");
        set(&mut answer, VARY, "Accept-Encoding");
        set(&mut answer, CACHE_CONTROL, "no-store");
        set(&mut answer, CONTENT_SECURITY_POLICY, page::content_security_policy(live));
        answer
    }
}

/// Away from the runtime's own threads.
async fn encoding<T: Send + 'static>(encode: impl FnOnce() -> T + Send + 'static) -> Result<T, HttpResponse> {
    let failed = |_| text(StatusCode::INTERNAL_SERVER_ERROR, "the figures could not be encoded\n");
    tokio::task::spawn_blocking(encode).await.map_err(failed)
}

fn tagged(mut answer: HttpResponse, tag: &str) -> HttpResponse {
    if let Ok(tag) = HeaderValue::from_str(tag) {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer
}
