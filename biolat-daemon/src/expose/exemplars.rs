//! Exemplars of total latency histograms: for each bucket, the latest recorded I/O in it.

use std::{collections::BTreeMap, time::Duration};

use biolat_common::series::Phase;
use biolat_model::snapshot::SlowIo;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{Bucket, Exemplar, LabelPair};

use super::buckets;

/// Returns the exemplars of native buckets, sorted by time.
#[must_use]
pub fn native(ios: &[&SlowIo], schema: u32) -> Vec<Exemplar> {
    let in_buckets = with_total(ios).map(|(total, io)| (buckets::native_index(total, schema), (total, io)));
    // Keeps the last I/O of each bucket.
    let latest: BTreeMap<_, _> = in_buckets.collect();
    let mut latest: Vec<_> = latest.into_values().collect();
    latest.sort_by_key(|(_, io)| io.completed);
    latest.into_iter().map(|(total, io)| exemplar(total, io)).collect()
}

/// Sets the exemplars of classic buckets.
pub fn set_classic(ios: &[&SlowIo], buckets: &mut [Bucket]) {
    for (total, io) in with_total(ios) {
        let seconds = total.as_secs_f64();
        if let Some(bucket) = buckets.iter_mut().find(|bucket| seconds <= bucket.upper_bound) {
            bucket.exemplar = Some(exemplar(total, io));
        }
    }
}

fn with_total<'a>(ios: &[&'a SlowIo]) -> impl Iterator<Item = (Duration, &'a SlowIo)> {
    ios.iter().filter_map(|&io| Some((io.latencies[Phase::Total as usize]?, io)))
}

/// Makes an exemplar. Its labels stay below the 128 characters that OpenMetrics allows.
fn exemplar(total: Duration, io: &SlowIo) -> Exemplar {
    let label = |name: &str, value: u64| LabelPair { name: name.to_owned(), value: value.to_string() };
    let process = io.names.process.as_ref().map(|process| label("pid", process.id.into()));
    let inode = io.names.file.as_ref().map(|file| label("inode", file.inode));
    let place = [label("sector", io.sector), label("bytes", io.bytes.into())];
    Exemplar {
        label: place.into_iter().chain(process).chain(inode).collect(),
        value: total.as_secs_f64(),
        timestamp: Some(io.completed.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use biolat_model::{
        histogram::Histogram,
        io_names::{IoFile, IoNames, IoProcess},
        snapshot::SlowIo,
    };

    use super::{native, set_classic};
    use crate::expose::{ClassicBuckets, buckets};

    fn io(number: u64, total_ns: Option<u64>) -> SlowIo {
        SlowIo {
            number,
            completed: UNIX_EPOCH + Duration::from_secs(number),
            device: "sda".into(),
            op: "read".into(),
            sector: number,
            bytes: 512,
            status: "ok".into(),
            latencies: [None, None, None, total_ns.map(Duration::from_nanos)],
            cpu: 0,
            workload: None,
            names: IoNames::default(),
        }
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn keeps_latest_io_of_each_bucket() {
        let latencies = [
            Some(SECOND),
            Some(SECOND + 1),
            // In the previous latency's bucket at schema 0, but not at schema 3.
            Some(2 * SECOND),
            None,
            Some(400),
            Some(1_100 * SECOND),
            // Same bucket as the first.
            Some(SECOND),
            // The last native bucket also counts everything above it.
            Some(1_020 * SECOND),
        ];
        let ios: Vec<_> = (1..).zip(latencies).map(|(number, total)| io(number, total)).collect();
        let ios: Vec<_> = ios.iter().collect();
        let sectors = |schema| -> Vec<_> {
            native(&ios, schema).iter().map(|exemplar| exemplar.label[0].value.clone()).collect()
        };
        assert_eq!(sectors(3), ["2", "3", "5", "7", "8"]);
        assert_eq!(sectors(0), ["3", "5", "7", "8"]);

        let mut classic = buckets::classic(&Histogram::new(), &buckets::latency_bounds(ClassicBuckets::All));
        set_classic(&ios, &mut classic);
        let found: Vec<_> = classic
            .iter()
            .filter_map(|bucket| Some((bucket.upper_bound, bucket.exemplar.as_ref()?.value)))
            .collect();
        let (zero, infinity) = (2f64.powi(-20), f64::INFINITY);
        assert_eq!(found, [(zero, 4e-7), (1.0, 1.0), (2.0, 2.0), (1024.0, 1020.0), (infinity, 1100.0)]);
    }

    #[test]
    fn exemplar_is_short_and_has_a_timestamp() {
        let names = IoNames {
            file: Some(IoFile { inode: u64::MAX, ..IoFile::default() }),
            process: Some(IoProcess { id: u32::MAX, ..IoProcess::default() }),
            ..IoNames::default()
        };
        let longest = SlowIo { sector: u64::MAX, bytes: u32::MAX, names, ..io(5, Some(SECOND)) };
        let exemplar = native(&[&longest], 3).remove(0);
        let characters: usize = exemplar.label.iter().map(|label| label.name.len() + label.value.len()).sum();
        assert!(characters <= 128, "{characters}");
        assert_eq!(exemplar.timestamp.unwrap().seconds, 5);
    }
}
