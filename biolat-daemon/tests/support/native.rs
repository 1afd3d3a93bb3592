//! Native buckets as a reader of the format decodes them.

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::Histogram;

/// Counts by native index, the zero bucket left out.
pub(crate) fn decode(histogram: &Histogram) -> Vec<(i32, u64)> {
    let (mut index, mut count) = (0, 0);
    let mut deltas = histogram.positive_delta.iter();
    let mut buckets = Vec::new();
    for span in &histogram.positive_span {
        index += span.offset;
        for _ in 0..span.length {
            count += deltas.next().unwrap();
            buckets.push((index, u64::try_from(count).unwrap()));
            index += 1;
        }
    }
    buckets
}
