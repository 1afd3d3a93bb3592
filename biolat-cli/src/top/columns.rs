//! The columns and their titles.

/// A column; the variants are in on-screen order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    Device,
    Model,
    Op,
    Iops,
    Bytes,
    P50,
    P99,
    P999,
    Max,
    Queue,
    Errors,
    /// I/Os of the device in flight.
    Inflight,
    /// Age of the oldest I/O in flight.
    Oldest,
    /// Distribution of the latencies.
    Shape,
    /// 99th percentile of the windows so far.
    History,
}

/// Columns to sort by, in on-screen order.
const SORTABLE: [Column; 13] = [
    Column::Device,
    Column::Model,
    Column::Op,
    Column::Iops,
    Column::Bytes,
    Column::P50,
    Column::P99,
    Column::P999,
    Column::Max,
    Column::Queue,
    Column::Errors,
    Column::Inflight,
    Column::Oldest,
];

impl Column {
    pub(super) fn next(self) -> Self {
        self.step(1)
    }

    pub(super) fn previous(self) -> Self {
        self.step(SORTABLE.len() - 1)
    }

    fn step(self, by: usize) -> Self {
        let place = SORTABLE.iter().position(|&column| column == self).unwrap_or_default();
        SORTABLE[(place + by) % SORTABLE.len()]
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Device => "DEVICE",
            Self::Model => "MODEL",
            Self::Op => "OP",
            Self::Iops => "IOPS",
            Self::Bytes => "MB/s",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "max",
            Self::Queue => "QUEUE",
            Self::Errors => "ERR",
            Self::Inflight => "INFL",
            Self::Oldest => "OLDEST",
            Self::Shape => "",
            Self::History => "p99 SO FAR",
        }
    }

    /// The percentile as a fraction, for percentile columns.
    pub(super) fn share(self) -> Option<f64> {
        match self {
            Self::P50 => Some(0.5),
            Self::P99 => Some(0.99),
            Self::P999 => Some(0.999),
            Self::Max => Some(1.0),
            _ => None,
        }
    }

    /// Numbers are right-aligned.
    pub(super) fn is_number(self) -> bool {
        !matches!(self, Self::Device | Self::Model | Self::Op | Self::Shape | Self::History)
    }
}
