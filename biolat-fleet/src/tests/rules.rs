//! Tests the selection of the rules that an alert needs.

use std::time::Duration;

use crate::rules::{Rule, RuleSet, deployed};

fn rules(yaml: &str) -> Vec<Rule> {
    yaml_serde::from_str(yaml).unwrap()
}

#[test]
fn selects_rules_that_an_alert_refers_to_at_any_depth() {
    let rules = rules(
        "- {record: 'a:b', expr: 'rate(biolat_a_total[5m])'}\n\
         - {record: 'unused:c', expr: 'biolat_c'}\n\
         - {record: 'd:e', expr: 'quantile(0.5, a:b)'}\n\
         - {alert: Found, expr: 'd:e > 3 and biolat_info', for: 15m, keep_firing_for: 1h}\n\
         - {alert: Other, expr: 'unused:c'}\n",
    );
    let set = RuleSet::of(rules, &["Found".to_owned(), "Unknown".to_owned()]).unwrap();
    let recorded: Vec<_> = set.recording.iter().filter_map(|rule| rule.record.as_deref()).collect();
    assert_eq!(recorded, ["a:b", "d:e"]);
    assert_eq!(set.alerts[0].pending_for, Duration::from_secs(900));
    assert_eq!(set.alerts[0].keep_firing_for, Duration::from_secs(3600));
    assert!(["biolat_a_total", "biolat_info"].iter().all(|name| set.identifiers().contains(*name)));
    assert!(!["biolat_c", "biolat"].iter().any(|name| set.identifiers().contains(*name)));
}

#[test]
fn rejects_unknown_alerts() {
    assert!(RuleSet::of(Vec::new(), &["Found".to_owned()]).is_err());
}

#[test]
fn reads_deployed_rules() {
    let files = ["prometheus/recording.yml", "prometheus/alerts.yml"].map(deployed);
    let set = RuleSet::read(&files, &["BlockDeviceSlowerThanSiblings".to_owned()]).unwrap();
    let recorded: Vec<_> = set.recording.iter().filter_map(|rule| rule.record.as_deref()).collect();
    assert!(
        recorded.contains(&"instance_device_op:biolat_device_latency_seconds:p99_rate5m"),
        "{recorded:?}"
    );
    assert!(!recorded.contains(&"node:biolat_targets:count"), "{recorded:?}");
    let metrics = set.identifiers();
    assert!(
        ["biolat_device_latency_seconds", "biolat_device_info"].iter().all(|name| metrics.contains(*name))
    );
    assert!(!metrics.contains("biolat_io_size_bytes"));
}
