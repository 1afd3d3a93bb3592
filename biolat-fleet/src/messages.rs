//! Defines the messages of Prometheus' remote write 2.0 (`io.prometheus.write.v2`) that are sent here, with all fields except
//! exemplars and metadata. <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Request {
    /// Strings that labels refer to. The first is empty.
    #[prost(string, repeated, tag = "4")]
    pub(crate) symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) timeseries: Vec<TimeSeries>,
}

/// A series with either samples or histograms, in chronological order.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TimeSeries {
    /// Alternating names and values, sorted by name, as indices into the symbols.
    #[prost(uint32, repeated, tag = "1")]
    pub(crate) labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) histograms: Vec<Histogram>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Sample {
    #[prost(double, tag = "1")]
    pub(crate) value: f64,
    /// Milliseconds since the epoch.
    #[prost(int64, tag = "2")]
    pub(crate) timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Histogram {
    #[prost(oneof = "Count", tags = "1, 2")]
    pub(crate) count: Option<Count>,
    #[prost(double, tag = "3")]
    pub(crate) sum: f64,
    #[prost(sint32, tag = "4")]
    pub(crate) schema: i32,
    #[prost(double, tag = "5")]
    pub(crate) zero_threshold: f64,
    #[prost(oneof = "ZeroCount", tags = "6, 7")]
    pub(crate) zero_count: Option<ZeroCount>,
    #[prost(message, repeated, tag = "11")]
    pub(crate) positive_spans: Vec<BucketSpan>,
    /// Buckets of integer histograms.
    #[prost(sint64, repeated, tag = "12")]
    pub(crate) positive_deltas: Vec<i64>,
    /// Buckets of float histograms.
    #[prost(double, repeated, tag = "13")]
    pub(crate) positive_counts: Vec<f64>,
    #[prost(int32, tag = "14")]
    pub(crate) reset_hint: i32,
    /// Milliseconds since the epoch.
    #[prost(int64, tag = "15")]
    pub(crate) timestamp: i64,
}

/// Reset hint of a gauge histogram.
pub(crate) const RESET_HINT_GAUGE: i32 = 3;

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(crate) enum Count {
    #[prost(uint64, tag = "1")]
    Int(u64),
    #[prost(double, tag = "2")]
    Float(f64),
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(crate) enum ZeroCount {
    #[prost(uint64, tag = "6")]
    Int(u64),
    #[prost(double, tag = "7")]
    Float(f64),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct BucketSpan {
    #[prost(sint32, tag = "1")]
    pub(crate) offset: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) length: u32,
}
