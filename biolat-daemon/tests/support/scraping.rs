//! A Prometheus that scrapes one target twice a second.

use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use super::{certificates::Folder, prometheus::PrometheusServer, server::Reply};

pub(crate) struct ScrapingPrometheus {
    server: PrometheusServer,
    _folder: Folder,
}

impl ScrapingPrometheus {
    /// `name` names the temporary folder; `options` are lines for the scrape config.
    pub(crate) fn start(
        name: &str,
        program: &OsStr,
        target: SocketAddr,
        options: &str,
        flags: &[&str],
    ) -> Self {
        let folder = Folder::new(name);
        let config = format!(
            "scrape_configs:\n- job_name: biolat\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n{options}  \
             static_configs:\n  - targets: ['{target}']\n"
        );
        let config = folder.write("prometheus.yml", &config);
        let server = PrometheusServer::start(program, &config, &folder.0.join("data"), flags);
        Self { server, _folder: folder }
    }

    /// Returns the data of an API response, or null if there is none yet.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let Ok(mut stream) = TcpStream::connect(self.server.address).await else { return Value::Null };
        let request = format!("GET /api/v1/{path} HTTP/1.0\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut json: Value =
            serde_json::from_slice(&Reply::read(&mut stream).await.body).unwrap_or_default();
        json["data"].take()
    }

    /// Returns the single value of an instant query.
    pub(crate) async fn query(&self, query: &str) -> Option<f64> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let data = self.get(&format!("query?query={escaped}")).await;
        data["result"][0]["value"][1].as_str()?.parse().ok()
    }

    /// Waits until the query returns this value.
    pub(crate) async fn expect(&self, query: &str, expected: f64) {
        let began = Instant::now();
        loop {
            let found = self.query(query).await;
            if found == Some(expected) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{query}: {found:?}, not {expected}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Path to Prometheus 3.8 or later.
pub(crate) fn new_program() -> OsString {
    std::env::var_os("BIOLAT_TEST_PROMETHEUS")
        .expect("set BIOLAT_TEST_PROMETHEUS to a Prometheus 3.8 or later; cargo xtask test does")
}
