//! The figures of a window by device and process.

use std::collections::BTreeMap;

use biolat_collect::processes::{Process, ProcessUsage, ProcessWindow};
use biolat_model::band_histogram::BandHistogram;

/// The processes of a device.
#[derive(Debug, PartialEq)]
pub(crate) struct DeviceProcesses<'a> {
    pub(crate) device: &'a str,
    /// Empty if unknown.
    pub(crate) model: &'a str,
    /// Largest share first.
    pub(crate) rows: Vec<ProcessRow<'a>>,
}

/// A process on a device.
#[derive(Debug, PartialEq)]
pub(crate) struct ProcessRow<'a> {
    pub(crate) process: &'a Process,
    /// The sum over all ops.
    pub(crate) all: ProcessFigures,
    pub(crate) ops: BTreeMap<&'a str, ProcessFigures>,
    /// Its share of the time that all processes spent in the device.
    pub(crate) share: f64,
}

/// Figures that can be summed over ops.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ProcessFigures {
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    pub(crate) latency: BandHistogram,
}

impl ProcessFigures {
    /// Number of I/Os.
    pub(crate) fn ios(&self) -> u64 {
        self.latency.count()
    }

    /// Sum of all I/Os' time in the device.
    pub(crate) fn seconds(&self) -> f64 {
        self.latency.at_most_schema_1().sum_seconds()
    }

    fn add(&mut self, usage: &ProcessUsage) {
        self.bytes += usage.bytes;
        self.errors += usage.errors;
        self.latency.add(&usage.latency);
    }
}

impl ProcessRow<'_> {
    /// `fio (1234)`; a kernel thread is in brackets: `[kworker/0:1] (57)`.
    pub(crate) fn name(&self) -> String {
        name(self.process)
    }
}

/// The name of a process with its id.
pub(crate) fn name(Process { pid, name, is_kernel }: &Process) -> String {
    match (pid, name.as_str(), is_kernel) {
        (0, ..) => "unknown".to_owned(),
        (_, "", _) => format!("({pid})"),
        (_, name, true) => format!("[{name}] ({pid})"),
        (_, name, false) => format!("{name} ({pid})"),
    }
}

/// Groups the usage by device and process.
pub(crate) fn by_device(window: &ProcessWindow) -> Vec<DeviceProcesses<'_>> {
    let mut devices: BTreeMap<&str, BTreeMap<u32, ProcessRow<'_>>> = BTreeMap::new();
    for usage in &window.usage {
        let rows = devices.entry(&usage.device).or_default();
        let row = rows.entry(usage.process.pid).or_insert_with(|| ProcessRow {
            process: &usage.process,
            all: ProcessFigures::default(),
            ops: BTreeMap::new(),
            share: 0.0,
        });
        row.all.add(usage);
        row.ops.entry(&usage.op).or_default().add(usage);
    }
    let devices = devices.into_iter().map(|(device, rows)| DeviceProcesses {
        device,
        model: window.models.get(device).map_or("", String::as_str),
        rows: ranked(rows.into_values().collect()),
    });
    devices.collect()
}

fn ranked(mut rows: Vec<ProcessRow<'_>>) -> Vec<ProcessRow<'_>> {
    let all: f64 = rows.iter().map(|row| row.all.seconds()).sum();
    for row in &mut rows {
        row.share = if all > 0.0 { row.all.seconds() / all } else { 0.0 };
    }
    rows.sort_by(|one, other| {
        let by_load = other.share.total_cmp(&one.share).then(other.all.ios().cmp(&one.all.ios()));
        by_load.then(one.process.pid.cmp(&other.process.pid))
    });
    rows
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use biolat_collect::processes::{Process, ProcessUsage, ProcessWindow};
    use biolat_common::{
        bucket::cell,
        size::{BAND_CELLS, band_cell},
    };
    use biolat_model::band_histogram::BandHistogram;
    use biolat_testing::samples::at;

    use super::{by_device, name};

    fn usage(device: &str, op: &str, pid: u32, ios: u64, ms: u64) -> ProcessUsage {
        let (mut cells, ns) = ([0; BAND_CELLS], ms * 1_000_000);
        cells[band_cell(cell(ns))] = ios;
        ProcessUsage {
            process: Process { pid, name: format!("p{pid}"), is_kernel: pid == 2 },
            device: device.to_owned(),
            op: op.to_owned(),
            bytes: ios * 4096,
            errors: 0,
            latency: BandHistogram::from_cells(&cells, u128::from(ns * ios)),
        }
    }

    pub(crate) fn window() -> ProcessWindow {
        ProcessWindow {
            ended: at(60.0),
            length: Duration::from_secs(5),
            models: [("sda".to_owned(), "SSD".to_owned())].into(),
            usage: vec![
                usage("sda", "read", 1, 100, 1),
                usage("sda", "write", 2, 50, 4),
                usage("sda", "write", 1, 50, 2),
                usage("sdb", "read", 3, 10, 1),
            ],
            lost: [("recursion".into(), 2)].into(),
        }
    }

    #[test]
    fn ranks_processes_by_time_in_the_device() {
        let window = window();
        let devices = by_device(&window);
        let rows: Vec<Vec<_>> = devices
            .iter()
            .map(|device| device.rows.iter().map(|row| (row.name(), row.all.ios(), row.share)).collect())
            .collect();
        let (first, second) = (("p1 (1)".to_owned(), 150, 0.5), ("[p2] (2)".to_owned(), 50, 0.5));
        assert_eq!(rows, [vec![first, second], vec![("p3 (3)".to_owned(), 10, 1.0)]]);
        assert_eq!((devices[0].device, devices[0].model, devices[1].model), ("sda", "SSD", ""));
        assert_eq!(devices[0].rows[0].ops["write"].bytes, 50 * 4096);
    }

    #[test]
    fn names_processes() {
        assert_eq!(name(&Process::default()), "unknown");
        assert_eq!(name(&Process { pid: 7, ..Process::default() }), "(7)");
    }
}
