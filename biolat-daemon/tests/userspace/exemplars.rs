//! Exemplars in a real Prometheus, scraped in both formats that support them.

use std::{
    ffi::OsStr,
    time::{Duration, Instant, SystemTime},
};

use biolat_daemon::http::Limits;
use biolat_model::{
    io_names::IoNames,
    snapshot::{SlowIo, Snapshot},
};
use serde_json::Value;

use crate::support::{
    scraping::{ScrapingPrometheus, new_program},
    server::Server,
    snapshots::snapshot,
};

/// Returns the sector and value of each of a metric's exemplars.
async fn exemplars(prometheus: &ScrapingPrometheus, metric: &str) -> Vec<(String, f64)> {
    let data = prometheus.get(&format!("query_exemplars?query={metric}")).await;
    let series = data.as_array().into_iter().flatten();
    let all = series.flat_map(|series| series["exemplars"].as_array().into_iter().flatten());
    let read = |exemplar: &Value| {
        let value = exemplar["value"].as_str()?.parse().ok()?;
        Some((exemplar["labels"]["sector"].as_str()?.to_owned(), value))
    };
    let mut found: Vec<_> = all.map(|exemplar| read(exemplar).unwrap()).collect();
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found
}

/// Adds reads of nvme0n1 with these latencies, completed 1 ms apart; the sector is the read's number. If several exemplars have
/// the same millisecond timestamp, Prometheus stores only those with ascending values.
fn with_slow_reads(snapshot: &Snapshot, milliseconds: &[u64]) -> Snapshot {
    let io = |(number, &milliseconds)| SlowIo {
        number,
        completed: SystemTime::now() + Duration::from_millis(number),
        device: "nvme0n1".into(),
        op: "read".into(),
        sector: number,
        bytes: 4096,
        status: "ok".into(),
        latencies: [None, None, None, Some(Duration::from_millis(milliseconds))],
        cpu: 0,
        workload: None,
        names: IoNames::default(),
    };
    Snapshot { slow: (1..).zip(milliseconds).map(io).collect(), ..snapshot.clone() }
}

#[tokio::test]
#[ignore = "needs prometheus: cargo xtask test"]
async fn prometheus_stores_exemplars() {
    let snapshot = with_slow_reads(&snapshot(1), &[700, 900, 5_000]);
    let server = Server::start(Some(snapshot), Limits::default()).await;
    let expected = |exemplars: &[(&str, f64)]| -> Vec<(String, f64)> {
        exemplars.iter().map(|&(sector, value)| (sector.to_owned(), value)).collect()
    };
    let start = |name: &str, program: &OsStr, options: &str| {
        let flags = ["--enable-feature=exemplar-storage"];
        ScrapingPrometheus::start(name, program, server.address, options, &flags)
    };
    let native = start("exemplars-native", &new_program(), "  scrape_native_histograms: true\n");
    let classic = start("exemplars-classic", "prometheus".as_ref(), "");
    for (prometheus, metric, expected) in [
        (&native, "biolat_total_latency_seconds", expected(&[("1", 0.7), ("2", 0.9), ("3", 5.0)])),
        (&classic, "biolat_total_latency_seconds_bucket", expected(&[("2", 0.9), ("3", 5.0)])),
    ] {
        let began = Instant::now();
        loop {
            let found = exemplars(prometheus, metric).await;
            if found == expected {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{metric}: {found:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
