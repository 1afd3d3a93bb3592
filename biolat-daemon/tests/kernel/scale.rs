//! A large server: 384 CPUs and 21 drives, and a drive with a hundred thousand requests.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use biolat_common::inflight::SLOTS_PER_RUN;
use biolat_probe::{DEFAULT_WORKLOADS, Plan, workload_bytes};

use crate::support::{
    block,
    bpf::{InflightProgram, RunStatistics, Runs},
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat, WRITE},
    figures::{Figures, PROTOBUF},
    http,
    inflight::Shown,
    load::{StopFlag, Target},
    machine::{MIB, ThreadCpuTime, counter_memory, possible_cpus, slot_bytes, slots},
    null_blk::NullBlk,
};

/// Returns the total duration of all collections in seconds, and their number.
fn collections(figures: &Figures) -> (f64, f64) {
    let metrics = figures.metrics("biolat_collect_duration_seconds", &[]);
    let histogram = metrics[0].histogram.as_ref().unwrap();
    (histogram.sample_sum, histogram.sample_count as f64)
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn counts_21_drives_on_384_cpus() {
    check_reads_and_writes(384, 21, 112);
}

/// Runs with this many drives, on a machine with this many possible CPUs; the counters take at most `counters` MiB.
pub(crate) fn check_reads_and_writes(cpus: u64, drives: u64, counters: u64) {
    assert_eq!(possible_cpus(), cpus);
    let attach =
        || -> Vec<_> { (0..drives).map(|_| NullBlk::in_memory(&[("submit_queues", "2")])).collect() };
    let series = 2 * drives;
    let disks = attach();
    let daemon = Daemon::start(&["--interval", "500ms", "--device", "nullb.*"]);
    let accounted: Vec<_> = disks.iter().map(|disk| Stat::of(&disk.name)).collect();
    for disk in &disks {
        let target = Target::open(&disk.path());
        target.read(50);
        target.write(30);
    }
    let figures = daemon.fresh();
    for (disk, before) in disks.iter().zip(accounted) {
        let now = Stat::of(&disk.name);
        for group in [READ, WRITE] {
            let grown = now.completions(group) - before.completions(group);
            assert_eq!(figures.count(&disk.name, group), grown, "{} {}", disk.name, group.name);
        }
        assert_eq!(figures.missed(&disk.name), 0);
    }

    let bytes = figures.value("biolat_map_bytes", &[]) as u64;
    let room = Plan::of_host(Path::new("/sys")).unwrap().room();
    let of_workloads = workload_bytes(DEFAULT_WORKLOADS, slots(series) as u32, room);
    assert_eq!(bytes, slot_bytes(slots(series)) + of_workloads);
    let in_kernel = counter_memory(daemon.pid());
    println!(
        "maps: {:.2} MiB by the formula, {:.2} MiB as accounted by the kernel",
        bytes as f64 / MIB,
        in_kernel as f64 / MIB
    );
    // The counters, plus at most 64 MiB for workloads.
    assert!((bytes..(counters + 65) << 20).contains(&in_kernel), "{in_kernel} bytes");

    let resident = figures.value("process_resident_memory_bytes", &[]);
    let cpu = |figures: &Figures| figures.value("process_cpu_seconds_total", &[]);
    let (before, mut after) = (Figures::scrape(daemon.address), figures);
    wait_for("ten collections", || {
        thread::sleep(Duration::from_millis(200));
        after = Figures::scrape(daemon.address);
        collections(&after).1 >= collections(&before).1 + 10.0
    });
    let ((began, first), (ended, last)) = (collections(&before), collections(&after));
    println!(
        "RSS {:.1} MiB; a collection {:.1} ms, {:.1} ms CPU with its scrapes",
        resident / MIB,
        (ended - began) / (last - first) * 1e3,
        (cpu(&after) - cpu(&before)) / (last - first) * 1e3
    );
    assert!(resident <= 48.0 * MIB, "RSS {resident}");

    let openmetrics = "Accept: application/openmetrics-text; version=1.0.0\r\n";
    for (format, accept) in [("protobuf", PROTOBUF), ("OpenMetrics", openmetrics), ("text", "")] {
        // The first request for a snapshot encodes it.
        let began = Instant::now();
        let answer = http::get(daemon.address, "/metrics", accept).unwrap();
        println!(
            "{format}: {} KiB in {:.1} ms",
            answer.body.len() >> 10,
            began.elapsed().as_secs_f64() * 1e3
        );
        assert_eq!(answer.status, 200);
    }

    // All drives disappear at once, and the same number of new ones appear and reuse their slots.
    drop(disks);
    let disks = attach();
    wait_for("the others", || {
        let figures = Figures::scrape(daemon.address);
        disks.iter().all(|disk| figures.count(&disk.name, READ) > 0)
    });
    let figures = daemon.fresh();
    let missing = |disk: &NullBlk| Stat::of(&disk.name).completions(READ) - figures.count(&disk.name, READ);
    let lost = figures.lost("no_room") + figures.lost("unknown_device");
    assert_eq!(disks.iter().map(missing).sum::<u64>(), lost, "disk statistics = counted + lost");
    let bytes = figures.value("biolat_map_bytes", &[]) as u64;
    println!("again: {:.2} MiB, {lost} lost", bytes as f64 / MIB);
    assert!(
        bytes <= slot_bytes(slots(series) + 4) + of_workloads && bytes <= (counters + 64) << 20,
        "{bytes} bytes"
    );
}

/// Cumulative work of the daemon's collector at a point in time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    runs: Runs,
    cpu: Duration,
}

/// Samples the collector until the flag is set, often enough for several samples per survey.
fn sample(daemon: &Daemon, stop: &StopFlag) -> Vec<Sample> {
    let (program, cpu) = (InflightProgram::of(daemon.pid()), ThreadCpuTime::of(daemon.pid(), "collect"));
    let mut samples = Vec::new();
    while !stop.is_set() {
        samples.push(Sample { at: Instant::now(), runs: program.runs(), cpu: cpu.read() });
        thread::sleep(Duration::from_millis(10));
    }
    samples
}

/// One survey of all requests of a disk.
#[derive(Debug)]
struct Survey {
    began: Instant,
    duration: Duration,
    /// CPU time of the collector, from the samples within the survey.
    cpu: Duration,
    /// The part of that time spent in the program.
    in_program: Duration,
}

impl Survey {
    /// Returns the surveys with at least this many runs. A long gap between runs separates one collection from the next.
    fn all(samples: &[Sample], runs: u64) -> Vec<Self> {
        let growth = samples.windows(2).filter(|pair| pair[1].runs.count > pair[0].runs.count);
        let mut samples: Vec<_> = growth.flatten().copied().collect();
        samples.dedup_by_key(|sample| sample.at);
        let collections = samples.chunk_by(|one, next| next.at - one.at < Duration::from_millis(300));
        let surveys = collections
            .filter(|samples| samples[samples.len() - 1].runs.count - samples[0].runs.count >= runs);
        surveys.map(|samples| Self::of(samples, runs)).collect()
    }

    /// The first sample precedes the first run, and the last one follows the last run.
    fn of(samples: &[Sample], runs: u64) -> Self {
        assert!(samples.len() > 4, "only {} samples within a survey", samples.len());
        let (before, last) = (&samples[0], &samples[samples.len() - 1]);
        let (first, end) = (&samples[1], &samples[samples.len() - 2]);
        let part = runs as f64 / (end.runs.count - first.runs.count) as f64;
        Self {
            began: before.at,
            duration: last.at - before.at,
            cpu: (end.cpu - first.cpu).mul_f64(part),
            in_program: (end.runs.time - first.runs.time).mul_f64(part),
        }
    }
}

/// A survey of the large disk takes longer than a collection may spend on it. On average, surveys take at most a hundredth of a
/// CPU, and the disk is surveyed again.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn long_survey_is_paid_back_over_time() {
    const LATENCY: u64 = 20_000_000;
    /// Limit for the next survey, which can be late if the emulator gets little CPU time.
    const LONGEST: Duration = Duration::from_secs(170);
    let _statistics = RunStatistics::enable();
    let small = NullBlk::with_latency(LATENCY, &[("submit_queues", "2")]);
    let daemon = Daemon::start(&["--interval", "1s", "--device", "nullb.*"]);
    let (stop, end) = (StopFlag::default(), StopFlag::default());
    let (samples, collections, exact, slots, runs) = thread::scope(|scope| {
        let (stopper, ender) = (stop.set_on_drop(), end.set_on_drop());
        let sampler = scope.spawn(|| sample(&daemon, &end));
        let large = NullBlk::with_latency(
            LATENCY,
            &[("submit_queues", "128"), ("poll_queues", "0"), ("hw_queue_depth", "1023")],
        );
        block::set_attribute(&large.name, "queue/scheduler", "none");
        let depth = block::number(&large.name, "mq/0/nr_tags");
        let queues = std::fs::read_dir(format!("/sys/block/{}/mq", large.name)).unwrap().count() as u64;
        assert_eq!((queues, depth), (128, 1023));
        let runs = queues * depth.div_ceil(SLOTS_PER_RUN.into());
        let readers = [&small, &large].into_iter().cycle().take(4).map(|disk| {
            let (path, stop) = (disk.path(), &stop);
            scope.spawn(move || {
                let target = Target::open(&path);
                while !stop.is_set() {
                    target.read(1);
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        let (program, began) = (InflightProgram::of(daemon.pid()), Instant::now());
        let (mut first, mut taken, mut exact) = (None, Duration::ZERO, Vec::new());
        while began.elapsed() < LONGEST && (program.runs().count < 2 * runs || exact.last() != Some(&true)) {
            let figures = Figures::scrape(daemon.address);
            if program.runs().count >= runs {
                first.get_or_insert(collections(&figures).1);
            }
            if figures.taken() > taken {
                taken = figures.taken();
                exact.push(Shown::of(&figures, &large.name).exact);
            }
            thread::sleep(Duration::from_millis(300));
        }
        let collections = collections(&Figures::scrape(daemon.address)).1 - first.unwrap();
        drop(ender);
        let samples = sampler.join().unwrap();
        drop(stopper);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        (samples, collections, exact, queues * depth, runs)
    });

    let surveys = Survey::all(&samples, runs);
    let first = &surveys[0];
    let next = surveys.get(1).map(|next| (next.began - first.began).as_secs_f64());
    let ns_per_slot = |time: Duration| time.as_secs_f64() * 1e9 / slots as f64;
    println!(
        "{slots} slots; a survey takes {:.3} s and {:.3} s of CPU time: {:.0} ns per slot, {:.0} ns in the program",
        first.duration.as_secs_f64(),
        first.cpu.as_secs_f64(),
        ns_per_slot(first.cpu),
        ns_per_slot(first.in_program)
    );
    println!("the next survey {next:?} s later, after {collections} collections; exact: {exact:?}");
    // The survey's time is paid back at 0.8% per collection, plus one collection before and one after.
    let at_most = first.duration.as_secs_f64() / 0.008 + 2.0;
    assert!(collections <= at_most, "{collections} collections, expected {at_most} at most");
    if let Some(next) = next {
        let (share, slots) = (first.cpu.as_secs_f64() / next, slots as f64 / next);
        println!("{slots:.0} slots per second, {:.2} % of a CPU", share * 100.0);
        assert!(share <= 0.01, "{first:?}, the next survey after {next} s");
    }
}
