//! Workloads whose I/O is slow while another workload keeps the same drive busy.

use biolat_common::series::Phase;
use biolat_model::{
    band_histogram::BandHistogram,
    text::format::{self, NumberFormat},
};

use crate::{
    window::{DeviceWindow, Window},
    workloads::{OTHER, ROOT, WorkloadWindow},
};

/// Minimum share of the drive's time for a culprit.
const CULPRIT_SHARE: f64 = 0.5;

/// Maximum share of the drive's time for a victim.
const VICTIM_SHARE: f64 = 0.25;

/// Maximum share of all requests' time in queue and drive for a victim: above it, the victim mostly waits for its own requests.
const VICTIM_OUTSTANDING: f64 = 0.5;

/// Minimum number of reads and writes of a victim, and their minimum rate per second.
const MINIMUM: u64 = 10;
const MINIMUM_RATE: f64 = 1.0;

/// Share of a victim's reads and writes that may be fast: a few stalls alone would raise the mean.
const SHORT_SHARE: f64 = 0.75;

/// Limits that depend on the kind of drive.
struct Limits {
    /// Minimum total latency of a victim: its mean and many of its I/Os must reach it.
    latency: f64,
    /// Minimum average number of a culprit's requests in the drive: with fewer, the drive has capacity to spare.
    depth: f64,
}

/// The minimum depth if the victim mostly waits in the queue: a drive that takes one request at a time never has more than one.
const QUEUED_DEPTH: f64 = 0.5;

const ROTATING: Limits = Limits { latency: 30e-3, depth: 0.5 };
const OTHERS: Limits = Limits { latency: 2e-3, depth: 1.0 };

/// Finds the victim with the longest total wait. The sentence only states what is measured, because no timestamp shows whether
/// the victim waits for the culprit's requests.
pub(super) fn noisy_neighbor(
    device: &DeviceWindow,
    window: &Window,
    numbers: NumberFormat,
) -> Option<String> {
    let workloads = device.workloads.as_deref().filter(|_| device.has(Phase::Device))?;
    let limits = if device.rotational { ROTATING } else { OTHERS };
    // The first one has the largest share.
    let culprit = workloads.first().filter(|first| first.share >= CULPRIT_SHARE)?;
    let depth = window.rate(1) * culprit.all.device_seconds;
    let outstanding: f64 = workloads.iter().map(|workload| workload.all.total_seconds()).sum();
    let is_victim = |workload: &&WorkloadWindow| {
        let ios = workload.reads_and_writes.ios();
        // The kernel's writes include flushes, which can take a long time on a healthy drive.
        !matches!(workload.cgroup.as_str(), ROOT | OTHER)
            && ios >= MINIMUM
            && window.rate(ios) >= MINIMUM_RATE
            && workload.share <= VICTIM_SHARE
            && workload.all.total_seconds() <= VICTIM_OUTSTANDING * outstanding
            && depth >= if is_queued(workload) { QUEUED_DEPTH } else { limits.depth }
            && is_slow(&workload.reads_and_writes.total, limits.latency)
    };
    let waited = |workload: &WorkloadWindow| workload.reads_and_writes.total_seconds();
    let victim =
        workloads.iter().filter(is_victim).max_by(|one, other| waited(one).total_cmp(&waited(other)))?;
    Some(format!(
        "{}: reads and writes of {} take {} (mean total latency), while {} of the drive's time goes to {}, {} to {}.",
        device.name,
        victim.in_words(),
        numbers.latency(victim.reads_and_writes.total.mean()?),
        format::share(culprit.share),
        culprit.in_words(),
        format::share(victim.share),
        victim.in_words(),
    ))
}

/// Whether it spends more time in the queue than in the drive.
fn is_queued(workload: &WorkloadWindow) -> bool {
    let WorkloadWindow { reads_and_writes, .. } = workload;
    reads_and_writes.total_seconds() > 2.0 * reads_and_writes.device_seconds
}

fn is_slow(latencies: &BandHistogram, limit: f64) -> bool {
    latencies.mean().is_some_and(|mean| mean >= limit)
        && latencies.percentile(SHORT_SHARE).is_some_and(|bounds| bounds.upper >= limit)
}

#[cfg(test)]
mod tests {
    use biolat_model::{
        snapshot::{DeviceView, Snapshot, WorkloadView},
        text::format::NumberFormat,
    };
    use biolat_testing::samples::{self, usage};

    use crate::window::Window;

    /// A cgroup's path, its number of reads on sda, and the milliseconds that each read spends in the queue and in the drive.
    type Reads<'a> = (&'a str, u64, f64, f64);

    fn workload(&(cgroup, ios, queue, in_device): &Reads<'_>) -> WorkloadView {
        samples::workload(cgroup, vec![usage("sda", "read", ios, queue / 1e3, in_device / 1e3)])
    }

    /// The finding in a window of 10 s.
    fn found(workloads: Vec<WorkloadView>, sda: DeviceView) -> Option<String> {
        found_in(10.0, workloads, sda)
    }

    fn found_in(seconds: f64, workloads: Vec<WorkloadView>, sda: DeviceView) -> Option<String> {
        let after = Snapshot { workloads: Some(workloads), ..samples::snapshot(1.0 + seconds, vec![sda]) };
        let window = Window::between(&samples::snapshot(1.0, vec![]), &after);
        super::noisy_neighbor(&window.devices[0], &window, NumberFormat::UNICODE)
    }

    fn on(rotational: bool, workloads: &[Reads<'_>]) -> Option<String> {
        let mut sda = samples::device("sda", 9.0, vec![]);
        sda.device.rotational = rotational;
        found(workloads.iter().map(workload).collect(), sda)
    }

    /// It has 20 requests in the drive on average.
    const BACKUP: Reads<'_> = ("backup.service", 20_000, 2.0, 10.0);
    const DB: Reads<'_> = ("db.service", 1000, 2.0, 12.0);

    #[test]
    fn reports_a_victim_of_a_busy_drive() {
        let expected = "sda: reads and writes of db.service take 14.0 ms (mean total latency), while 94 % of the \
                        drive's time goes to backup.service, 5.7 % to db.service.";
        assert_eq!(on(false, &[DB, BACKUP]).as_deref(), Some(expected));
    }

    /// Whether there is a finding, and which workloads it names as victim and culprit.
    #[test]
    fn names_victim_and_culprit() {
        let names = |workloads: &[Reads<'_>], rotational| {
            let found = on(rotational, workloads)?;
            let (_, rest) = found.split_once("writes of ")?;
            let (victim, rest) = rest.split_once(" take ")?;
            let (_, rest) = rest.split_once(" goes to ")?;
            Some((victim.to_owned(), rest.rsplit_once(", ")?.0.to_owned()))
        };
        let is = |victim: &str, culprit: &str| Some((victim.to_owned(), culprit.to_owned()));
        let db = || is("db.service", "backup.service");
        let of = |cgroup| (cgroup, BACKUP.1, BACKUP.2, BACKUP.3);
        let db_of = |ios, queue, in_device| ("db.service", ios, queue, in_device);
        let ssd = [
            ("a victim and a culprit", vec![DB, BACKUP], db()),
            ("one alone", vec![BACKUP], None),
            ("two equal ones", vec![("db.service", 20_000, 2.0, 10.0), BACKUP], None),
            ("nobody has half", vec![DB, BACKUP, of("b"), of("c")], None),
            ("a victim with a quarter", vec![db_of(5500, 2.0, 12.0), BACKUP], db()),
            ("a victim with more", vec![db_of(6000, 2.0, 12.0), BACKUP], None),
            ("a quiet drive", vec![("db.service", 20, 2.0, 12.0), ("backup.service", 90, 2.0, 100.0)], None),
            ("one request at a time", vec![db_of(100, 2.0, 12.0), ("backup.service", 990, 0.0, 10.0)], None),
            ("behind one at a time", vec![db_of(100, 20.0, 1.0), ("backup.service", 990, 0.0, 10.0)], db()),
            ("behind few", vec![db_of(100, 20.0, 1.0), ("backup.service", 490, 0.0, 10.0)], None),
            ("short latencies", vec![db_of(1000, 0.9, 1.0), BACKUP], None),
            ("long enough", vec![db_of(1000, 1.1, 1.0), BACKUP], db()),
            ("too few", vec![db_of(9, 2.0, 12.0), BACKUP], None),
            ("just enough", vec![db_of(10, 2.0, 12.0), BACKUP], db()),
            ("it waits for its own", vec![db_of(9000, 100.0, 1.0), BACKUP], None),
            (
                "the root cgroup",
                vec![DB, of("/")],
                is("db.service", "the root cgroup (the kernel and processes in it)"),
            ),
            ("the root cgroup waits", vec![("/", 1000, 2.0, 12.0), BACKUP], None),
            ("all others", vec![DB, of("other")], is("db.service", "the workloads counted as other")),
            ("all others wait", vec![("other", 1000, 2.0, 12.0), BACKUP], None),
            (
                "the one that waits longest",
                vec![("few.service", 20, 0.0, 50.0), DB, BACKUP, ("web.service", 500, 0.0, 20.0)],
                db(),
            ),
        ];
        for (what, workloads, expected) in ssd {
            assert_eq!(names(&workloads, false), expected, "{what}");
        }
        // One request at a time is enough to keep a disk busy.
        let copy = ("backup.service", 1800, 0.0, 4.0);
        let disk = [
            ("a seek", vec![db_of(100, 10.0, 15.0), copy], None),
            ("many seeks", vec![db_of(100, 20.0, 15.0), copy], db()),
            ("a quiet disk", vec![db_of(20, 20.0, 15.0), ("backup.service", 1200, 0.0, 4.0)], None),
        ];
        for (what, workloads, expected) in disk {
            assert_eq!(names(&workloads, true), expected, "{what}");
        }
    }

    /// Discards and flushes can take a long time on a healthy drive.
    #[test]
    fn only_judges_reads_and_writes() {
        let of = |op: &str| {
            let trim = samples::workload("fstrim.service", vec![usage("sda", op, 100, 0.0, 40e-3)]);
            found(vec![trim, workload(&BACKUP)], samples::device("sda", 9.0, vec![]))
        };
        assert_eq!((of("discard"), of("flush")), (None, None));
        assert!(of("write").is_some());
    }

    #[test]
    fn ignores_rates_below_one_per_second() {
        let of = |seconds| {
            let workloads = vec![workload(&("db.service", 20, 2.0, 12.0)), workload(&BACKUP)];
            found_in(seconds, workloads, samples::device("sda", 9.0, vec![]))
        };
        assert!(of(20.0).is_some());
        assert_eq!(of(20.1), None);
    }

    #[test]
    fn a_few_stalls_prove_nothing() {
        let of = |stalled: u64| {
            let quick = usage("sda", "read", 1000 - stalled, 0.0, 100e-6);
            let stalls = usage("sda", "write", stalled, 0.0, 20e-3);
            let db = samples::workload("db.service", vec![quick, stalls]);
            found(vec![db, workload(&BACKUP)], samples::device("sda", 9.0, vec![]))
        };
        assert_eq!(of(200), None);
        assert!(of(300).is_some());
    }

    #[test]
    fn reports_nothing_without_a_dispatch_timestamp() {
        let mut sda = samples::device("sda", 9.0, vec![]);
        sda.phases = [false, false, false, true];
        assert_eq!(found([DB, BACKUP].iter().map(workload).collect(), sda), None);
    }
}
