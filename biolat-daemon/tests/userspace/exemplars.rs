//! Exemplars in a real Prometheus, which scrapes them in either format.

use std::{
    ffi::OsStr,
    net::SocketAddr,
    time::{Duration, Instant, SystemTime},
};

use biolat_daemon::{
    http::Limits,
    snapshot::{SlowIo, SlowLog, Snapshot},
};
use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::support::{
    certificates::Folder,
    prometheus::PrometheusServer,
    server::{Reply, Server},
    snapshots::snapshot,
};

/// A Prometheus that scrapes one target.
struct Prometheus {
    server: PrometheusServer,
    _folder: Folder,
}

impl Prometheus {
    /// `option` is one of the scrape config.
    fn scraping(program: &OsStr, target: SocketAddr, option: &str) -> Self {
        let folder = Folder::new(&format!("exemplars-{}", option.len()));
        let config = format!(
            "scrape_configs:\n- job_name: biolat\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n{option}  \
             static_configs:\n  - targets: ['{target}']\n"
        );
        let config = folder.write("prometheus.yml", &config);
        let data = folder.0.join("data");
        let server = PrometheusServer::start(program, &config, &data, &["--enable-feature=exemplar-storage"]);
        Self { server, _folder: folder }
    }

    /// Sector and value of the exemplars of a metric.
    async fn exemplars(&self, metric: &str) -> Vec<(String, f64)> {
        let request = format!("GET /api/v1/query_exemplars?query={metric} HTTP/1.0\r\nHost: x\r\n\r\n");
        let Ok(mut stream) = TcpStream::connect(self.server.address).await else { return Vec::new() };
        stream.write_all(request.as_bytes()).await.unwrap();
        let json: Value = serde_json::from_slice(&Reply::read(&mut stream).await.body).unwrap_or_default();
        let series = json["data"].as_array().into_iter().flatten();
        let all = series.flat_map(|series| series["exemplars"].as_array().into_iter().flatten());
        let read = |exemplar: &Value| {
            let value = exemplar["value"].as_str()?.parse().ok()?;
            Some((exemplar["labels"]["sector"].as_str()?.to_owned(), value))
        };
        let mut found: Vec<_> = all.map(|exemplar| read(exemplar).unwrap()).collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found
    }
}

/// Of reads of nvme0n1 that took so many milliseconds, one a millisecond; the sector is the number. Of exemplars of the same
/// millisecond Prometheus stores those whose values ascend.
fn with_slow_reads(snapshot: &Snapshot, milliseconds: &[u64]) -> Snapshot {
    let io = |(number, &milliseconds)| SlowIo {
        number,
        completed: SystemTime::now() + Duration::from_millis(number),
        device: "nvme0n1".into(),
        op: "read".into(),
        sector: number,
        bytes: 4096,
        status: "ok",
        latencies: [None, None, None, Some(Duration::from_millis(milliseconds))],
        cpu: 0,
        cgroup: "/system.slice/a.service".to_owned(),
    };
    let slow = SlowLog { ios: (1..).zip(milliseconds).map(io).collect(), dropped: 0 };
    Snapshot { slow, ..snapshot.clone() }
}

#[tokio::test]
#[ignore = "needs prometheus: cargo xtask test"]
async fn prometheus_stores_exemplars() {
    let snapshot = with_slow_reads(&snapshot(1), &[700, 900, 5_000]);
    let server = Server::start(Some(snapshot), Limits::default()).await;
    let expected = |exemplars: &[(&str, f64)]| -> Vec<(String, f64)> {
        exemplars.iter().map(|&(sector, value)| (sector.to_owned(), value)).collect()
    };
    let new = std::env::var_os("BIOLAT_TEST_PROMETHEUS")
        .expect("BIOLAT_TEST_PROMETHEUS is a Prometheus 3.8 or later: cargo xtask test sets it");
    let native = Prometheus::scraping(&new, server.address, "  scrape_native_histograms: true\n");
    let classic = Prometheus::scraping("prometheus".as_ref(), server.address, "");
    for (prometheus, metric, exemplars) in [
        (&native, "biolat_total_latency_seconds", expected(&[("1", 0.7), ("2", 0.9), ("3", 5.0)])),
        (&classic, "biolat_total_latency_seconds_bucket", expected(&[("2", 0.9), ("3", 5.0)])),
    ] {
        let began = Instant::now();
        loop {
            let found = prometheus.exemplars(metric).await;
            if found == exemplars {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{metric}: {found:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
