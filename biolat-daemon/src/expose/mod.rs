//! A [`Snapshot`] as bytes: pure functions, no map, no clock, no socket.
//!
//! [`metrics`] is the table of all metrics. One set of metric families is made from it, and every exposition format is
//! written from those, so that the formats cannot disagree.

pub mod buckets;
pub mod exemplars;
pub mod families;
pub(crate) mod metrics;
pub mod text;

use std::time::SystemTime;

use prost::Message as _;

use crate::snapshot::Snapshot;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::MetricFamily;

/// How histograms are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistogramFormat {
    /// Resolution of native histograms: 2^schema buckets for each power of two, 0 to 3.
    pub schema: u32,
    /// Which kinds of histogram are exposed.
    pub kinds: HistogramKinds,
}

/// Kinds of histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HistogramKinds {
    /// Native histograms only: sparse, fine, and only in the protobuf format. Text formats give sum and count.
    Native,
    /// Classic buckets only, one for each power of two of a second.
    Classic,
    /// Both: each format carries what it can.
    Both,
}

/// The defaults of the command line.
impl Default for HistogramFormat {
    fn default() -> Self {
        Self { schema: 3, kinds: HistogramKinds::Both }
    }
}

impl HistogramKinds {
    const fn native(self) -> bool {
        matches!(self, Self::Native | Self::Both)
    }

    const fn classic(self) -> bool {
        matches!(self, Self::Classic | Self::Both)
    }
}

/// Exposition formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Length-delimited protobuf messages, the only format that carries native histograms.
    Protobuf,
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl Format {
    /// Every format, in the order of preference.
    pub const ALL: [Self; 3] = [Self::Protobuf, Self::OpenMetrics, Self::Text];

    /// The header `Content-Type`.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// What the server exposes of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerState {
    /// When its certificate expires; none without TLS.
    pub certificate_expires: Option<SystemTime>,
    /// Whether completions are exposed by CPU.
    pub per_cpu: bool,
}

/// A snapshot in an exposition format.
#[must_use]
pub fn encode(
    snapshot: &Snapshot,
    server: ServerState,
    histograms: HistogramFormat,
    format: Format,
) -> Vec<u8> {
    let families = families::families(snapshot, server, histograms);
    match format {
        Format::Protobuf => delimited(&families),
        Format::OpenMetrics => text::openmetrics(&families).into_bytes(),
        Format::Text => text::prometheus(&families).into_bytes(),
    }
}

fn delimited(families: &[MetricFamily]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for family in families {
        // Writing to a vector does not fail.
        let _ = family.encode_length_delimited(&mut bytes);
    }
    bytes
}
