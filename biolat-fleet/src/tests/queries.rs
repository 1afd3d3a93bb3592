//! Tests of the dashboard's queries.

use crate::queries::{Query, View, dashboard_queries};

const VIEW: View<'_> = View { end: 1e9, length: 3600.0, interval: 60.0, instance: Some("n1:9976") };

#[test]
fn every_dashboard_variable_gets_a_value() {
    let queries = dashboard_queries().unwrap();
    assert!(queries.len() > 60, "{}", queries.len());
    for query in &queries {
        let text = query.interpolate(VIEW, 60.0);
        assert!(!text.contains('$'), "{text}");
    }
    let recorded = queries.iter().filter(|query| query.is_recorded()).count();
    assert!((15..40).contains(&recorded), "{recorded}");
}

#[test]
fn rate_interval_is_four_scrapes_or_a_step_and_a_scrape() {
    let query = Query {
        panel: String::new(),
        expression: "rate(a{instance=~\"$node\"}[$__rate_interval])".to_owned(),
        is_instant: false,
        points: 1000.0,
    };
    assert_eq!(query.interpolate(VIEW, 60.0), "rate(a{instance=~\"n1:9976\"}[240s])");
    assert_eq!(query.interpolate(VIEW, 300.0), "rate(a{instance=~\"n1:9976\"}[360s])");
}
