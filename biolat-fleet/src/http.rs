//! Sends HTTP requests to a server on loopback.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Request, StatusCode, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;

/// A server's response.
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Response {
    /// Returns the body as text, for messages.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).trim().to_owned()
    }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<Response> {
    send(address, Request::get(path).body(Full::default())?).await
}

/// Posts a body with these headers.
pub(crate) async fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Result<Response> {
    let request =
        headers.iter().fold(Request::post(path), |request, (name, value)| request.header(*name, *value));
    send(address, request.body(Full::from(body))?).await
}

/// Posts a form.
pub(crate) async fn post_form(address: SocketAddr, path: &str, fields: &[(&str, &str)]) -> Result<Response> {
    let escaped = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let form: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    post(address, path, &headers, form.join("&").into_bytes()).await
}

async fn send(address: SocketAddr, mut request: Request<Full<Bytes>>) -> Result<Response> {
    request.headers_mut().insert("host", address.to_string().parse()?);
    let shown = format!("http://{address}{}", request.uri());
    let response = async {
        let stream = tokio::net::TcpStream::connect(address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The task ends when the sender is dropped.
        tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        anyhow::Ok(Response { status: parts.status, headers: parts.headers, body })
    };
    response.await.with_context(|| format!("no response from {shown}"))
}
