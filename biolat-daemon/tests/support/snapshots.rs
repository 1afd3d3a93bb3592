//! Synthetic snapshots, for servers without a probe.

use std::time::SystemTime;

use biolat_daemon::{
    expose::{ClassicBuckets, HistogramFormat},
    http::ServeConfig,
};
use biolat_model::{
    device::Device,
    histogram::Histogram,
    snapshot::{DeviceView, Process, SeriesView, Snapshot},
};

/// Returns a config that makes responses large, so clients take a while to read them.
pub(crate) fn serve_config() -> ServeConfig {
    let histograms = HistogramFormat { classic: ClassicBuckets::All, ..HistogramFormat::default() };
    ServeConfig { histograms, host: "example".into(), ..ServeConfig::default() }
}

/// Returns a snapshot with this many devices.
pub(crate) fn snapshot(devices: usize) -> Snapshot {
    let histogram =
        Histogram { zero: 1, buckets: (-100..60).map(|index| (index, 3)).collect(), overflow: 0, sum_ns: 9 };
    let view = |number: usize| DeviceView {
        device: Device { name: format!("nvme{number}n1"), ..Device::default() },
        since: SystemTime::now(),
        phases: [true; 4],
        series: vec![SeriesView {
            op: "read".into(),
            bytes: 4096,
            histograms: std::array::from_fn(|_| histogram.clone()),
            ..SeriesView::default()
        }],
        ..DeviceView::default()
    };
    let ServeConfig { host, interval, .. } = serve_config();
    Snapshot {
        host,
        interval,
        taken: SystemTime::now(),
        started: SystemTime::now(),
        devices: (0..devices).map(view).collect(),
        process: Some(Process::default()),
        online_cpus: Some(2),
        ..Snapshot::default()
    }
}
