//! A file of the first format, as it was written before there was a second one.

use std::{fs, sync::Arc};

use biolat_common::size::{BAND_NAMES, CELLS, cells_of_band};

use super::{Daemon, devices, folder, restarted};
use crate::{
    band_histogram::BandHistogram,
    histogram::Histogram,
    history::{
        file::log,
        format::Format,
        tests::host::{TestHost, difference, sums},
    },
    size_histogram::SizeHistogram,
    snapshot::{SizesView, Snapshot},
};

/// What [`of_all_kinds`] wrote.
const FILE: &[u8] = include_bytes!("format_1.history");

/// Two minutes and a half of reads with latencies from 1 µs to 30 s, of two sizes and two workloads, and ever more writes.
fn of_all_kinds(daemon: &mut Daemon, host: &mut TestHost) -> [Arc<Snapshot>; 2] {
    let first = daemon.collect(host);
    let mut last = Arc::clone(&first);
    for number in 1..=30_u64 {
        host.wait(5.0).io("sdb", "write", 1 << number, 0.02);
        for step in 0..number {
            let (count, latency) = (1 + number * step % 97, 1e-6 * 1.8_f64.powi(step as i32));
            host.io("sda", "read", count, latency);
            let cgroup = ["/", "/system.slice/db.service"][step as usize % 2];
            host.workload(cgroup, "sda", count.div_ceil(2), latency);
        }
        let series = &mut host.device("sda").series[0];
        let device = &series.histograms[2];
        let (small, large): (Vec<_>, Vec<_>) =
            device.at_schema(1).into_iter().partition(|(index, _)| *index % 3 == 0);
        let band = |buckets, zero, sum_ns| Histogram { zero, buckets, overflow: 0, sum_ns };
        let bands =
            [band(small, device.zero, device.sum_ns / 3), band(large, 0, device.sum_ns - device.sum_ns / 3)];
        let mut requests = [0; CELLS];
        for (number, band) in bands.iter().enumerate() {
            requests[cells_of_band(number).start + 1] = band.count();
        }
        let named = BAND_NAMES.into_iter().zip(bands.map(BandHistogram::from));
        series.sizes =
            Some(SizesView { requests: SizeHistogram::from_cells(&requests), bands: named.collect() });
        series.errors = vec![("ioerr", number / 3)];
        host.snapshot.lost[0].1 += 1;
        if number % 12 == 0 {
            host.slow("sda", 2.0);
        }
        last = daemon.collect(host);
    }
    [first, last]
}

#[test]
fn is_read_and_written_anew() {
    let (_folder, path) = folder();
    let (_other_folder, other_path) = folder();
    // Writes the same in the present format.
    let (mut host, mut daemon) = super::started(&other_path);
    let [first, last] = of_all_kinds(&mut daemon, &mut host);
    let present = daemon.periods();
    drop(daemon);

    fs::write(&path, FILE).unwrap();
    let mut daemon = restarted(&path, &host);
    let periods = daemon.periods();
    assert_eq!(format!("{periods:?}"), format!("{present:?}"));
    assert_eq!(devices(sums(periods.into_iter())), devices(difference(&first, &last)));
    // The counters go on from those of the file.
    host.wait(30.0).io("sda", "read", 1000, 0.5);
    let last = daemon.collect(&mut host);
    assert_eq!(devices(sums(daemon.periods().into_iter())), devices(difference(&first, &last)));
    let formats = daemon.file.files.each_ref().map(|file| log::generation(file).map(|(_, format)| format));
    assert_eq!(formats, [Some(Format::One), Some(Format::Two)]);
    drop(daemon);
    let daemon = restarted(&path, &host);
    assert_eq!(devices(sums(daemon.periods().into_iter())), devices(difference(&first, &last)));
}
