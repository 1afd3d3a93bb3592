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

use biolat_model::snapshot::Snapshot;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::MetricFamily;
use prost::Message as _;

/// How histograms are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistogramFormat {
    /// Highest resolution of native histograms: 2^schema buckets for each power of two, 0 to 3.
    pub schema: u32,
    /// Which kinds of histogram are exposed.
    pub kinds: HistogramKinds,
    /// The buckets of classic histograms.
    pub classic: ClassicBuckets,
}

/// Kinds of histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HistogramKinds {
    /// Each format has one kind: protobuf native histograms, text classic ones.
    Auto,
    /// Native histograms only: sparse, fine, and only in the protobuf format. Text formats give sum and count.
    Native,
    /// Classic histograms only, in protobuf too.
    Classic,
    /// Both in protobuf, classic ones in text.
    Both,
}

/// Buckets of classic histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ClassicBuckets {
    /// 12 of them: latencies by factors of four from 15 µs to 4 s, and 32 s.
    Few,
    /// Each power of two of the range: 32 of latencies, from 1 µs to 1024 s.
    All,
}

/// The defaults of the command line.
impl Default for HistogramFormat {
    fn default() -> Self {
        Self { schema: 3, kinds: HistogramKinds::Auto, classic: ClassicBuckets::Few }
    }
}

impl HistogramFormat {
    /// What one format has.
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

/// What a histogram is encoded as, in one format.
#[derive(Clone, Copy)]
struct HistogramEncoding {
    /// Native, with this schema at most.
    schema: Option<u32>,
    /// Classic, with these buckets.
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
    /// Memory of the history; none if there is none.
    pub history_bytes: Option<usize>,
    /// Whether OpenMetrics has a `_created` line for each counter and histogram.
    pub created: bool,
}

/// A snapshot in an exposition format.
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
        // Writing to a vector does not fail.
        let _ = family.encode_length_delimited(&mut bytes);
    }
    bytes
}
