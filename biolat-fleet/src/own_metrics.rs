//! Parses the metrics that Prometheus exposes about itself, in the text format.

/// One sample per series.
pub(crate) struct OwnMetrics(Vec<(String, f64)>);

impl OwnMetrics {
    pub(crate) fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        Self(
            samples
                .filter_map(|line| {
                    let (series, value) = line.rsplit_once(' ')?;
                    Some((series.to_owned(), value.parse().ok()?))
                })
                .collect(),
        )
    }

    /// Returns the sum of all series with this name whose labels contain a string.
    pub(crate) fn sum(&self, name: &str, labels: &str) -> f64 {
        self.of(name).filter(|(own, _)| own.contains(labels)).map(|(_, value)| value).sum()
    }

    /// Returns the labels, as text, and the value of each series with this name.
    pub(crate) fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.iter().filter_map(move |(series, value)| {
            let labels = series.strip_prefix(name)?;
            (labels.is_empty() || labels.starts_with('{')).then_some((labels, *value))
        })
    }
}
