//! Measures the cost of remote write 2.0 to a second server, and checks that everything arrives.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::prometheus::{Prometheus, now};

/// Time allowed for the sender to send all its samples.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Native histograms that are counted on both servers. Selecting by name is enough, because labels are the same for all metrics.
const HISTOGRAMS: [&str; 6] = [
    "biolat_device_latency_seconds",
    "biolat_queue_latency_seconds",
    "biolat_total_latency_seconds",
    "biolat_io_size_bytes",
    "biolat_size_device_latency_seconds",
    "model_op:biolat_device_latency_seconds:rate5m",
];

#[derive(Serialize)]
pub(crate) struct RemoteCost {
    /// Series of all metrics, on each server.
    pub(crate) series: f64,
    /// Samples of native histograms, on each server.
    pub(crate) histogram_samples: f64,
    pub(crate) sent_samples: f64,
    pub(crate) bytes_per_sample: f64,
    /// CPU time of the receiver, per sample.
    pub(crate) receiver_cpu_us_per_sample: f64,
    pub(crate) receiver_heap_bytes: f64,
}

pub(crate) async fn receiver() -> Result<Prometheus> {
    Prometheus::start("global: {}\n", &["--web.enable-remote-write-receiver"]).await
}

/// Returns the sender's configuration.
pub(crate) fn config(receiver: &Prometheus) -> String {
    format!(
        "remote_write:\n\
         - url: http://{}/api/v1/write\n  \
           protobuf_message: io.prometheus.write.v2.Request\n  \
           send_native_histograms: true\n",
        receiver.address
    )
}

impl RemoteCost {
    /// Compares both servers over the whole run.
    pub(crate) async fn measure(
        sender: &Prometheus,
        receiver: &Prometheus,
        start: SystemTime,
    ) -> Result<Self> {
        let end = now();
        wait_until_sent(sender, end).await?;
        let range = (end - start.duration_since(UNIX_EPOCH)?.as_secs_f64()).ceil();
        let (mut series, mut histogram_samples) = (0.0, 0.0);
        for name in HISTOGRAMS {
            let count = format!("sum(count_over_time({name}[{range}s]))");
            histogram_samples += equal_value(sender, receiver, &count, end).await?;
        }
        for name in ["biolat_.*", "instance.*|model.*|namespace.*|node.*", "process_.*|scrape_.*|up|ALERTS.*"]
        {
            let count = format!("count(last_over_time({{__name__=~\"{name}\"}}[{range}s]))");
            series += equal_value(sender, receiver, &count, end).await?;
        }
        ensure!(histogram_samples > 0.0, "no native histogram was scraped");
        let metrics = sender.own_metrics().await?;
        let sum = |name: &str| metrics.sum(&format!("prometheus_remote_storage_{name}_total"), "");
        for (what, count) in [
            ("failed", sum("samples_failed") + sum("histograms_failed")),
            ("dropped", sum("samples_dropped")),
        ] {
            ensure!(count == 0.0, "remote write: {count} samples {what}");
        }
        let sent_samples = sum("samples") + sum("histograms");
        receiver.collect_garbage().await?;
        let received = receiver.own_metrics().await?;
        Ok(Self {
            series,
            histogram_samples,
            sent_samples,
            bytes_per_sample: sum("bytes") / sent_samples,
            receiver_cpu_us_per_sample: received.sum("process_cpu_seconds_total", "") / sent_samples * 1e6,
            receiver_heap_bytes: received.sum("go_memstats_heap_inuse_bytes", ""),
        })
    }
}

/// Waits until everything up to this time has been sent.
async fn wait_until_sent(sender: &Prometheus, end: f64) -> Result<()> {
    let began = Instant::now();
    loop {
        let sent = sender
            .own_metrics()
            .await?
            .sum("prometheus_remote_storage_queue_highest_sent_timestamp_seconds", "");
        if sent >= end {
            return Ok(());
        }
        if began.elapsed() > SEND_TIMEOUT {
            bail!("remote write is {:.0} s behind after {SEND_TIMEOUT:?}", end - sent);
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Returns the value of an expression, which must be the same on both servers.
async fn equal_value(sender: &Prometheus, receiver: &Prometheus, expression: &str, time: f64) -> Result<f64> {
    let (sent, received) = (sender.value(expression, time).await?, receiver.value(expression, time).await?);
    ensure!(sent == received, "{expression}: {sent} in the sender, {received} in the receiver");
    Ok(sent)
}
