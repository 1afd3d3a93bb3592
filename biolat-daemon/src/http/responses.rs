//! Answers: what they are made of, and those that say why there is no other.

use http_body_util::{Either, Full};
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
};

use super::events::EventStream;

/// A whole body, or a stream of events.
pub(super) type HttpResponse = Response<Either<Full<Bytes>, EventStream>>;

pub(super) fn whole(body: Bytes, gzip: bool) -> HttpResponse {
    let mut answer = Response::new(Either::Left(Full::new(body)));
    if gzip {
        set(&mut answer, CONTENT_ENCODING, "gzip");
    }
    answer
}

pub(super) fn text(status: StatusCode, body: &'static str) -> HttpResponse {
    let mut answer = whole(Bytes::from_static(body.as_bytes()), false);
    *answer.status_mut() = status;
    set(&mut answer, CONTENT_TYPE, "text/plain; charset=utf-8");
    answer
}

pub(super) fn not_ready() -> HttpResponse {
    text(StatusCode::SERVICE_UNAVAILABLE, "not ready: no pass of the collector has succeeded yet\n")
}

pub(super) fn not_modified() -> HttpResponse {
    let mut answer = whole(Bytes::new(), false);
    *answer.status_mut() = StatusCode::NOT_MODIFIED;
    answer
}

/// So many seconds later it may be welcome.
pub(super) fn later(status: StatusCode, body: &'static str, seconds: &'static str) -> HttpResponse {
    let mut answer = text(status, body);
    set(&mut answer, RETRY_AFTER, seconds);
    answer
}

pub(super) fn set(answer: &mut HttpResponse, name: HeaderName, value: &'static str) {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
}
