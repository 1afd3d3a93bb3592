//! Tests of the shares of sizes and ops, and of the daily and weekly load.

use crate::model::service::{SERVICES, Service};

#[test]
fn shares_add_up() {
    assert_eq!(SERVICES.iter().map(|service| service.frequency).sum::<u32>(), 100);
    for Service { name, ops, reads, writes, .. } in &SERVICES {
        let is_one = |sum: f64| (sum - 1.0).abs() < 1e-9;
        assert!(is_one(ops.iter().sum()), "{name}");
        assert!(is_one(reads.iter().map(|(_, share)| share).sum()), "{name}");
        assert!(is_one(writes.iter().map(|(_, share)| share).sum()), "{name}");
    }
}

/// 1970-01-05 was a Monday.
#[test]
fn load_follows_the_day_and_the_week() {
    let day = 86_400.0;
    for service in &SERVICES {
        let at = |day_number: f64, hour: f64| service.load(day_number * day + hour * 3600.0, 14.0);
        assert!(at(4.0, 14.0) > at(4.0, 2.0), "{}", service.name);
        assert_eq!(at(4.0, 14.0) / at(4.0, 2.0), at(8.0, 14.0) / at(8.0, 2.0));
        for (day, is_weekend) in [(4.0, false), (8.0, false), (9.0, true), (10.0, true), (11.0, false)] {
            let ratio = at(day, 14.0) / at(4.0, 14.0);
            let expected = if is_weekend { service.weekend } else { 1.0 };
            assert!((ratio - expected).abs() < 1e-9, "{} on day {day}: {ratio}", service.name);
        }
    }
}
