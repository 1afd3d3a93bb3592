//! Decodes native histograms the way a consumer does.

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::Histogram;

/// Returns the counts by native index, without the zero bucket.
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
