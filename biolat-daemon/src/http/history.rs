//! `/api/v1/history`: serves the intervals of a requested range, encoded as the client reads them.

mod body;
mod query;

use std::{sync::Arc, time::SystemTime};

use biolat_model::{api::ApiHistory, text::time::unix_seconds};
use http_body_util::{Either, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, VARY},
};

use super::{
    Service,
    connection_slots::ConnectionSlot,
    negotiate,
    responses::{HttpResponse, busy, set, text},
};
use body::{HistoryBody, Writer};
use query::HistoryQuery;

/// Maximum number of concurrent responses. Each needs up to a megabyte, plus the blocks that it shares with the store.
pub(super) const READERS: usize = 8;

/// Responds to a request with this query.
pub(super) fn respond(
    service: &Service,
    slot: &ConnectionSlot,
    query: &str,
    headers: &HeaderMap,
) -> HttpResponse {
    let Some(history) = &service.history else {
        return text(StatusCode::NOT_FOUND, "not found: --history off disables the history\n");
    };
    let config = service.bodies.config();
    let now = config.saved.as_ref().map_or_else(SystemTime::now, |saved| saved.saved);
    let HistoryQuery { from, to, step, is_summary } = match HistoryQuery::parse(query, now) {
        Ok(query) => query,
        Err(why) => return text(StatusCode::BAD_REQUEST, format!("bad request: {why}\n")),
    };
    let Ok(reader) = Arc::clone(&service.history_readers).try_acquire_owned() else {
        const TEXT: &str = "too many clients read the history\n";
        return busy(TEXT, "1");
    };
    let (selection, kept_from) = history.select(from, to);
    let gzip = negotiate::gzip(headers);
    let head = match &config.saved {
        Some(saved) => ApiHistory { from: unix_seconds(from), to: unix_seconds(to), ..saved.head.clone() },
        None => ApiHistory::of(&config.host, config.interval, [from, to], kept_from),
    };
    let writer = Writer::new(&head, selection.into_periods(step), is_summary, gzip);
    let encoder = Arc::clone(&service.history_encoder);
    let body = UnsyncBoxBody::new(HistoryBody::new(writer, encoder, reader, slot.begin_parts()));
    let mut response = Response::new(Either::Right(body));
    set(&mut response, CONTENT_TYPE, "application/json");
    set(&mut response, VARY, "Accept-Encoding");
    set(&mut response, CACHE_CONTROL, "no-cache");
    if gzip {
        set(&mut response, CONTENT_ENCODING, "gzip");
    }
    response
}
