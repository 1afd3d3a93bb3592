//! The devices and ops in an interval.

use std::time::Duration;

use biolat_model::{device::Group, period::Period, snapshot::Inflight};

use super::{
    host::{TestHost, at, clock, series, sums},
    store,
};

fn all(store: &super::Store) -> Vec<Period> {
    store.select(at(0.0), at(4e9)).into_periods(None).collect()
}

#[test]
fn an_interval_has_exactly_its_io() {
    let (mut host, mut store) = (TestHost::new(&["sda", "sdb", "sdc"]), store());
    host.wait(1.0).io("sda", "read", 10, 0.001).collect(&mut store);
    host.wait(1.0).io("sda", "read", 5, 0.001).io("sdb", "write", 2, 0.5);
    host.device("sdb").inflight =
        Inflight { reads: 3, writes: 1, oldest: Duration::from_nanos(123_456_789), is_exact: true };
    host.device("sdc").unseen = [(Group::Write, 4)].into();
    let read = series(host.device("sda"), "read");
    read.errors = [("medium".into(), 2)].into();
    read.requeues = 7;
    *host.snapshot.lost.get_mut("clock").unwrap() = 9;
    host.snapshot.slow_dropped = 11;
    host.snapshot.health.failures = 1;
    host.slow("sdb", 0.5).collect(&mut store);
    host.wait(1.0).collect(&mut store);

    let [first, second, third] = all(&store).try_into().unwrap();
    assert_eq!((first.began, first.ended), (clock(0.0), clock(1.0)));
    assert_eq!(first.devices.len(), 1, "O/O");
    assert_eq!(first.devices[0].series.len(), 1);
    assert_eq!(first.devices[0].series[0].bytes, 10 * 4096);

    assert_eq!((second.began, second.ended, second.length), (clock(1.0), clock(2.0), Duration::from_secs(1)));
    assert_eq!((second.collections, second.failures, second.slow_dropped), (1, 1, 11));
    assert_eq!(second.lost, [("clock".into(), 9)].into());
    let [sda, sdb, sdc] = second.devices.try_into().unwrap();
    assert_eq!(
        (sda.device.model.as_str(), sda.since, sda.phases),
        ("model of sda", clock(0.0), [false, true, true, true])
    );
    let read = &sda.series[0];
    assert_eq!((read.op.as_str(), read.bytes, read.requeues), ("read", 5 * 4096, 7));
    assert_eq!(read.errors, [("medium".into(), 2)].into());
    assert_eq!(read.histograms.each_ref().map(|histogram| histogram.count()), [0, 5, 5, 5]);
    assert_eq!(read.histograms[3].sum_ns, 5_000_000);
    assert_eq!(sdb.series[0].op, "write");
    assert_eq!((sdb.inflight.reads, sdb.inflight.writes, sdb.inflight.is_exact), (3, 1, true));
    assert_eq!(sdb.inflight.oldest, Duration::from_nanos(123_456_789));
    assert!(sdc.series.is_empty());
    assert_eq!(sdc.unseen, [(Group::Write, 4)].into());
    assert_eq!(second.slow, host.snapshot.slow.to_vec());

    assert!(third.slow.is_empty() && third.lost.is_empty());
    assert_eq!(third.devices.len(), 1, "Os in flight/Os in flight");
    assert!(third.devices[0].series.is_empty());
}

#[test]
fn merging_keeps_maxima_and_slowest_ios() {
    let (mut host, mut store) = (TestHost::new(&["sda"]), store());
    host.collect(&mut store);
    for second in 1..=30_u32 {
        host.wait(1.0).slow("sda", f64::from(second % 20)).slow("sda", 0.1);
        let oldest = Duration::from_secs((second % 13).into());
        host.device("sda").inflight = Inflight {
            reads: (second % 7).into(),
            writes: (second % 11).into(),
            oldest,
            is_exact: second == 12,
        };
        host.collect(&mut store);
    }
    let mut periods: Vec<_> = store.select(clock(0.0), clock(99.0)).into_periods(Some(super::DAY)).collect();
    let period = periods.remove(0);
    assert!(periods.is_empty());
    let inflight = period.devices[0].inflight;
    assert_eq!((inflight.reads, inflight.writes, inflight.oldest.as_secs()), (6, 10, 12));
    assert!(inflight.is_exact);
    let mut latencies: Vec<_> = period.slow.iter().map(|io| io.latencies[3].unwrap().as_secs()).collect();
    assert!(period.slow.is_sorted_by_key(|io| io.number));
    latencies.sort_unstable();
    assert_eq!(latencies, [10, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19][1..]);
}

#[test]
fn a_reused_device_name_is_another_device() {
    let (mut host, mut store) = (TestHost::new(&["sda"]), store());
    host.wait(5.0).io("sda", "read", 100, 0.001).collect(&mut store);
    let gone = host.snapshot.devices.remove(0);
    host.wait(5.0).collect(&mut store);
    // Another drive, which has already done more by the time it is first seen.
    host.wait(5.0);
    let added = super::host::device("sda", host.snapshot.taken);
    host.snapshot.devices.push(added);
    host.device("sda").device.model = "another".into();
    host.io("sda", "read", 150, 0.001).collect(&mut store);
    host.wait(5.0).io("sda", "read", 1, 0.001).collect(&mut store);

    let of = |periods: &[Period]| -> Vec<_> {
        let views = periods.iter().flat_map(|period| &period.devices);
        views.map(|view| (view.device.model.clone(), view.since, view.series[0].bytes / 4096)).collect()
    };
    let (before, after) = (("model of sda".to_owned(), gone.since), ("another".to_owned(), clock(15.0)));
    let incarnations = |reads: &[(&(String, _), u64)]| -> Vec<_> {
        reads.iter().map(|&((model, since), count)| (model.clone(), *since, count)).collect()
    };
    assert_eq!(of(&all(&store)), incarnations(&[(&before, 100), (&after, 150), (&after, 1)]));
    // Merged, they are two devices with one name.
    let sum: Vec<_> = store.select(at(0.0), at(4e9)).into_periods(Some(super::DAY)).collect();
    assert_eq!(of(&sum), incarnations(&[(&before, 100), (&after, 151)]));
}

#[test]
fn a_reset_counter_counts_from_zero() {
    let (mut host, mut store) = (TestHost::new(&["sda"]), store());
    host.wait(5.0).io("sda", "read", 100, 0.001).io("sda", "write", 9, 0.001).collect(&mut store);
    *series(host.device("sda"), "read") =
        biolat_model::snapshot::SeriesView { op: "read".into(), ..Default::default() };
    host.wait(5.0).io("sda", "read", 30, 0.001).io("sda", "write", 1, 0.001).collect(&mut store);
    let sums = sums(store.select(clock(5.0), clock(10.0)).into_periods(None));
    let reads = |op: &str| sums[&("sda".to_owned(), op.to_owned())].bytes / 4096;
    assert_eq!((reads("read"), reads("write")), (30, 1));
    // All counters start over once the probe is attached again.
    host.snapshot.started = clock(12.0);
    host.wait(5.0).collect(&mut store);
    let sums = super::host::sums(store.select(clock(10.0), clock(15.0)).into_periods(None));
    assert_eq!(sums[&("sda".to_owned(), "write".to_owned())].bytes / 4096, 10);
}

#[test]
fn inherited_counters_make_no_interval() {
    let mut host = TestHost::new(&["sda"]);
    host.wait(3600.0).io("sda", "read", 100, 0.001).slow("sda", 2.0);
    let mut store = super::Store::new(super::HistoryLimits { age: super::DAY, bytes: 1 << 20 }, host.boot);
    host.wait(0.5).collect(&mut store);
    host.wait(5.0).io("sda", "read", 7, 0.001).collect(&mut store);
    let periods = all(&store);
    assert_eq!(
        periods.iter().map(|period| (period.began, period.slow.len())).collect::<Vec<_>>(),
        [(clock(3600.5), 0)]
    );
    assert_eq!(periods[0].devices[0].series[0].bytes, 7 * 4096);
}

/// A workload that is counted late, one that is renamed, and one that ends: the workloads still add up to the series.
#[test]
fn workloads_add_up_to_the_series() {
    let (mut host, mut store) = (TestHost::new(&["sda"]), store());
    host.snapshot.workloads = Some(vec![]);
    host.wait(5.0).io("sda", "read", 3, 0.001).collect(&mut store);
    host.wait(5.0).io("sda", "read", 5, 0.001).workload("/a", "sda", 5, 0.001).collect(&mut store);
    host.wait(5.0)
        .io("sda", "read", 7, 0.001)
        .workload("/a", "sda", 4, 0.001)
        .workload("/b", "sda", 2, 0.001);
    host.collect(&mut store);
    // With cgroup v1, a cgroup can be renamed: its earlier counts are not new I/O.
    host.snapshot.workloads.iter_mut().flatten().for_each(|workload| workload.cgroup += "renamed");
    host.wait(5.0).io("sda", "read", 2, 0.001).workload("/arenamed", "sda", 2, 0.001).collect(&mut store);
    host.snapshot.workloads.as_mut().unwrap().remove(0);
    host.wait(5.0).io("sda", "read", 6, 0.001).workload("/brenamed", "sda", 6, 0.001).collect(&mut store);
    let of = |period: &Period| -> Vec<_> {
        let usage = |workload: &biolat_model::snapshot::WorkloadView| {
            (workload.cgroup.clone(), workload.usage[0].latency.count())
        };
        period.workloads.iter().flatten().map(usage).collect()
    };
    let expected = |expected: &[(&str, u64)]| -> Vec<_> {
        expected.iter().map(|&(cgroup, ios)| (cgroup.to_owned(), ios)).collect()
    };
    let periods = all(&store);
    let by_period: [&[_]; 5] = [
        &[("other", 3)],
        &[("/a", 5)],
        &[("/a", 4), ("/b", 2), ("other", 1)],
        &[("other", 2)],
        &[("/brenamed", 6)],
    ];
    assert_eq!(periods.iter().map(of).collect::<Vec<_>>(), by_period.map(expected));
    let sum: Vec<_> = store.select(at(0.0), at(4e9)).into_periods(Some(super::DAY)).collect();
    assert_eq!(of(&sum[0]), expected(&[("/a", 9), ("/b", 2), ("/brenamed", 6), ("other", 6)]));
    assert_eq!(sum[0].devices[0].series[0].histograms[3].count(), 3 + 5 + 7 + 2 + 6);
}
