//! The two text formats. They differ in the names of counters and infos in `# HELP` and `# TYPE`, `_created` lines, exemplars,
//! whole numbers in `le`, and the end marker.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>,
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>

use std::{
    borrow::Cow,
    fmt::{Display, Write as _},
};

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{
    Bucket, Exemplar, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use prost_types::Timestamp;

use super::metrics::unit;

/// Writes OpenMetrics 1.0, with or without `_created` lines.
#[must_use]
pub fn openmetrics(families: &[MetricFamily], created: bool) -> String {
    let mut out = write(families, Dialect::OpenMetrics { created });
    out.push_str("# EOF\n");
    out
}

/// Writes the Prometheus text format 0.0.4.
#[must_use]
pub fn prometheus(families: &[MetricFamily]) -> String {
    write(families, Dialect::Prometheus)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    OpenMetrics { created: bool },
    Prometheus,
}

impl Dialect {
    const fn is_openmetrics(self) -> bool {
        matches!(self, Self::OpenMetrics { .. })
    }
}

fn write(families: &[MetricFamily], dialect: Dialect) -> String {
    let mut out = String::new();
    for family in families {
        let (name, kind) = head(family, dialect);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {name} {}", escape(&family.help, dialect.is_openmetrics()));
        let _ = writeln!(out, "# TYPE {name} {kind}");
        if dialect.is_openmetrics()
            && let Some(unit) = unit(name)
        {
            let _ = writeln!(out, "# UNIT {name} {unit}");
        }
        for metric in &family.metric {
            write_metric(&mut out, &family.name, name, metric, dialect);
        }
    }
    out
}

/// Returns the name and type for `# HELP` and `# TYPE`. OpenMetrics omits the suffix of counters and infos there.
fn head(family: &MetricFamily, dialect: Dialect) -> (&str, &'static str) {
    let name = family.name.as_str();
    let kind = match MetricType::try_from(family.r#type) {
        Ok(MetricType::Counter) => "counter",
        Ok(MetricType::Histogram) => "histogram",
        _ => "gauge",
    };
    if dialect == Dialect::Prometheus {
        return (name, kind);
    }
    match (kind, name.strip_suffix("_total"), name.strip_suffix("_info")) {
        ("counter", Some(name), _) => (name, kind),
        ("gauge", _, Some(name)) => (name, "info"),
        _ => (name, kind),
    }
}

fn write_metric(out: &mut String, name: &str, family: &str, metric: &Metric, dialect: Dialect) {
    let labels = &labels(&metric.label);
    let created = if let Some(gauge) = &metric.gauge {
        sample(out, name, "", labels, None, gauge.value);
        None
    } else if let Some(counter) = &metric.counter {
        sample(out, name, "", labels, None, counter.value);
        counter.start_timestamp
    } else if let Some(histogram) = &metric.histogram {
        write_histogram(out, name, labels, histogram, dialect);
        histogram.start_timestamp
    } else {
        None
    };
    if let (Dialect::OpenMetrics { created: true }, Some(Timestamp { seconds, nanos })) = (dialect, created) {
        let created = format_args!("{seconds}.{:03}", nanos / 1_000_000);
        sample(out, family, "_created", labels, None, created);
    }
}

fn write_histogram(out: &mut String, name: &str, labels: &str, histogram: &Histogram, dialect: Dialect) {
    let mut bucket = |bound: &str, count: u64, exemplar: Option<&Exemplar>| {
        let exemplar = exemplar.filter(|_| dialect.is_openmetrics()).map(with_exemplar);
        let value = format_args!("{count}{}", exemplar.unwrap_or_default());
        sample(out, name, "_bucket", labels, Some(bound), value);
    };
    let (finite, infinite) = match &histogram.bucket[..] {
        [finite @ .., infinite] => (finite, infinite.exemplar.as_ref()),
        // The only bucket is +Inf: it gets the latest native exemplar.
        [] => (&[][..], histogram.exemplars.last()),
    };
    for Bucket { upper_bound, cumulative_count, exemplar, .. } in finite {
        bucket(&bound(*upper_bound, dialect), *cumulative_count, exemplar.as_ref());
    }
    bucket("+Inf", histogram.sample_count, infinite);
    sample(out, name, "_sum", labels, None, histogram.sample_sum);
    sample(out, name, "_count", labels, None, histogram.sample_count);
}

/// Formats an exemplar the way it appears after a bucket's value.
fn with_exemplar(exemplar: &Exemplar) -> String {
    let Exemplar { label, value, timestamp } = exemplar;
    let Timestamp { seconds, nanos } = timestamp.unwrap_or_default();
    format!(" # {{{}}} {value} {seconds}.{:06}", labels(label), nanos / 1_000)
}

/// Formats label pairs, without the braces.
fn labels(labels: &[LabelPair]) -> String {
    let mut text = String::new();
    for LabelPair { name, value } in labels {
        let separator = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{separator}{name}=\"{}\"", escape(value, true));
    }
    text
}

fn sample(out: &mut String, name: &str, suffix: &str, labels: &str, le: Option<&str>, value: impl Display) {
    out.push_str(name);
    out.push_str(suffix);
    // Writing to a string cannot fail.
    let _ = match le {
        Some(le) if labels.is_empty() => write!(out, "{{le=\"{le}\"}}"),
        Some(le) => write!(out, "{{{labels},le=\"{le}\"}}"),
        None if labels.is_empty() => Ok(()),
        None => write!(out, "{{{labels}}}"),
    };
    let _ = writeln!(out, " {value}");
}

/// Formats a bucket's bound as Go does, so that a series has the same labels in every format.
fn bound(bound: f64, dialect: Dialect) -> String {
    if bound < 1e-4 {
        let text = format!("{bound:e}");
        return match text.split_once("e-") {
            Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
            None => text,
        };
    }
    let text = bound.to_string();
    if dialect.is_openmetrics() && !text.contains('.') { text + ".0" } else { text }
}

/// Escapes backslashes, line feeds and, except in help texts of format 0.0.4, quotes.
fn escape(text: &str, quotes: bool) -> Cow<'_, str> {
    if !text.contains(['\\', '\n', '"']) {
        return text.into();
    }
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::{Dialect, bound, escape};

    #[test]
    fn formats_bounds_as_go_does() {
        let text = |value: f64| bound(value, Dialect::Prometheus);
        assert_eq!(text(2f64.powi(-20)), "9.5367431640625e-07");
        assert_eq!(text(2f64.powi(-14)), "6.103515625e-05");
        assert_eq!(text(2f64.powi(-13)), "0.0001220703125");
        assert_eq!(text(1024.0), "1024");
        let openmetrics = |value: f64| bound(value, Dialect::OpenMetrics { created: false });
        assert_eq!((&*openmetrics(1024.0), &*openmetrics(0.5)), ("1024.0", "0.5"));
    }

    #[test]
    fn escapes_label_values() {
        assert_eq!(escape("a\\b\"c\nd", true), "a\\\\b\\\"c\\nd");
        assert_eq!(escape("\"x\"", false), "\"x\"");
    }
}
