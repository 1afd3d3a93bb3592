//! What stands out of a window, in words. Each has a minimum below which nothing is said: few I/Os tell nothing.

use biolat_common::series::Phase;

use super::{
    draw::why,
    histogram::Histogram,
    modes,
    units::{self, Units},
    window::{Device, Figures, Window},
};

/// Fewer I/Os than this of a device tell nothing of it.
const MINIMUM: u64 = 100;

/// Fewer I/Os than this have no 99th percentile that is worth comparing.
const MINIMUM_FOR_P99: u64 = 500;

/// From here on an I/O waits more than it is worked on.
const QUEUE_SHARE: f64 = 0.5;

/// A wait in the queue that nobody feels, on average.
const SHORT_WAIT: f64 = 100e-6;

/// How much slower than its siblings a drive is, to be told.
const SLOWER: f64 = 3.0;

/// A difference that nobody feels.
const SMALL_DIFFERENCE: f64 = 500e-6;

/// An I/O that took longer than this has been felt.
const STALL: i32 = 0;

/// Completions that the probe was not run for, of all: some few are usual on CPUs that idle.
const UNSEEN_SHARE: f64 = 0.01;

/// Losses that are no fault: what is not an I/O of a disk, or is not stamped on purpose.
const USUAL_LOSSES: [&str; 2] = ["passthrough", "no_disk"];

/// The sentences; the last one names the slowest device, or says that nothing stands out.
#[must_use]
pub fn findings(window: &Window, units: Units) -> Vec<String> {
    let words = Words { window, units };
    let mut said = Vec::new();
    for device in &window.devices {
        said.extend(words.errors(device));
        said.extend(words.stalls(device));
        said.extend(words.queue(device));
        said.extend(words.siblings(device));
        said.extend(words.two_kinds(device));
        said.extend(words.missing(device));
        said.extend(words.unseen(device));
    }
    said.extend(words.losses());
    if said.is_empty() {
        said.push(words.nothing());
    }
    said.extend(words.slowest());
    said
}

struct Words<'a> {
    window: &'a Window,
    units: Units,
}

impl Words<'_> {
    fn latency(&self, seconds: f64) -> String {
        self.units.latency(seconds)
    }

    fn errors(&self, device: &Device) -> Vec<String> {
        let failed = device.ops.iter().flat_map(|op| {
            op.figures.errors.iter().map(|(status, count)| {
                format!("{}: {} failed with {status}.", device.name, counted(*count, &op.name))
            })
        });
        failed.collect()
    }

    /// Reads and writes: a discard or a flush may take its time.
    fn stalls(&self, device: &Device) -> Vec<String> {
        let stalled = device.ops.iter().filter(|op| matches!(op.name.as_str(), "read" | "write"));
        let stalled = stalled.filter_map(|op| {
            let total = op.figures.of(Phase::Total);
            let long = total.overflow + total.buckets.range(STALL + 1..).map(|(_, count)| count).sum::<u64>();
            let max = total.max().filter(|_| long > 0)?;
            let longest = max.middle().unwrap_or(max.lower);
            Some(format!(
                "{}: {} took longer than 1 s, the longest {}.",
                device.name,
                counted(long, &op.name),
                self.latency(longest)
            ))
        });
        stalled.collect()
    }

    fn queue(&self, device: &Device) -> Option<String> {
        let all = device.all();
        let (queue, driver) = (all.of(Phase::Queue), all.of(Phase::Device));
        let share = all.queue_share()?;
        let (wait, work) = (queue.mean()?, driver.mean()?);
        let is_felt = driver.count() >= MINIMUM && share > QUEUE_SHARE && wait >= SHORT_WAIT;
        is_felt.then(|| {
            format!(
                "{}: {} of the time is waiting before the driver has the I/O (mean {}; the device itself {}): it gets \
                 more than it can take, or its I/O scheduler or a limit holds it back.",
                device.name,
                units::share(share),
                self.latency(wait),
                self.latency(work)
            )
        })
    }

    /// Reads are compared with reads, and with the median of the others of its kind.
    fn siblings(&self, device: &Device) -> Option<String> {
        let siblings: Vec<_> = self
            .window
            .devices
            .iter()
            .filter(|other| other.name != device.name && is_sibling(device, other))
            .collect();
        let compare = |op: &str| {
            let p99 = |device: &Device| {
                let figures = &device.ops.iter().find(|found| found.name == op)?.figures;
                let latencies = work_of(device, figures);
                let is_enough = latencies.count() >= MINIMUM_FOR_P99;
                latencies.percentile(0.99).filter(|_| is_enough)?.middle()
            };
            let own = p99(device)?;
            let mut others: Vec<_> = siblings.iter().filter_map(|sibling| p99(sibling)).collect();
            others.sort_by(f64::total_cmp);
            let median = *others.get(others.len() / 2)?;
            (own >= SLOWER * median && own - median >= SMALL_DIFFERENCE).then(|| {
                let of = match others.len() {
                    1 => "that of the other one".to_owned(),
                    count => format!("those of {count} others (median)"),
                };
                let kind = if device.model.is_empty() { "of its kind" } else { "of its model" };
                format!(
                    "{}: its {op}s are slower than {of} {kind}: p99 {}, against {}, {:.0} times as long.",
                    device.name,
                    self.latency(own),
                    self.latency(median),
                    own / median
                )
            })
        };
        ["read", "write"].into_iter().find_map(compare)
    }

    fn two_kinds(&self, device: &Device) -> Vec<String> {
        let found = device.ops.iter().filter_map(|op| {
            let [fast, slow] = modes::two(work_of(device, &op.figures))?;
            Some(format!(
                "{}: {}s are of two kinds: {} near {}, {} near {}, and hardly any in between, as where some are answered \
                 by a cache and the others are not.",
                device.name,
                op.name,
                units::share(fast.share),
                self.latency(fast.top),
                units::share(slow.share),
                self.latency(slow.top)
            ))
        });
        found.collect()
    }

    fn missing(&self, device: &Device) -> Option<String> {
        (device.all().ios() > 0 && !device.lacks.is_empty()).then(|| format!("{}.", device.lacks))
    }

    fn unseen(&self, device: &Device) -> Option<String> {
        let unseen: u64 = device.unseen.values().sum();
        let all = unseen + device.all().ios();
        (all >= MINIMUM && unseen as f64 > all as f64 * UNSEEN_SHARE).then(|| {
            format!(
                "{}: the kernel did not run the probe for {} of {} I/Os ({}): they are in no histogram.",
                device.name,
                units::count(unseen),
                units::count(all),
                units::share(unseen as f64 / all as f64)
            )
        })
    }

    fn losses(&self) -> Vec<String> {
        let lost = self.window.lost.iter().filter(|(reason, _)| !USUAL_LOSSES.contains(&reason.as_str()));
        let lost = lost.map(|(reason, count)| {
            format!("{} are in no histogram, as {reason}: {}.", counted(*count, "completion"), why(reason))
        });
        lost.collect()
    }

    /// By total latency, as it is felt.
    fn slowest(&self) -> Option<String> {
        let p99 = |device: &Device| {
            let all = device.all();
            let total = all.of(Phase::Total);
            let is_enough = total.count() >= MINIMUM_FOR_P99;
            Some((total.percentile(0.99).filter(|_| is_enough)?.middle()?, total.count()))
        };
        let mut all: Vec<_> =
            self.window.devices.iter().filter_map(|device| Some((p99(device)?, &device.name))).collect();
        all.sort_by(|((a, _), _), ((b, _), _)| b.total_cmp(a));
        let [((slow, ios), name), .., ((fast, _), _)] = all[..] else { return None };
        (slow > fast).then(|| {
            format!(
                "The slowest of {} devices with {MINIMUM_FOR_P99} I/Os or more is {name}: p99 {} of {} I/Os, queue and \
                 device together.",
                all.len(),
                self.latency(slow),
                units::count(ios)
            )
        })
    }

    fn nothing(&self) -> String {
        let enough = self.window.devices.iter().filter(|device| device.all().ios() >= MINIMUM).count();
        if enough == 0 {
            format!("No device had {MINIMUM} I/Os: too few to say anything.")
        } else {
            "Nothing stands out: no errors, no stalls, no device that mostly waits, none slower than its siblings."
                .to_owned()
        }
    }
}

/// What the device does, without the queue where that is known.
fn work_of<'a>(device: &Device, figures: &'a Figures) -> &'a Histogram {
    let phase = if device.has(Phase::Device) { Phase::Device } else { Phase::Total };
    figures.of(phase)
}

/// Of one model; where a drive has none, of one kind: driver, and whether it spins.
fn is_sibling(device: &Device, other: &Device) -> bool {
    let driver = |device: &Device| -> String {
        device.name.chars().take_while(char::is_ascii_alphabetic).take(4).collect()
    };
    if device.model.is_empty() {
        other.model.is_empty() && driver(device) == driver(other) && device.rotational == other.rotational
    } else {
        device.model == other.model
    }
}

fn counted(count: u64, what: &str) -> String {
    let what = if what.contains('_') { format!("{what} I/O") } else { what.to_owned() };
    let plural = match (count, what.as_str()) {
        (1, _) => "",
        (_, "flush") => "es",
        _ => "s",
    };
    format!("{} {what}{plural}", units::count(count))
}
