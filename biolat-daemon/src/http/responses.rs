//! The response type, and helpers for common responses.

use std::io;

use http_body_util::{Either, Full, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
};

/// A whole body or a stream.
pub(super) type HttpResponse = Response<Either<Full<Bytes>, UnsyncBoxBody<Bytes, io::Error>>>;

pub(super) fn full(body: impl Into<Bytes>, content_type: &'static str, gzip: bool) -> HttpResponse {
    let mut response = untyped(body);
    set(&mut response, CONTENT_TYPE, content_type);
    if gzip {
        set(&mut response, CONTENT_ENCODING, "gzip");
    }
    response
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = full(body, "text/plain; charset=utf-8", false);
    *response.status_mut() = status;
    response
}

pub(super) fn not_ready() -> HttpResponse {
    text(StatusCode::SERVICE_UNAVAILABLE, "not ready: no collection has succeeded yet\n")
}

pub(super) fn not_modified() -> HttpResponse {
    let mut response = untyped(Bytes::new());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}

/// Asks the client to retry after this many seconds.
pub(super) fn retry_later(status: StatusCode, body: &'static str, seconds: &'static str) -> HttpResponse {
    let mut response = text(status, body);
    set(&mut response, RETRY_AFTER, seconds);
    response
}

/// Responds that the server is busy, and closes the connection: further pipelined requests would take time from other clients.
pub(super) fn busy(body: &'static str, seconds: &'static str) -> HttpResponse {
    let mut response = retry_later(StatusCode::SERVICE_UNAVAILABLE, body, seconds);
    set(&mut response, CONNECTION, "close");
    response
}

pub(super) fn set(response: &mut HttpResponse, name: HeaderName, value: &'static str) {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
}

fn untyped(body: impl Into<Bytes>) -> HttpResponse {
    Response::new(Either::Left(Full::new(body.into())))
}
