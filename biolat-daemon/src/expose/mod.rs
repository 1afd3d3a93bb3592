//! Encodes a [`Snapshot`] in the exposition formats. All functions are pure: they use no map, clock or socket.
//!
//! [`metrics`] is the table of all metrics. A snapshot becomes one set of metric families, from which every format is written,
//! so the formats cannot disagree.

pub mod buckets;
pub mod exemplars;
pub mod families;
pub(crate) mod metrics;
pub mod text;

use std::time::SystemTime;

use biolat_model::snapshot::Snapshot;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::MetricFamily;
use prost::Message as _;

/// How histograms are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistogramFormat {
    /// Highest resolution of native histograms: 2^schema buckets per power of two, 0 to 3.
    pub schema: u32,
    pub kinds: HistogramKinds,
    pub classic: ClassicBuckets,
}

/// Kinds of histograms to expose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HistogramKinds {
    /// Native histograms in protobuf, classic histograms in text formats.
    Auto,
    /// Native histograms only: sparse and fine, but only in protobuf. Text formats have just sum and count.
    Native,
    /// Classic histograms only, also in protobuf.
    Classic,
    /// Both kinds in protobuf, classic histograms in text formats.
    Both,
}

/// Buckets of classic histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ClassicBuckets {
    /// 12 buckets; for latencies, from 15 µs to 4 s in factors of four, and 32 s.
    Few,
    /// One bucket per power of two; for latencies, 32 buckets from 1 µs to 1024 s.
    All,
}

/// Defaults of the command line.
impl Default for HistogramFormat {
    fn default() -> Self {
        Self { schema: 3, kinds: HistogramKinds::Auto, classic: ClassicBuckets::Few }
    }
}

impl HistogramFormat {
    /// Returns the encoding of histograms in an exposition format.
    const fn encoding(self, format: Format) -> HistogramEncoding {
        let is_protobuf = matches!(format, Format::Protobuf);
        let (native, classic) = match self.kinds {
            HistogramKinds::Auto => (is_protobuf, !is_protobuf),
            HistogramKinds::Native => (true, false),
            HistogramKinds::Classic => (false, true),
            HistogramKinds::Both => (true, true),
        };
        HistogramEncoding {
            schema: if native { Some(self.schema) } else { None },
            classic: if classic { Some(self.classic) } else { None },
        }
    }
}

/// The encoding of histograms in one exposition format.
#[derive(Clone, Copy)]
struct HistogramEncoding {
    /// Highest schema of native buckets; `None`: no native buckets.
    schema: Option<u32>,
    /// Classic buckets; `None`: no classic buckets.
    classic: Option<ClassicBuckets>,
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
    /// All formats, most preferred first.
    pub const ALL: [Self; 3] = [Self::Protobuf, Self::OpenMetrics, Self::Text];

    /// Value of the `Content-Type` header.
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

/// Server state that metrics expose, and server options that affect them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerState {
    /// Expiry time of the certificate; `None` without TLS.
    pub certificate_expires: Option<SystemTime>,
    /// Whether completions are exposed by CPU.
    pub per_cpu: bool,
    /// Memory used by the history; `None` without a history.
    pub history_bytes: Option<usize>,
    /// Whether OpenMetrics has a `_created` line for each counter and histogram.
    pub created: bool,
}

/// Encodes a snapshot in an exposition format.
#[must_use]
pub fn encode(
    snapshot: &Snapshot,
    server: ServerState,
    histograms: HistogramFormat,
    format: Format,
) -> Vec<u8> {
    let families = families::families(snapshot, server, histograms.encoding(format));
    match format {
        Format::Protobuf => delimited(&families),
        Format::OpenMetrics => text::openmetrics(&families, server.created).into_bytes(),
        Format::Text => text::prometheus(&families).into_bytes(),
    }
}

fn delimited(families: &[MetricFamily]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for family in families {
        // Writing to a vector cannot fail.
        let _ = family.encode_length_delimited(&mut bytes);
    }
    bytes
}
