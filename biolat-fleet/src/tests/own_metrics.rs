//! Tests of metrics in the text format.

use crate::own_metrics::OwnMetrics;

#[test]
fn sums_series_by_name_and_label() {
    let metrics = OwnMetrics::parse(
        "# HELP a_total of a\na_total{type=\"float\"} 3\na_total{type=\"histogram\"} 4\na_total_other 9\nb 1.5e+06\n",
    );
    assert_eq!(metrics.sum("a_total", ""), 7.0);
    assert_eq!(metrics.sum("a_total", "type=\"histogram\""), 4.0);
    assert_eq!(metrics.sum("b", ""), 1.5e6);
    assert_eq!(metrics.sum("c", ""), 0.0);
}
