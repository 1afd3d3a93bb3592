//! Clocks that are set: order and sums follow the monotonic clock, labels the wall clock at the time.

use std::time::Duration;

use super::{
    host::{TestHost, at, clock, difference, sums},
    store,
};

/// An hour of I/O with a collection every 5 s; the clock is shifted by this many seconds halfway through.
fn set_by(seconds: f64) {
    let (mut host, mut store) = (TestHost::new(&["sda"]), store());
    let first = host.wait(5.0).collect(&mut store);
    for number in 1..=720 {
        if number == 361 {
            host.set_clock(seconds);
        }
        host.wait(5.0).io("sda", "read", number, 0.001).collect(&mut store);
    }
    let last = host.collect(&mut store);
    // Old enough to be merged into minutes.
    host.wait(7200.0).collect(&mut store);
    host.wait(7200.0).collect(&mut store);
    let periods: Vec<_> = store.select(at(0.0), at(4e9)).into_periods(None).collect();
    assert_eq!(sums(periods.iter().cloned()), difference(&first, &last), "clock set by {seconds} s");
    let began = periods.iter().map(|period| period.began).min().unwrap();
    let ended = periods.iter().map(|period| period.ended).max().unwrap();
    assert_eq!(store.range(), Some([began, ended]));
    // Every interval has the right time: none spans the jump.
    let busy: Vec<_> = periods.iter().filter(|period| !period.devices.is_empty()).collect();
    let rates: Vec<_> = busy
        .iter()
        .map(|period| period.devices[0].series[0].bytes as f64 / period.length.as_secs_f64())
        .collect();
    let jump = 1805.0;
    for (period, rate) in busy.iter().zip(&rates) {
        assert_eq!(period.ended.duration_since(period.began).unwrap(), period.length);
        assert!(period.length <= Duration::from_secs(120));
        let is_before = *rate < 360.5 * 4096.0 / 5.0;
        let (began, ended) = if is_before { (0.0, jump) } else { (jump + seconds, jump + seconds + 1800.0) };
        assert!(period.began >= clock(began) && period.ended <= clock(ended), "{period:?}");
    }
    // The rate of reads only increased.
    assert!(rates.len() > 60 && rates.is_sorted(), "{rates:?}");
}

#[test]
fn clock_set_forward() {
    set_by(3600.0);
    set_by(90.0 * 86_400.0);
}

#[test]
fn clock_set_back() {
    for seconds in [-7.0, -1800.0, -3600.0, -86_400.0] {
        set_by(seconds);
    }
}

/// The wall clock is set back by an hour, so one hour occurs twice. Selecting a time in it returns both.
#[test]
fn a_repeated_hour_selects_both_times() {
    let (mut host, mut store) = (TestHost::new(&["sda"]), store());
    host.collect(&mut store);
    for minute in 1..=120 {
        if minute == 61 {
            host.set_clock(-3600.0);
        }
        host.wait(60.0).io("sda", "read", minute, 0.001).collect(&mut store);
    }
    let reads = |periods: Vec<biolat_model::period::Period>| -> Vec<u64> {
        periods.iter().map(|period| period.devices[0].series[0].bytes / 4096).collect()
    };
    let between =
        |from: f64, to: f64, step| reads(store.select(clock(from), clock(to)).into_periods(step).collect());
    assert_eq!(between(600.0, 720.0, None), [11, 12, 71, 72]);
    assert_eq!(between(600.0, 720.0, Some(Duration::from_secs(120))), [11 + 12 + 71 + 72]);
    assert_eq!(between(600.0, 720.0, Some(Duration::from_secs(60))), [11, 12, 71, 72]);
}

#[test]
fn a_suspension_is_one_long_interval() {
    let (mut host, mut store) = (TestHost::new(&["sda"]), store());
    host.collect(&mut store);
    for _ in 0..60 {
        host.wait(5.0).io("sda", "read", 1, 0.001).collect(&mut store);
    }
    host.wait(8.0 * 3600.0).io("sda", "read", 1000, 0.001).collect(&mut store);
    for _ in 0..2000 {
        host.wait(5.0).io("sda", "read", 1, 0.001).collect(&mut store);
    }
    let long: Vec<_> = store
        .select(at(0.0), at(4e9))
        .into_periods(None)
        .filter(|period| period.length > Duration::from_secs(120))
        .collect();
    assert_eq!(long.len(), 1, "added to no other");
    assert_eq!(long[0].devices[0].series[0].bytes / 4096, 1000);
    assert_eq!((long[0].began, long[0].ended), (clock(300.0), clock(300.0 + 8.0 * 3600.0)));
    let sums = sums(store.select(at(0.0), at(4e9)).into_periods(None));
    assert_eq!(sums.into_values().next().unwrap().bytes / 4096, 60 + 1000 + 2000);
    // The long interval is selected by any time that it covers, and its I/O is not divided.
    let lengths = |from: f64, to: f64| -> Vec<_> {
        let periods = store.select(clock(from), clock(to)).into_periods(None);
        periods.map(|period| period.length.as_secs()).collect()
    };
    let hours = |hours: f64| hours * 3600.0;
    assert_eq!(lengths(hours(0.2), hours(0.3)), [8 * 3600]);
    assert_eq!(lengths(hours(7.9), hours(8.0)), [8 * 3600]);
    assert_eq!(lengths(240.0, 301.0), [60, 8 * 3600]);
    assert_eq!(lengths(180.0, 240.0), [60]);
}
