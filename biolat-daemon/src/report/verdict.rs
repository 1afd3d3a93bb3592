//! What stands out of a window, in words. Each has a minimum below which nothing is said: few I/Os tell nothing.

use std::collections::HashMap;

use biolat_common::series::Phase;

use super::{
    modes,
    units::{self, Units},
    window::{Device, Figures, Window},
};
use crate::{histogram::Histogram, losses};

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

/// So many reads or writes are enough for half of them to say something: a slow device ends few.
const MINIMUM_FOR_MEDIAN: u64 = 10;

/// No drive takes that long for most of what it is given, unless it is sick or given too much.
const SLOW_MEDIAN: f64 = 0.1;

/// Completions that the probe was not run for, of all: some few are usual on CPUs that idle.
const UNSEEN_SHARE: f64 = 0.01;

/// The sentences; the last one names the slowest device, or says that nothing stands out.
#[must_use]
pub fn findings(window: &Window, units: Units) -> Vec<String> {
    let words = Words { window, units, p99s: p99s(window) };
    let mut said = Vec::new();
    for device in &window.devices {
        said.extend(words.hangs(device));
        said.extend(words.errors(device));
        said.extend(words.stalls(device));
        said.extend(words.slow(device));
        said.extend(words.queue(device));
        said.extend(words.siblings(device));
        said.extend(words.two_kinds(device));
        said.extend(words.missing(device));
        said.extend(words.unseen(device));
    }
    said.extend(words.gone());
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
    p99s: HashMap<(&'a str, &'a str), f64>,
}

/// By device and op, where there are enough I/Os for one.
fn p99s(window: &Window) -> HashMap<(&str, &str), f64> {
    let ops = window.devices.iter().flat_map(|device| device.ops.iter().map(move |op| (device, op)));
    ops.filter_map(|(device, op)| {
        let latencies = work_of(device, &op.figures);
        let is_enough = latencies.count() >= MINIMUM_FOR_P99;
        let p99 = latencies.percentile(0.99).filter(|_| is_enough)?.middle()?;
        Some(((device.name.as_str(), op.name.as_str()), p99))
    })
    .collect()
}

impl Words<'_> {
    fn latency(&self, seconds: f64) -> String {
        self.units.latency(seconds)
    }

    /// What does not end is in no histogram, and looks as if nothing happened.
    fn hangs(&self, device: &Device) -> Option<String> {
        let is_it = device.under_way > 0 && device.all().ios() == 0;
        is_it.then(|| {
            format!(
                "{}: {} under way now, and none ended in {}: it hangs, or has only just been given something.",
                device.name,
                if device.under_way == 1 {
                    "1 I/O is".to_owned()
                } else {
                    format!("{} I/Os are", units::count(device.under_way))
                },
                units::seconds(self.window.seconds)
            )
        })
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
            let long = total.overflow + total.count_in(STALL + 1..);
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

    fn slow(&self, device: &Device) -> Vec<String> {
        let slow = device.ops.iter().filter(|op| matches!(op.name.as_str(), "read" | "write"));
        let slow = slow.filter_map(|op| {
            let total = op.figures.of(Phase::Total);
            let median = total.percentile(0.5).filter(|median| median.lower >= SLOW_MEDIAN)?;
            (total.count() >= MINIMUM_FOR_MEDIAN).then(|| {
                format!(
                    "{}: half of its {} took {} or longer, queue and device together.",
                    device.name,
                    counted(total.count(), &op.name),
                    self.latency(median.middle().unwrap_or(median.lower))
                )
            })
        });
        slow.collect()
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
                 more than it can take, or its I/O scheduler holds it back.",
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
            let p99 = |device: &Device| self.p99s.get(&(device.name.as_str(), op)).copied();
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
                "{}: {} are of two kinds: {} near {}, {} near {}, and hardly any in between, as where some are answered \
                 by a cache and the others are not.",
                device.name,
                plural(&op.name),
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

    fn gone(&self) -> Vec<String> {
        let gone = self.window.gone.iter();
        gone.map(|name| format!("{name}: it went away, and what it did until then is not in this summary."))
            .collect()
    }

    fn losses(&self) -> Vec<String> {
        let lost = self.window.lost.iter().filter(|(reason, _)| !losses::is_expected(reason));
        let lost = lost.map(|(reason, count)| {
            let are = if *count == 1 { "is" } else { "are" };
            format!(
                "{} {are} in no histogram, as {reason}: {}.",
                counted(*count, "completion"),
                losses::meaning(reason)
            )
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
            format!("No device ended {MINIMUM} I/Os: too few to say anything.")
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
    if device.model.is_empty() {
        other.model.is_empty()
            && driver(&device.name) == driver(&other.name)
            && device.rotational == other.rotational
    } else {
        device.model == other.model
    }
}

/// The part of a name that tells the driver; where drives are lettered, the letters are not of it.
fn driver(name: &str) -> &str {
    let lettered = ["xvd", "vd", "sd", "hd"].into_iter().find(|driver| name.starts_with(driver));
    lettered.unwrap_or_else(|| name.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default())
}

fn counted(count: u64, what: &str) -> String {
    let what = match count {
        1 => full(what),
        _ => plural(what),
    };
    format!("{} {what}", units::count(count))
}

/// What is no word by itself is that kind of I/O.
fn full(what: &str) -> String {
    if what.contains('_') { format!("{what} I/O") } else { what.to_owned() }
}

fn plural(what: &str) -> String {
    full(what) + if what == "flush" { "es" } else { "s" }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::findings;
    use crate::{
        api,
        report::{
            samples::{self, histogram, op},
            units::Units,
            window::Window,
        },
    };

    /// So many reads of 2^(index/8) s or a bit less, that waited and were worked on for so long on average.
    fn reads(buckets: &[(i32, u64)], wait: f64, work: f64) -> api::Op {
        let count = buckets.iter().map(|(_, count)| count).sum::<u64>() as f64;
        let told = |mean: f64| histogram(0, buckets, 0, mean * count);
        op("read", 0, told(wait), told(work), told(wait + work))
    }

    fn drive(name: &str, op: api::Op) -> api::Device {
        api::Device { model: "Drive 9".into(), ..samples::device(name, 9.0, vec![op]) }
    }

    fn said(devices: Vec<api::Device>, lost: &[(&str, u64)]) -> Vec<String> {
        let lost: BTreeMap<_, _> = lost.iter().map(|&(reason, count)| (reason.to_owned(), count)).collect();
        let after = api::Snapshot { lost, ..samples::snapshot(60.0, devices) };
        let window = Window::between(&samples::snapshot(0.0, vec![]), &after);
        findings(&window, Units { unicode: true, milliseconds: false })
    }

    /// 977 µs is 2^-10 s, the upper end of bucket -80.
    const QUICK: &[(i32, u64)] = &[(-80, 600)];

    fn quiet(said: &[String]) -> bool {
        matches!(said, [only] if only.starts_with("Nothing stands out"))
    }

    #[test]
    fn nothing_stands_out() {
        let told =
            said(vec![drive("sda", reads(QUICK, 1e-6, 9e-4)), drive("sdb", reads(QUICK, 1e-6, 9e-4))], &[]);
        assert!(quiet(&told), "{told:?}");
        // What is no fault, and what some few CPUs that idle give.
        let mut sda = drive("sda", reads(QUICK, 1e-6, 9e-4));
        sda.unseen.insert("read".into(), 3);
        let told = said(vec![sda], &[("passthrough", 40), ("no_disk", 2), ("clock", 0)]);
        assert!(quiet(&told), "{told:?}");
        let told = said(vec![drive("sda", reads(&[(-80, 99)], 1.0, 0.1))], &[]);
        assert_eq!(told, ["No device ended 100 I/Os: too few to say anything."]);
    }

    /// One I/O after another, 200 ms each: in 5 s there are no more of them.
    #[test]
    fn a_slow_device_ends_few() {
        let told = said(
            vec![drive("sda", reads(QUICK, 0.0, 9e-4)), drive("sdb", reads(&[(-18, 25)], 0.0, 0.2))],
            &[],
        );
        assert_eq!(told, ["sdb: half of its 25 reads took 201 ms or longer, queue and device together."]);
        let told = said(
            vec![drive("sda", reads(QUICK, 0.0, 9e-4)), drive("sdb", reads(&[(-18, 9)], 0.0, 0.2))],
            &[],
        );
        assert!(quiet(&told), "{told:?}");
    }

    #[test]
    fn a_device_that_ends_nothing() {
        let root = std::env::temp_dir().join(format!("biolat-test-under-way-{}", std::process::id()));
        for (name, counts) in [("sda", "       0        4\n"), ("sdb", "       0        0\n")] {
            let path = root.join("block").join(name);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("inflight"), counts).unwrap();
        }
        let devices = ["sda", "sdb", "sdc"].map(|name| drive(name, reads(&[], 0.0, 0.0)));
        let (before, after) = (samples::snapshot(0.0, vec![]), samples::snapshot(3.0, devices.into()));
        let window = Window::between(&before, &after).asking(&root);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            findings(&window, Units { unicode: true, milliseconds: false }),
            [
                "sda: 4 I/Os are under way now, and none ended in 3 s: it hangs, or has only just been given something."
            ]
        );
    }

    #[test]
    fn a_device_that_went_away() {
        let before = samples::snapshot(
            0.0,
            vec![drive("sda", reads(QUICK, 0.0, 9e-4)), drive("sdb", reads(QUICK, 0.0, 9e-4))],
        );
        let after = samples::snapshot(60.0, vec![drive("sda", reads(&[(-80, 1200)], 0.0, 9e-4))]);
        let told = findings(&Window::between(&before, &after), Units { unicode: true, milliseconds: false });
        assert_eq!(told, ["sdb: it went away, and what it did until then is not in this summary."]);
    }

    #[test]
    fn the_queue_dominates() {
        let told = said(vec![drive("sda", reads(QUICK, 3e-3, 1e-3))], &[]);
        assert!(
            told[0].starts_with("sda: 75 % of the time is waiting before the driver has the I/O"),
            "{told:?}"
        );
        assert!(told[0].contains("mean 3.00 ms; the device itself 1.00 ms"), "{told:?}");
        // Half of next to nothing.
        assert!(quiet(&said(vec![drive("sda", reads(QUICK, 3e-5, 1e-5))], &[])));
        assert!(quiet(&said(vec![drive("sda", reads(QUICK, 0.9e-3, 1e-3))], &[])));
    }

    #[test]
    fn one_is_slower_than_its_siblings() {
        let trio = |slow: &[(i32, u64)]| {
            said(
                vec![
                    drive("sda", reads(QUICK, 0.0, 9e-4)),
                    drive("sdb", reads(slow, 0.0, 9e-4)),
                    drive("sdc", reads(QUICK, 0.0, 9e-4)),
                ],
                &[],
            )
        };
        // 14 buckets up: 2^(14/8) times as long.
        let told = trio(&[(-80, 500), (-66, 100)]);
        assert!(
            told[0].starts_with("sdb: its reads are slower than those of 2 others (median) of its model"),
            "{told:?}"
        );
        assert!(told[0].contains("p99 3.15 ms, against 935 µs, 3 times as long"), "{told:?}");
        assert!(
            told[1]
                .contains("The slowest of 3 devices with 500 I/Os or more is sdb: p99 3.15 ms of 600 I/Os"),
            "{told:?}"
        );
        assert_eq!(told.len(), 2);
        // Twice as long is the way of drives; four I/Os of 600 are no percentile; 400 I/Os have none.
        assert!(trio(&[(-72, 600)])[0].starts_with("Nothing"));
        assert!(trio(&[(-80, 596), (-64, 4)])[0].starts_with("Nothing"));
        assert!(trio(&[(-64, 400)])[0].starts_with("Nothing"));
        // Another model is no sibling; without any, the driver tells.
        let other = |model: &str| {
            let mut slow = drive("sdb", reads(&[(-64, 600)], 0.0, 4e-3));
            let mut quick = drive("sda", reads(QUICK, 0.0, 9e-4));
            (slow.model, quick.model) = (model.into(), if model.is_empty() { "" } else { "Drive 9" }.into());
            said(vec![quick, slow], &[])
        };
        assert!(other("Drive 10")[0].starts_with("Nothing"));
        assert!(other("")[0].starts_with("sdb: its reads are slower than that of the other one of its kind"));
    }

    #[test]
    fn two_kinds_of_latency() {
        let told = said(vec![drive("sda", reads(&[(-110, 700), (-60, 300)], 0.0, 1e-3))], &[]);
        assert!(
            told[0].starts_with("sda: reads are of two kinds: 70 % near 69.5 µs, 30 % near 5.29 ms"),
            "{told:?}"
        );
    }

    #[test]
    fn errors_and_stalls() {
        let mut read = reads(&[(-80, 10), (24, 1)], 0.0, 1.0);
        read.errors.insert("medium".into(), 2);
        let mut flush = reads(&[(24, 1)], 0.0, 8.0);
        flush.op = "flush".into();
        let mut sda = drive("sda", read);
        sda.ops.push(flush);
        let told = said(vec![sda], &[]);
        assert_eq!(told[0], "sda: 2 reads failed with medium.");
        assert_eq!(told[1], "sda: 1 read took longer than 1 s, the longest 7.66 s.");
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn what_the_figures_lack() {
        let mut sda = drive("sda", reads(QUICK, 0.0, 9e-4));
        sda.unseen.insert("read".into(), 60);
        let mut sdb = samples::device("sdb", 9.0, vec![reads(QUICK, 0.0, 0.0)]);
        sdb.phases = vec!["total".into()];
        sdb.lacks = "device sdb: queue and device latency may be missing; turn it on with: echo".into();
        let told = said(vec![sda, sdb], &[("no_room", 1_234), ("passthrough", 1)]);
        assert!(
            told[0].starts_with("sda: the kernel did not run the probe for 60 of 660 I/Os (9.1 %)"),
            "{told:?}"
        );
        assert!(told[1].contains("sdb: queue and device latency may be missing"), "{told:?}");
        assert!(
            told[2].starts_with("1,234 completions are in no histogram, as no_room: more series"),
            "{told:?}"
        );
        assert_eq!(told.len(), 3);
    }
}
