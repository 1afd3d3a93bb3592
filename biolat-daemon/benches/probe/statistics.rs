//! Summary statistics.

use serde_json::{Value, json};

/// A median and its quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    /// `None` if there are no values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let quantile = |q: f64| {
            let place = q * (sorted.len() - 1) as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        (!sorted.is_empty()).then(|| Self {
            median: quantile(0.5),
            low: quantile(0.25),
            high: quantile(0.75),
        })
    }

    pub(crate) fn show(&self, digits: usize) -> String {
        format!("{:.digits$} ({:.digits$}-{:.digits$})", self.median, self.low, self.high)
    }

    pub(crate) fn to_json(self) -> Value {
        json!({"median": self.median, "quartiles": [self.low, self.high]})
    }
}

/// A mean and its 95 % confidence interval, by Student's t.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) mean: f64,
    pub(crate) margin: f64,
}

/// The 0.975 quantiles of Student's t-distribution, for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

impl Interval {
    /// `None` if there are fewer than two values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.len() < 2 {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let student = STUDENT.get(values.len() - 2).copied().unwrap_or(1.96);
        Some(Self { mean, margin: student * (variance / count).sqrt() })
    }

    pub(crate) fn to_json(self) -> Value {
        json!({"mean": self.mean, "margin_95": self.margin})
    }
}
