//! A store with too little memory: what it drops first, and which ranges it reports as complete.

use std::time::Duration;

use biolat_model::snapshot::Snapshot;

use super::{
    Store,
    host::{TestHost, at, clock, difference, sums},
    store_of, store_with,
};

/// Records three hours of I/O with a collection every 5 s. Returns the first and the last snapshot.
fn three_hours(store: &mut Store) -> [std::sync::Arc<Snapshot>; 2] {
    let mut host = TestHost::new(&["sda"]);
    let first = host.collect(store);
    let mut last = std::sync::Arc::clone(&first);
    for number in 1..=2160_u32 {
        host.wait(5.0).io("sda", "read", u64::from(number), 0.001).io("sda", "write", 7, 0.02);
        last = host.collect(store);
    }
    [first, last]
}

/// The lengths of the intervals in seconds, oldest first, without duplicates.
fn lengths(store: &Store) -> Vec<u64> {
    let periods = store.select(at(0.0), at(4e9)).into_periods(None);
    let mut lengths: Vec<_> = periods.map(|period| period.length.as_secs()).collect();
    lengths.dedup();
    lengths
}

#[test]
fn drops_detail_first_and_the_oldest_last() {
    let mut whole = store_of(usize::MAX);
    three_hours(&mut whole);
    assert_eq!(lengths(&whole), [60, 10, 5]);
    let all = whole.bytes();
    let kept = whole.kept_from().unwrap();
    assert_eq!((kept.all, kept.ten_seconds), (clock(0.0), clock(3600.0)));
    assert_eq!(kept.collections, clock(3.0 * 3600.0 - 600.0));

    let of = |bytes: usize| {
        let mut store = store_of(bytes);
        let [first, last] = three_hours(&mut store);
        assert!(store.bytes() <= bytes, "{} of {bytes}", store.bytes());
        // Whatever is kept is still exact.
        let kept = store.kept_from().unwrap();
        if kept.all == clock(0.0) {
            let sums = sums(store.select(at(0.0), at(4e9)).into_periods(None));
            assert_eq!(sums, difference(&first, &last));
        }
        (store, kept)
    };
    // First, collections become 10 s intervals ahead of time.
    let (_, kept) = of(all - all / 50);
    assert_eq!((kept.all, kept.ten_seconds), (clock(0.0), clock(3600.0)));
    assert!(kept.collections > clock(3.0 * 3600.0 - 600.0), "{kept:?}");
    // Then the 10 s intervals become minutes, while the latest collections are kept as they are.
    let (store, kept) = of(all / 2);
    assert_eq!(kept.all, clock(0.0));
    assert!(kept.ten_seconds > clock(3600.0) && kept.collections >= clock(3.0 * 3600.0 - 20.0), "{kept:?}");
    assert_eq!(lengths(&store)[0], 60);
    // Then the oldest minutes are dropped.
    let (store, kept) = of(all / 10);
    assert!(kept.all > clock(3600.0) && kept.all < kept.ten_seconds, "{kept:?}");
    let first = store.select(at(0.0), at(4e9)).into_periods(None).next().unwrap();
    assert_eq!(first.began, kept.all, "kept_from is where it is complete");
}

#[test]
fn a_limit_below_one_interval_keeps_nothing() {
    let mut store = store_of(100);
    three_hours(&mut store);
    assert_eq!((store.kept_from(), store.range(), store.bytes()), (None, None, 0));
    assert_eq!(store.select(at(0.0), at(4e9)).into_periods(None).count(), 0);
}

/// Thousands of devices that appear, do one I/O and disappear: their names also count towards the limit.
#[test]
fn names_count_towards_the_limit() {
    const LIMIT: usize = 100_000;
    let mut store = store_of(LIMIT);
    let mut host = TestHost::new(&[]);
    for number in 0..2000 {
        let name = format!("loop{number}");
        host.snapshot.devices = vec![super::host::device(&name, host.snapshot.taken)];
        host.wait(5.0).io(&name, "read", 1, 0.001).slow(&name, 2.0);
        let ios = host.snapshot.slow[host.snapshot.slow.len() - 1..].to_vec();
        host.snapshot.slow = ios.into();
        host.collect(&mut store);
        assert!(store.bytes() <= LIMIT, "{} bytes after {number} devices", store.bytes());
    }
    let periods: Vec<_> = store.select(at(0.0), at(4e9)).into_periods(None).collect();
    let last = periods.last().unwrap();
    assert_eq!(
        (last.devices[0].device.name.as_str(), last.slow[0].device.as_str()),
        ("loop1999", "loop1999")
    );
    assert!(periods.iter().map(|period| period.devices.len()).sum::<usize>() > 20);
    assert!(periods.iter().flat_map(|period| &period.slow).all(|io| io.device.starts_with("loop")));
}

#[test]
fn drops_intervals_beyond_the_age() {
    let mut store = store_with(super::HistoryLimits { age: Duration::from_secs(300), bytes: usize::MAX });
    three_hours(&mut store);
    assert_eq!(lengths(&store), [5]);
    assert_eq!(store.kept_from().unwrap().all, clock(3.0 * 3600.0 - 305.0));
}
