//! The totals of an NVMe multipath device: the sum of its paths.

use std::{collections::BTreeMap, time::SystemTime};

use biolat_common::series::Phase;
use biolat_model::snapshot::{DeviceView, SeriesView};

/// Adds up what the paths have counted. A path that is gone leaves its I/Os in the sum.
#[derive(Default)]
pub(super) struct HeadTotals {
    /// The latest figures of each path, by its id and op.
    paths: BTreeMap<(u64, String), SeriesView>,
    ops: BTreeMap<String, SeriesView>,
}

impl HeadTotals {
    /// Adds the growth since the last call. What paths had counted before `since` is left out: they may continue with the counts of
    /// the previous daemon.
    pub(super) fn update<'a>(&mut self, since: SystemTime, paths: impl Iterator<Item = &'a DeviceView>) {
        let mut now = BTreeMap::new();
        for path in paths {
            for series in &path.series {
                let key = (path.device.id, series.op.clone());
                let total = self.ops.entry(series.op.clone()).or_insert_with(|| empty(&series.op));
                let earlier = (path.since < since).then_some(series);
                add_growth(total, series, self.paths.get(&key).or(earlier));
                now.insert(key, series.clone());
            }
        }
        self.paths = now;
    }

    /// Whether no path has been seen.
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Returns the sums by op, with the total latency only.
    pub(super) fn series(&self) -> Vec<SeriesView> {
        ["read", "write"]
            .iter()
            .filter_map(|&op| self.ops.get(op))
            .chain(self.ops.values().filter(|series| series.op != "read" && series.op != "write"))
            .cloned()
            .collect()
    }
}

fn empty(op: &str) -> SeriesView {
    SeriesView { op: op.to_owned(), ..SeriesView::default() }
}

fn add_growth(total: &mut SeriesView, now: &SeriesView, last: Option<&SeriesView>) {
    let place = Phase::Total as usize;
    let nothing = empty(&now.op);
    let last = last.unwrap_or(&nothing);
    total.bytes += now.bytes.saturating_sub(last.bytes);
    total.histograms[place].add(&now.histograms[place].since(&last.histograms[place]));
    for (status, count) in &now.errors {
        let before = last.errors.get(status).copied().unwrap_or_default();
        *total.errors.entry(status.clone()).or_default() += count.saturating_sub(before);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use biolat_common::series::Phase;
    use biolat_model::{
        device::Device,
        histogram::Histogram,
        snapshot::{DeviceView, SeriesView},
    };

    use super::HeadTotals;

    fn path(id: u64, reads: u64, failed: u64) -> DeviceView {
        let mut histograms: [Histogram; 4] = Default::default();
        histograms[Phase::Total as usize] = Histogram { zero: reads, ..Histogram::new() };
        let errors = [("transport".into(), failed)].into_iter().collect();
        let read =
            SeriesView { op: "read".into(), bytes: reads * 4096, histograms, errors, ..Default::default() };
        DeviceView { device: Device { id, ..Device::default() }, series: vec![read], ..DeviceView::default() }
    }

    #[test]
    fn begins_at_zero_where_paths_continue() {
        let mut head = HeadTotals::default();
        let later = UNIX_EPOCH + Duration::from_secs(5);
        head.update(later, [path(1, 1000, 0)].iter());
        head.update(later, [path(1, 1003, 0)].iter());
        assert_eq!(head.series()[0].histograms[Phase::Total as usize].count(), 3);
    }

    #[test]
    fn sum_keeps_the_ios_of_paths_that_are_gone() {
        let mut head = HeadTotals::default();
        head.update(UNIX_EPOCH, [path(1, 10, 0), path(2, 5, 1)].iter());
        head.update(UNIX_EPOCH, [path(1, 12, 0)].iter());
        head.update(UNIX_EPOCH, [path(1, 12, 0), path(3, 4, 0)].iter());
        let [read] = &head.series()[..] else { panic!("one op") };
        assert_eq!((read.histograms[Phase::Total as usize].count(), read.bytes), (21, 21 * 4096));
        assert_eq!(read.errors["transport"], 1);
    }
}
