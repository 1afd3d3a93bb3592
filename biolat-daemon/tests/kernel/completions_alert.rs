//! One CPU completes all I/O of a busy drive: tests everything from the pinned interrupt to the firing alert, with a daemon and a
//! real Prometheus that evaluates the alert rule. Two drives must not raise the alert: one that is just as busy but has a queue
//! per CPU, and one with a single queue that is not busy.

use std::{collections::BTreeSet, fs, path::PathBuf, thread, time::Duration};

use crate::support::{
    block,
    daemon::{Daemon, wait_for},
    load::{StopFlag, Target, pin_to_cpu},
    prometheus::{Prometheus, alert_rule_with},
};

const ALERT: &str = "BlockDeviceCompletionsPiledUp";

/// Adapts the alert to a machine with two CPUs, to I/O rates possible in an emulator, and to a Prometheus without the recording
/// rules.
const SMALL: [(&str, &str); 5] = [
    ("for: 15m\n", "for: 1s\n"),
    ("> 50000\n", "> 20\n"),
    ("biolat_completion_cpus < 2\n", "biolat_completion_cpus < 1.2\n"),
    ("biolat_online_cpus >= 8\n", "biolat_online_cpus >= 2\n"),
    (
        "(instance_device_op:biolat_total_latency_seconds:count_rate5m)",
        "(histogram_count(rate(biolat_total_latency_seconds[10s])))",
    ),
];

/// The interrupt of QEMU's "pvscsi" controller, which has a single queue.
struct Interrupt(PathBuf);

impl Interrupt {
    fn of_pvscsi() -> Self {
        let interrupts = fs::read_to_string("/proc/interrupts").unwrap();
        let line = interrupts.lines().find(|line| line.contains("pvscsi")).expect(&interrupts);
        Self(PathBuf::from(format!("/proc/irq/{}/smp_affinity_list", line.trim().split(':').next().unwrap())))
    }

    fn pin_to(&self, cpu: usize) {
        fs::write(&self.0, cpu.to_string()).unwrap();
    }
}

/// Returns the completions of a device by CPU.
fn completions(daemon: &Daemon, device: &str) -> [f64; 2] {
    let figures = daemon.fresh();
    ["0", "1"].map(|cpu| figures.value("biolat_completions_total", &[("device", device), ("cpu", cpu)]))
}

/// Waits until one CPU, and only that one, has completed hundreds of I/Os.
fn assert_completed_by(cpu: usize, daemon: &Daemon, device: &str) {
    // An interrupt that was already raised still goes to the previous CPU.
    thread::sleep(Duration::from_millis(200));
    let before = completions(daemon, device);
    let mut after = before;
    wait_for("hundreds of completions", || {
        after = completions(daemon, device);
        after[cpu] > before[cpu] + 300.0
    });
    assert_eq!(after[1 - cpu], before[1 - cpu], "{before:?}, then {after:?}");
}

/// Starts a reader on each CPU.
fn read_from_both_cpus<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    device: &'scope str,
    pause: Duration,
    stop: &'scope StopFlag,
) {
    for cpu in 0..2 {
        scope.spawn(move || {
            pin_to_cpu(cpu);
            let target = Target::open(&block::path(device));
            while !stop.is_set() {
                target.read(1);
                thread::sleep(pause);
            }
        });
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn pinned_interrupt_raises_alert() {
    let (pinned, calm) =
        (block::device_with("device/model", "pinned"), block::device_with("device/model", "calm"));
    let spread = block::device_with("device/serial", "solo");
    // Otherwise the interrupted CPU forwards completions to the submitting CPU, unless they share a cache.
    block::set_attribute(&pinned, "queue/rq_affinity", "0");
    let interrupt = Interrupt::of_pvscsi();
    interrupt.pin_to(0);

    let devices = [pinned.as_str(), &calm, &spread].join("|");
    let daemon =
        Daemon::start(&["--interval", "500ms", "--format", "native", "--per-cpu", "--device", &devices]);
    let rule = alert_rule_with(ALERT, &SMALL);
    let prometheus = Prometheus::in_guest("prometheus-cpus", daemon.address, &[("alert.yml", &rule)]);
    let devices_of = |query: &str| -> BTreeSet<String> {
        let series = prometheus.vector(query);
        series.iter().map(|series| series["metric"]["device"].as_str().unwrap().to_owned()).collect()
    };
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        read_from_both_cpus(scope, &pinned, Duration::ZERO, &stop);
        read_from_both_cpus(scope, &spread, Duration::ZERO, &stop);
        read_from_both_cpus(scope, &calm, Duration::from_secs(1), &stop);
        assert_completed_by(0, &daemon, &pinned);
        interrupt.pin_to(1);
        assert_completed_by(1, &daemon, &pinned);
        let firing = format!("ALERTS{{alertname=\"{ALERT}\",alertstate=\"firing\",severity=\"info\"}}");
        wait_for(&firing, || devices_of(&firing).contains(&pinned));
        // By then the alert would have had time to fire for all three.
        let known = "count_over_time(biolat_completion_cpus[5m]) >= 20";
        wait_for(known, || devices_of(known).len() == 3);
        // While completions are moving to the other CPU, both CPUs have a share.
        let on_both = "biolat_completion_cpus > 1.5";
        wait_for(on_both, || devices_of(on_both) == [spread.clone()].into());
    });
    let alerted = format!("max_over_time(ALERTS{{alertname=\"{ALERT}\"}}[5m])");
    assert_eq!(devices_of(&alerted), [pinned].into());
}
