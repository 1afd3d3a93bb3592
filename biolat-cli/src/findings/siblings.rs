//! Devices that are slower than others of the same model.

use std::{cmp::Ordering, collections::HashMap};

use biolat_model::text::format::NumberFormat;

use super::evidence::{MINIMUM_FOR_P99, drive_latency};
use crate::window::{DeviceWindow, OpWindow, Window};

/// Minimum factor to report a device as slower than its siblings.
const SLOWER: f64 = 3.0;

/// A difference too small to matter.
const SMALL_DIFFERENCE: f64 = 500e-6;

/// 99th percentiles by kind of device and op, in ascending order, each with its device. Only for devices with enough I/Os.
pub(super) struct P99s<'a>(HashMap<(Kind<'a>, &'a str), Vec<(f64, &'a str)>>);

impl<'a> P99s<'a> {
    pub(super) fn of(window: &'a Window) -> Self {
        let mut all: HashMap<_, Vec<_>> = HashMap::new();
        for device in &window.devices {
            for op in &device.ops {
                let p99 = p99(device, op).map(|p99| (p99, device.name.as_str()));
                all.entry((Kind::of(device), op.name.as_str())).or_default().extend(p99);
            }
        }
        all.values_mut().for_each(|p99s| p99s.sort_unstable_by(in_order));
        Self(all)
    }

    /// The p99 of a device, the number of its siblings that have one, and their median.
    fn compared(&self, device: &DeviceWindow, op: &str) -> Option<(f64, usize, f64)> {
        let own = p99(device, device.ops.iter().find(|known| known.name == op)?)?;
        let all = self.0.get(&(Kind::of(device), op))?;
        let place = all.binary_search_by(|had| in_order(had, &(own, &device.name))).ok()?;
        let others = all.len() - 1;
        let middle = others / 2;
        let (median, _) = all.get(if middle < place { middle } else { middle + 1 })?;
        Some((own, others, *median))
    }
}

fn in_order((one, one_name): &(f64, &str), (other, other_name): &(f64, &str)) -> Ordering {
    one.total_cmp(other).then_with(|| one_name.cmp(other_name))
}

fn p99(device: &DeviceWindow, op: &OpWindow) -> Option<f64> {
    let latencies = drive_latency(device, &op.figures);
    let is_enough = latencies.count() >= MINIMUM_FOR_P99;
    latencies.percentile(0.99).filter(|_| is_enough)?.middle()
}

/// Compares reads with reads and writes with writes, each with the median of the siblings.
pub(super) fn slower(device: &DeviceWindow, p99s: &P99s<'_>, numbers: NumberFormat) -> Option<String> {
    let compare = |op: &str| {
        let (own, others, median) = p99s.compared(device, op)?;
        (own >= SLOWER * median && own - median >= SMALL_DIFFERENCE).then(|| {
            let (of, whose) = match others {
                1 => ("the other device".to_owned(), "its"),
                count => (format!("{count} other devices"), "their median of"),
            };
            format!(
                "{}: its {op}s are slower than those of {of} of its {}: p99 {}, {:.0} times {whose} {}.",
                device.name,
                if device.model.is_empty() { "kind" } else { "model" },
                numbers.latency(own),
                own / median,
                numbers.latency(median)
            )
        })
    };
    ["read", "write"].into_iter().find_map(compare)
}

/// The traits that siblings share: the model or, without one, the driver and whether they rotate.
#[derive(PartialEq, Eq, Hash)]
enum Kind<'a> {
    Model(&'a str),
    Driver(&'a str, bool),
}

impl<'a> Kind<'a> {
    fn of(device: &'a DeviceWindow) -> Self {
        match device.model.as_str() {
            "" => Self::Driver(driver(&device.name), device.rotational),
            model => Self::Model(model),
        }
    }
}

/// The driver's part of a device name: everything before the first digit or the drive letters.
fn driver(name: &str) -> &str {
    let lettered = ["xvd", "vd", "sd", "hd"].into_iter().find(|driver| name.starts_with(driver));
    lettered.unwrap_or_else(|| name.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default())
}
