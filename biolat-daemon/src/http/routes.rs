//! The table of all endpoints. To add an endpoint, add one entry and its handler; responses to unknown paths, the page's links
//! and the table in `docs/api.md` are generated from it.
//!
//! Credentials are not checked here: `authentication` checks them for every path, before routes are looked up.

use std::{pin::Pin, sync::Arc, time::Duration};

use biolat_history::SharedHistory;
use biolat_model::{api::ApiSlowLog, snapshot::Snapshot};
use http_body_util::{Either, combinators::UnsyncBoxBody};
use hyper::{
    Method, Response, StatusCode,
    body::Bytes,
    header::{
        ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName,
        HeaderValue, VARY,
    },
};

use super::{
    ServeConfig, Service,
    admission::Admission,
    bodies::{BodyAddress, BodyCache, Representation},
    conditional,
    connection_slots::ConnectionSlot,
    events::EventStream,
    history as past, negotiate, page,
    responses::{HttpResponse, busy, full, not_modified, not_ready, set, text},
};
use crate::{
    expose::{self, ServerState},
    web_config::WebConfig,
};

/// One endpoint.
pub(super) struct Route {
    pub(super) path: &'static str,
    methods: &'static [Method],
    available: Available,
    /// A short description of the response.
    pub(super) description: &'static str,
    handler: Handler,
}

/// When a route exists.
enum Available {
    Always,
    /// Only with a collector, not for a saved history.
    Live,
    /// Like `Live`, but not with `--no-ui`: then the response is 404 with this text.
    LiveWithPage(&'static str),
}

impl Route {
    /// Returns why the route does not exist; `None` if it does.
    fn missing(&self, config: &ServeConfig) -> Option<&'static str> {
        match self.available {
            Available::Always => None,
            _ if config.saved.is_some() => Some("not found: this is a saved history, not a daemon\n"),
            Available::Live => None,
            Available::LiveWithPage(otherwise) => (!config.live).then_some(otherwise),
        }
    }
}

type Handler = for<'a> fn(&'a Call<'a>) -> Pin<Box<dyn Future<Output = HttpResponse> + Send + 'a>>;

const READ_ONLY: &[Method] = &[Method::GET, Method::HEAD];

pub(super) static ROUTES: &[Route] = &[
    Route {
        path: "/metrics",
        methods: READ_ONLY,
        available: Available::Live,
        description: "metrics for Prometheus, in the format selected by Accept; 503 before the first collection",
        handler: |call| Box::pin(metrics(call)),
    },
    Route {
        path: "/api/v1/snapshot",
        methods: READ_ONLY,
        available: Available::Always,
        description: "the latest values as JSON; 304 if If-None-Match names the latest snapshot; 503 before the first \
                      collection",
        handler: |call| Box::pin(snapshot(call)),
    },
    Route {
        path: "/api/v1/slow",
        methods: READ_ONLY,
        available: Available::Always,
        description: "the latest 1,000 slow and failed I/Os as JSON; 304 and 503 as above",
        handler: |call| Box::pin(slow(call)),
    },
    Route {
        path: "/api/v1/history",
        methods: READ_ONLY,
        available: Available::Always,
        description: "the intervals of the last day as JSON; 400 for an invalid range; 503 if too many clients are reading \
                      it; 404 with --history off",
        handler: |call| Box::pin(history(call)),
    },
    Route {
        path: "/api/v1/events",
        methods: READ_ONLY,
        available: Available::LiveWithPage(
            "not found: --no-ui disables the event stream; poll /api/v1/snapshot instead\n",
        ),
        description: "a stream with one event per collection; 503 if there are too many streams; 404 with --no-ui",
        handler: |call| Box::pin(events(call)),
    },
    Route {
        path: "/-/healthy",
        methods: READ_ONLY,
        available: Available::Live,
        description: "200 while collections succeed or wait for a run of the probe; 503 if none has succeeded for 60 s \
                      or 3 intervals, whichever is longer",
        handler: |call| Box::pin(healthy(call)),
    },
    Route {
        path: "/-/ready",
        methods: READ_ONLY,
        available: Available::Live,
        description: "200 if there is a snapshot and collections succeed; otherwise 503, including when one has been \
                      waiting that long",
        handler: |call| Box::pin(ready(call)),
    },
    Route {
        path: "/",
        methods: READ_ONLY,
        available: Available::Always,
        description: "the page for browsers",
        handler: |call| Box::pin(index(call)),
    },
];

/// Returns the routes that exist with this configuration.
pub(super) fn available(config: &ServeConfig) -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(|route| route.missing(config).is_none())
}

/// Returns the path and description of each available route except `/`, for the page.
pub(super) fn links(config: &ServeConfig) -> impl Iterator<Item = (&'static str, &'static str)> {
    available(config).filter(|route| route.path != "/").map(|route| (route.path, route.description))
}

/// A request that has been admitted.
pub(super) struct Call<'a> {
    pub(super) service: &'a Service,
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    /// Without the question mark; empty if there is none.
    pub(super) query: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) admission: Admission,
    pub(super) slot: &'a ConnectionSlot,
}

/// Responds to a request. Request bodies are not read.
pub(super) async fn respond(call: &Call<'_>) -> HttpResponse {
    let route = ROUTES.iter().find(|route| route.path == call.path);
    let methods = route.map_or(READ_ONLY, |route| route.methods);
    if !methods.contains(call.method) {
        return method_not_allowed(methods);
    }
    let Some(route) = route else { return not_found(call) };
    match route.missing(call.service.bodies.config()) {
        Some(why) => text(StatusCode::NOT_FOUND, why),
        None => (route.handler)(call).await,
    }
}

fn method_not_allowed(methods: &[Method]) -> HttpResponse {
    let names: Vec<_> = methods.iter().map(Method::as_str).collect();
    let mut response =
        text(StatusCode::METHOD_NOT_ALLOWED, format!("method not allowed: use {}\n", names.join(" or ")));
    if let Ok(allow) = HeaderValue::from_str(&names.join(", ")) {
        response.headers_mut().insert(ALLOW, allow);
    }
    response
}

/// Responds with 404 and lists the available paths, or only the API's paths if the requested path is below `/api`.
fn not_found(call: &Call<'_>) -> HttpResponse {
    let is_api = call.path == "/api" || call.path.starts_with("/api/");
    let routes =
        available(call.service.bodies.config()).filter(|route| !is_api || route.path.starts_with("/api/"));
    let paths: Vec<_> = routes.map(|route| route.path).collect();
    text(StatusCode::NOT_FOUND, format!("not found; available paths: {}\n", paths.join(", ")))
}

async fn metrics(call: &Call<'_>) -> HttpResponse {
    let format = negotiate::format(call.headers);
    let web_config = call.service.web_config.as_deref();
    let certificate_expires = web_config.and_then(WebConfig::certificate_expires);
    let history_bytes = call.service.history.as_ref().map(SharedHistory::bytes);
    let encode = move |snapshot: &Snapshot, config: &ServeConfig| {
        let (per_cpu, created) = (config.per_cpu, config.created);
        let server = ServerState { certificate_expires, per_cpu, history_bytes, created };
        expose::encode(snapshot, server, config.histograms, format)
    };
    match body(call, ("/metrics", format.content_type()), encode).await {
        Ok((_, mut response)) => {
            call.service.scrapes.add();
            set(&mut response, VARY, "Accept, Accept-Encoding");
            response
        }
        Err(error) => error,
    }
}

async fn snapshot(call: &Call<'_>) -> HttpResponse {
    json(call, "/api/v1/snapshot", |snapshot, _| serde_json::to_vec(snapshot)).await
}

async fn slow(call: &Call<'_>) -> HttpResponse {
    json(call, "/api/v1/slow", |snapshot, config| serde_json::to_vec(&ApiSlowLog::of(snapshot, config.slow)))
        .await
}

/// Responds with JSON from the latest snapshot, or with 304 if the client already has it.
async fn json(
    call: &Call<'_>,
    path: &'static str,
    to_json: fn(&Snapshot, &ServeConfig) -> serde_json::Result<Vec<u8>>,
) -> HttpResponse {
    const JSON: &str = "application/json";
    // All keys are strings, and writing to memory cannot fail.
    let encode =
        move |snapshot: &Snapshot, config: &ServeConfig| to_json(snapshot, config).unwrap_or_default();
    let mut response = match call.service.bodies.snapshot().map(|snapshot| conditional::etag(&snapshot)) {
        None => return not_ready(),
        Some(etag) if conditional::matches(call.headers, &etag) => {
            let mut response = with_etag(not_modified(), &etag);
            set(&mut response, CONTENT_TYPE, JSON);
            set(&mut response, VARY, "Accept-Encoding");
            response
        }
        Some(_) => match body(call, (path, JSON), encode).await {
            Ok((snapshot, response)) => with_etag(response, &conditional::etag(&snapshot)),
            Err(error) => return error,
        },
    };
    set(&mut response, CACHE_CONTROL, "no-cache");
    response
}

async fn events(call: &Call<'_>) -> HttpResponse {
    if call.method == Method::GET && !call.slot.become_stream() {
        return busy("too many event streams: poll /api/v1/snapshot instead\n", "10");
    }
    let stream = EventStream::new(call.service.bodies.snapshots(), call.admission.clone(), call.slot);
    let mut response = Response::new(Either::Right(UnsyncBoxBody::new(stream)));
    set(&mut response, CONTENT_TYPE, "text/event-stream");
    set(&mut response, CACHE_CONTROL, "no-store");
    // The connection cannot be reused after the stream.
    set(&mut response, CONNECTION, "close");
    // nginx would buffer several kilobytes of events.
    set(&mut response, HeaderName::from_static("x-accel-buffering"), "no");
    response
}

async fn history(call: &Call<'_>) -> HttpResponse {
    past::respond(call.service, call.slot, call.query, call.headers)
}

/// Responds with 503 if a restart could help.
async fn healthy(call: &Call<'_>) -> HttpResponse {
    let body = match Figures::of(call) {
        Figures::Current => "healthy\n".to_owned(),
        Figures::Late(why) => format!("healthy, but {why}"),
        Figures::Failing(why) => return text(StatusCode::SERVICE_UNAVAILABLE, why),
    };
    text(StatusCode::OK, body)
}

/// Responds with 200 if the figures are current.
async fn ready(call: &Call<'_>) -> HttpResponse {
    if call.service.bodies.snapshot().is_none() {
        return not_ready();
    }
    let why = match Figures::of(call) {
        Figures::Current => return text(StatusCode::OK, "ready\n"),
        Figures::Late(why) => format!("not ready: {why}"),
        Figures::Failing(why) => why,
    };
    text(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// Figures are old if no collection has succeeded for this long or for three intervals, whichever is longer.
const OLD_AFTER: Duration = Duration::from_secs(60);

/// Whether the figures are current and, if not, why.
enum Figures {
    Current,
    /// A collection is waiting for probe runs to finish.
    Late(String),
    Failing(String),
}

impl Figures {
    fn of(call: &Call<'_>) -> Self {
        let bodies = &call.service.bodies;
        let (age, old_after) = (bodies.age(), OLD_AFTER.max(3 * bodies.interval()));
        let seconds = age.as_secs();
        if age < old_after {
            Self::Current
        } else if bodies.stalled() < old_after {
            Self::Late(format!(
                "the figures are {seconds} s old: a collection waits for a run of the probe; see the log\n"
            ))
        } else {
            Self::Failing(format!("collections fail: none has succeeded for {seconds} s; see the log\n"))
        }
    }
}

async fn index(call: &Call<'_>) -> HttpResponse {
    const HTML: &str = "text/html; charset=utf-8";
    let config = call.service.bodies.config();
    let mut response = match call.service.bodies.snapshot() {
        Some(_) => {
            let day = match call.service.day_table.clone() {
                Some(table) => table.html().await,
                None => Arc::default(),
            };
            let encode = move |snapshot: &Snapshot, config: &ServeConfig| {
                page::render(Some(snapshot), &day, config, links(config)).into()
            };
            match body(call, ("/", HTML), encode).await {
                Ok((_, response)) => response,
                Err(error) => return error,
            }
        }
        None => full(page::render(None, "", config, links(config)), HTML, false),
    };
    set(&mut response, VARY, "Accept-Encoding");
    set(&mut response, CACHE_CONTROL, "no-store");
    set(&mut response, CONTENT_SECURITY_POLICY, page::content_security_policy(config.live));
    response
}

/// Returns the latest snapshot, and a response with its body. The body is encoded once per snapshot, on a blocking thread.
async fn body(
    call: &Call<'_>,
    representation: Representation,
    encode: impl FnOnce(&Snapshot, &ServeConfig) -> Vec<u8> + Send + 'static,
) -> Result<(Arc<Snapshot>, HttpResponse), HttpResponse> {
    let (bodies, gzip) = (Arc::clone(&call.service.bodies), negotiate::gzip(call.headers));
    let found = bodies.encoded(representation, gzip);
    let (snapshot, body) = match found {
        Some(found) => found,
        None => encoded(call, bodies, representation, gzip, encode).await?,
    };
    call.slot.set_body(BodyAddress::of(&body));
    let mut response = full(body, representation.1, gzip);
    set(&mut response, VARY, "Accept-Encoding");
    Ok((snapshot, response))
}

async fn encoded(
    call: &Call<'_>,
    bodies: Arc<BodyCache>,
    representation: Representation,
    gzip: bool,
    encode: impl FnOnce(&Snapshot, &ServeConfig) -> Vec<u8> + Send + 'static,
) -> Result<(Arc<Snapshot>, Bytes), HttpResponse> {
    // The semaphore is never closed.
    let permit = Arc::clone(&bodies.encoder).acquire_owned().await;
    let close_readers = |latest: &[BodyAddress], bytes| call.slot.close_readers(latest, bytes);
    if !bodies.wait_for_room(call.slot.limits().body_bytes, close_readers).await {
        const TEXT: &str = "too many clients read slowly\n";
        return Err(busy(TEXT, "1"));
    }
    let encoded = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        bodies.body(representation, gzip, encode)
    })
    .await;
    let failed = |_| text(StatusCode::INTERNAL_SERVER_ERROR, "the snapshot could not be encoded\n");
    encoded.map_err(failed)?.ok_or_else(not_ready)
}

fn with_etag(mut response: HttpResponse, etag: &str) -> HttpResponse {
    if let Ok(etag) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use biolat_testing::generated_docs;

    use super::{ROUTES, available};
    use crate::http::serve_config::ServeConfig;

    #[test]
    fn paths_are_unique() {
        let paths: BTreeSet<_> = ROUTES.iter().map(|route| route.path).collect();
        assert_eq!(paths.len(), ROUTES.len());
        assert!(paths.iter().all(|path| path.starts_with('/') && !path.contains('?')));
    }

    #[test]
    fn no_ui_disables_events_only() {
        let without_page = ServeConfig { live: false, ..ServeConfig::default() };
        let gone = ROUTES.iter().filter(|route| route.missing(&without_page).is_some());
        assert_eq!(gone.map(|route| route.path).collect::<Vec<_>>(), ["/api/v1/events"]);
        assert_eq!(available(&ServeConfig::default()).count(), ROUTES.len());
    }

    #[test]
    fn endpoints_are_documented() {
        let row = |route: &super::Route| {
            let methods: Vec<_> = route.methods.iter().map(|method| format!("`{method}`")).collect();
            format!("| `{}` | {} | {} |\n", route.path, methods.join(", "), route.description)
        };
        let rows: String = ROUTES.iter().map(row).collect();
        let table = format!("| path | methods | response |\n|---|---|---|\n{rows}");
        generated_docs::check("docs/api.md", "endpoints", &table);
    }
}
