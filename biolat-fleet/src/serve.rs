//! Serves the nodes as Prometheus targets: one HTTP server with a path for each node, and a list of the targets.

use std::{cell::RefCell, net::SocketAddr, rc::Rc, time::SystemTime};

use anyhow::{Context as _, Result};
use biolat_daemon::expose::{Format, HistogramFormat, ServerState, encode};
use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use super::model::Node;

/// The server. It stops on drop.
pub(crate) struct Targets {
    pub(crate) address: SocketAddr,
    _serving: JoinSet<()>,
}

/// Path of the list of targets.
pub(crate) const LIST: &str = "/targets";

impl Targets {
    /// Serves nodes on a free loopback port. Must be called within a `LocalSet`.
    pub(crate) async fn serve(nodes: Vec<Node>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let list = list(&nodes, address).to_string();
        let nodes: Rc<[_]> = nodes.into_iter().map(RefCell::new).collect();
        let mut serving = JoinSet::new();
        serving.spawn_local(async move {
            let list: Bytes = list.into();
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (nodes, list) = (nodes.clone(), list.clone());
                connections.spawn_local(async move {
                    let service = service_fn(move |request| {
                        let answer = answer(&nodes, &list, &request);
                        async { answer }
                    });
                    // An error means that Prometheus closed the connection.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, _serving: serving })
    }
}

/// Returns the list of targets for `http_sd_configs`.
fn list(nodes: &[Node], address: SocketAddr) -> Value {
    let target = |(number, node): (usize, &Node)| {
        json!({
            "targets": [address.to_string()],
            "labels": {
                "__metrics_path__": format!("/nodes/{number}/metrics"),
                "instance": instance(node),
                "cluster": node.cluster(),
            },
        })
    };
    nodes.iter().enumerate().map(target).collect()
}

/// Returns the `instance` label of a node.
pub(crate) fn instance(node: &Node) -> String {
    format!("{}:9976", node.name())
}

fn answer(
    nodes: &[RefCell<Node>],
    list: &Bytes,
    request: &Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
    let path = request.uri().path();
    if path == LIST {
        return Response::builder().header("content-type", "application/json").body(list.clone().into());
    }
    let number = path.strip_prefix("/nodes/").and_then(|path| path.strip_suffix("/metrics"));
    let Some(node) = number.and_then(|number| nodes.get(number.parse::<usize>().ok()?)) else {
        return Response::builder().status(StatusCode::NOT_FOUND).body(Full::default());
    };
    let mut node = node.borrow_mut();
    node.advance(SystemTime::now());
    Response::builder().header("content-type", Format::Protobuf.content_type()).body(exposition(&node).into())
}

/// Returns the exposition that a node's daemon would send to Prometheus.
pub(crate) fn exposition(node: &Node) -> Vec<u8> {
    encode(&node.snapshot(), ServerState::default(), HistogramFormat::default(), Format::Protobuf)
}
