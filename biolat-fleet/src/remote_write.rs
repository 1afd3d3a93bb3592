//! Builds remote write 2.0 requests from a node's expositions at several times.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    net::SocketAddr,
};

use anyhow::{Context as _, Result, bail};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as model;
use prost::Message as _;

use super::{
    http,
    messages::{BucketSpan, Count, Histogram, Request, Sample, TimeSeries, ZeroCount},
};

/// Labels of a series, with `__name__`, sorted by name.
pub(crate) type Labels = BTreeMap<String, String>;

/// Value that marks the end of a series: <https://prometheus.io/docs/specs/prw/remote_write_spec/#stale-markers>.
pub(crate) const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Collects samples for successive requests, and remembers the series.
#[derive(Default)]
pub(crate) struct Batch {
    symbols: Symbols,
    /// Indices into `timeseries` and `last`, by labels.
    series: HashMap<Vec<u32>, usize>,
    timeseries: Vec<TimeSeries>,
    last: Vec<Last>,
    written: Written,
}

/// Last sample of a series.
#[derive(Clone, Copy)]
struct Last {
    /// Its time, or `None` after a stale marker.
    timestamp: Option<i64>,
    is_histogram: bool,
}

/// Numbers of samples and bytes written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) samples: u64,
    pub(crate) histograms: u64,
    /// Compressed bytes on the wire.
    pub(crate) bytes: u64,
}

impl Written {
    pub(crate) fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.histograms += other.histograms;
        self.bytes += other.bytes;
    }
}

impl Batch {
    /// Adds the wanted families of a node's exposition at `timestamp`, with the target's labels. As after a scrape, series that
    /// are no longer exposed get a stale marker.
    pub(crate) fn add_exposition(
        &mut self,
        exposition: &[u8],
        target: &Labels,
        timestamp: i64,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let mut rest = exposition;
        while !rest.is_empty() {
            let length = prost::decode_length_delimiter(&mut rest)?;
            let (family, others) = rest.split_at_checked(length).context("truncated exposition")?;
            rest = others;
            if is_wanted(name(family)?) {
                self.add_family(&model::MetricFamily::decode(family)?, target, timestamp)?;
            }
        }
        self.mark_stale(timestamp);
        Ok(())
    }

    fn add_family(&mut self, family: &model::MetricFamily, target: &Labels, timestamp: i64) -> Result<()> {
        for metric in &family.metric {
            let own = metric.label.iter().map(|label| (label.name.as_str(), label.value.as_str()));
            let target = target.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let labels = [("__name__", family.name.as_str())].into_iter().chain(target).chain(own);
            // In Prometheus, an empty label is the same as no label.
            let labels = labels.filter(|(_, value)| !value.is_empty()).collect();
            if let Some(histogram) = &metric.histogram {
                self.add_histogram(&labels, native(histogram, timestamp));
            } else {
                let gauge = metric.gauge.as_ref().map(|gauge| gauge.value);
                let value = gauge.or(metric.counter.as_ref().map(|counter| counter.value));
                let value = value.with_context(|| format!("{} has a sample without a value", family.name))?;
                self.add_sample(&labels, Sample { value, timestamp });
            }
        }
        Ok(())
    }

    pub(crate) fn add_sample(&mut self, labels: &BTreeMap<&str, &str>, sample: Sample) {
        let index = self.index(labels);
        self.last[index] = Last { timestamp: Some(sample.timestamp), is_histogram: false };
        self.push_sample(index, sample);
    }

    pub(crate) fn add_histogram(&mut self, labels: &BTreeMap<&str, &str>, histogram: Histogram) {
        let index = self.index(labels);
        self.last[index] = Last { timestamp: Some(histogram.timestamp), is_histogram: true };
        self.push_histogram(index, histogram);
    }

    /// Adds a stale marker to each active series that has no sample at this time.
    pub(crate) fn mark_stale(&mut self, timestamp: i64) {
        for index in 0..self.last.len() {
            let last = self.last[index];
            if last.timestamp.is_none_or(|last| last >= timestamp) {
                continue;
            }
            self.last[index].timestamp = None;
            if last.is_histogram {
                let stale =
                    Histogram { count: Some(Count::Int(0)), sum: STALE, timestamp, ..Histogram::default() };
                self.push_histogram(index, stale);
            } else {
                self.push_sample(index, Sample { value: STALE, timestamp });
            }
        }
    }

    fn push_sample(&mut self, index: usize, sample: Sample) {
        self.written.samples += 1;
        self.timeseries[index].samples.push(sample);
    }

    fn push_histogram(&mut self, index: usize, histogram: Histogram) {
        self.written.histograms += 1;
        self.timeseries[index].histograms.push(histogram);
    }

    fn index(&mut self, labels: &BTreeMap<&str, &str>) -> usize {
        let labels_refs: Vec<_> = labels
            .iter()
            .flat_map(|(name, value)| [*name, *value])
            .map(|text| self.symbols.index(text))
            .collect();
        let next = self.timeseries.len();
        *self.series.entry(labels_refs).or_insert_with_key(|labels_refs| {
            self.timeseries.push(TimeSeries { labels_refs: labels_refs.clone(), ..TimeSeries::default() });
            self.last.push(Last { timestamp: None, is_histogram: false });
            next
        })
    }

    /// Returns a request with all samples since the last one.
    pub(crate) fn take_request(&mut self) -> Request {
        let take = |series: &mut TimeSeries| TimeSeries {
            labels_refs: series.labels_refs.clone(),
            samples: mem::take(&mut series.samples),
            histograms: mem::take(&mut series.histograms),
        };
        let has_samples =
            |series: &&mut TimeSeries| !series.samples.is_empty() || !series.histograms.is_empty();
        Request {
            symbols: self.symbols.texts.clone(),
            timeseries: self.timeseries.iter_mut().filter(has_samples).map(take).collect(),
        }
    }

    /// Returns the same request, compressed.
    pub(crate) fn encode(&mut self) -> Result<Encoded> {
        let written = mem::take(&mut self.written);
        let body = snap::raw::Encoder::new().compress_vec(&self.take_request().encode_to_vec())?;
        Ok(Encoded { written: Written { bytes: body.len() as u64, ..written }, body })
    }
}

/// Returns the name of an encoded family, which is its first field.
fn name(family: &[u8]) -> Result<&str> {
    const NAME: u8 = 1 << 3 | 2;
    let mut rest = family.strip_prefix(&[NAME]).context("a family does not begin with its name")?;
    let length = prost::decode_length_delimiter(&mut rest)?;
    Ok(std::str::from_utf8(rest.get(..length).context("a family is truncated within its name")?)?)
}

/// Converts a native histogram. Spans and deltas are the same in both formats.
fn native(histogram: &model::Histogram, timestamp: i64) -> Histogram {
    let span = |span: &model::BucketSpan| BucketSpan { offset: span.offset, length: span.length };
    Histogram {
        count: Some(Count::Int(histogram.sample_count)),
        sum: histogram.sample_sum,
        schema: histogram.schema,
        zero_threshold: histogram.zero_threshold,
        zero_count: Some(ZeroCount::Int(histogram.zero_count)),
        positive_spans: histogram.positive_span.iter().map(span).collect(),
        positive_deltas: histogram.positive_delta.clone(),
        positive_counts: Vec::new(),
        reset_hint: 0,
        timestamp,
    }
}

/// A table of unique strings.
struct Symbols {
    texts: Vec<String>,
    indices: HashMap<String, u32>,
}

impl Default for Symbols {
    fn default() -> Self {
        Self { texts: vec![String::new()], indices: HashMap::from([(String::new(), 0)]) }
    }
}

impl Symbols {
    fn index(&mut self, text: &str) -> u32 {
        if let Some(index) = self.indices.get(text) {
            return *index;
        }
        let index = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.indices.insert(text.to_owned(), index);
        index
    }
}

/// A compressed request.
pub(crate) struct Encoded {
    pub(crate) written: Written,
    body: Vec<u8>,
}

impl Encoded {
    /// Sends the request to a Prometheus server. Fails unless the server accepts all samples.
    pub(crate) async fn send(self, address: SocketAddr) -> Result<()> {
        let headers = [
            ("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
            ("content-encoding", "snappy"),
            ("x-prometheus-remote-write-version", "2.0.0"),
        ];
        let response = http::post(address, "/api/v1/write", &headers, self.body).await?;
        if !response.status.is_success() {
            bail!("Prometheus rejected a remote write: {}: {}", response.status, response.text());
        }
        let accepted = |what: &str| -> Option<u64> {
            let header = response.headers.get(format!("x-prometheus-remote-write-{what}-written"))?;
            header.to_str().ok()?.parse().ok()
        };
        let (samples, histograms) = (accepted("samples"), accepted("histograms"));
        if (samples, histograms) != (Some(self.written.samples), Some(self.written.histograms)) {
            bail!(
                "Prometheus accepted {samples:?} samples and {histograms:?} histograms of {} and {}",
                self.written.samples,
                self.written.histograms
            );
        }
        Ok(())
    }
}
