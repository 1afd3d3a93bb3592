//! Incidents, from the I/O to the firing alert: a daemon, and the recording and alert rules in a real Prometheus. A second,
//! healthy device raises no alert. Intervals and windows are shorter than in production; thresholds are the same. Failing paths
//! are in `multipath_alert.rs`, because few hosts can create them.

use std::{collections::BTreeSet, thread, time::Duration};

use crate::support::{
    Folder, block,
    daemon::{Daemon, wait_for},
    diskstats::WRITE,
    fio::Writers,
    freezable::Freezable,
    load::{StopFlag, call_fsync, keep_busy},
    loop_device::LoopDevice,
    mount::Mount,
    prometheus::{Prometheus, alert_rules_with, recording_rules_with},
};

/// Replaces the five-minute window.
const WINDOW: &str = "[3s]";

/// Shortens the alerts' wait of 15 minutes.
const SOON: (&str, &str) = ("for: 15m\n", "for: 1s\n");

/// A daemon, and a Prometheus that scrapes it.
struct Monitoring {
    alert: &'static str,
    daemon: Daemon,
    prometheus: Prometheus,
}

impl Monitoring {
    /// Starts a daemon and a Prometheus for these devices, with changes to one alert's rules.
    fn start(alert: &'static str, changes: &[(&str, &str)], devices: [&str; 2]) -> Self {
        let daemon = Daemon::start(&["--interval", "500ms", "--device", &devices.join("|")]);
        let recording = recording_rules_with("recording.yml", "500ms", WINDOW);
        let alerts = alert_rules_with(alert, changes);
        let prometheus = Prometheus::recording("prometheus-incidents", daemon.address, &recording, &alerts);
        wait_for("a scrape", || prometheus.vector("biolat_device_info").len() == devices.len());
        Self { alert, daemon, prometheus }
    }

    fn wait_until_firing(&self, device: &str) {
        wait_for(self.alert, || {
            let mut firing =
                self.prometheus.firing(self.alert).into_iter().map(|alert| alert["metric"].clone());
            firing.any(|labels| labels["device"] == device && labels["severity"] == "warning")
        });
    }

    /// Returns the devices for which the alert has ever been pending or firing.
    fn devices(&self) -> BTreeSet<String> {
        let ever = format!("max_over_time(ALERTS{{alertname=\"{}\"}}[5m])", self.alert);
        let alerts = self.prometheus.vector(&ever);
        alerts.iter().map(|alert| alert["metric"]["device"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until a recorded value of a device is at least this large.
    fn wait_until_recorded(&self, series: &str, device: &str, labels: &str, at_least: f64) {
        let query = format!("{series}{{device=\"{device}\"{labels}}}");
        wait_for(&query, || self.prometheus.query(&query).is_some_and(|value| value >= at_least));
    }
}

/// Number of programs: enough for them to share flushes, with more than ten writes per flush.
const PROGRAMS: u64 = 32;

#[test]
#[ignore = "needs root, a disk, ext4 and Prometheus 3.8: cargo xtask test"]
fn fsync_storm_raises_alert() {
    // Flushing the first device writes pages of its backing file to a disk; flushing the second has nothing to write.
    let stormy = LoopDevice::attach_in(Folder::new("storm", false), false);
    let healthy = LoopDevice::attach("no-storm", true);
    let mounts = [&stormy, &healthy].map(|device| Mount::new_ext4(&device.name, &device.path()));
    let [storm, rare] = mounts.each_ref().map(Mount::folder);
    let names = [&stormy, &healthy].map(|device| device.name.as_str());
    let monitoring = Monitoring::start("BlockDeviceFlushStorm", &[SOON], names);
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        scope.spawn(|| call_fsync(&storm, PROGRAMS, Duration::ZERO, &stop));
        scope.spawn(|| call_fsync(&rare, 1, Duration::from_millis(10), &stop));
        monitoring.wait_until_firing(&stormy.name);
        // The healthy device has enough flushes for the alert, but they are fast.
        let flushes = "instance_device_op:biolat_total_latency_seconds:count_rate5m";
        monitoring.wait_until_recorded(flushes, &healthy.name, ",op=\"flush\"", 10.0);
    });
    assert_eq!(monitoring.devices(), [stormy.name.clone()].into());
}

#[test]
#[ignore = "needs root, ext4, fsfreeze and Prometheus 3.8: cargo xtask test"]
fn stall_among_fast_ios_raises_alert() {
    let (stalling, healthy) = (Freezable::attach("stall"), LoopDevice::attach("no-stall", true));
    let name = stalling.device.name.as_str();
    let monitoring = Monitoring::start("BlockDeviceStalled", &[], [name, &healthy.name]);
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        for device in [&stalling.device, &healthy] {
            scope.spawn(|| keep_busy(&device.path(), &stop));
        }
        let writes = || monitoring.daemon.fresh().count(name, WRITE);
        wait_for("fast writes", || writes() > 1000);
        let frozen = stalling.freeze();
        thread::sleep(Duration::from_millis(8500));
        assert_eq!(monitoring.devices(), BTreeSet::new());
        drop(frozen);
        monitoring.wait_until_firing(name);
    });
    assert_eq!(monitoring.devices(), [name.to_owned()].into());
    let stalls = monitoring.daemon.fresh().value("biolat_slow_ios_total", &[("device", name), ("over", "8")]);
    assert_eq!(stalls, 1.0);
}

/// A loop device with a 512-request scheduler, which holds I/O in excess of the driver's 128 tags.
struct Scheduled(LoopDevice);

impl Scheduled {
    fn attach(name: &str) -> Self {
        let device = Self(LoopDevice::attach(name, false));
        block::set_attribute(&device.0.name, "queue/scheduler", "mq-deadline");
        block::set_attribute(&device.0.name, "queue/nr_requests", "512");
        device
    }
}

/// A loop device keeps its attributes after its file is detached.
impl Drop for Scheduled {
    fn drop(&mut self) {
        block::set_attribute(&self.0.name, "queue/scheduler", "none");
    }
}

#[test]
#[ignore = "needs root, a disk, fio and Prometheus 3.8: cargo xtask test"]
fn full_queue_raises_alert() {
    let (full, healthy) = (Scheduled::attach("full"), Scheduled::attach("not-full"));
    let (name, healthy_name) = (full.0.name.as_str(), healthy.0.name.as_str());
    let changes = [SOON, ("[5m]", WINDOW)];
    let monitoring = Monitoring::start("BlockDeviceSaturated", &changes, [name, healthy_name]);
    let _writers =
        [(&full, 512), (&healthy, 8)].map(|(device, depth)| Writers::start(&device.0.path(), depth));
    monitoring.wait_until_firing(name);
    // The healthy device is also busy, but its I/O does not wait.
    let in_device = "instance_device:biolat_device_latency_seconds:sum_rate5m";
    monitoring.wait_until_recorded(in_device, healthy_name, "", 1.0);
    assert_eq!(monitoring.devices(), [name.to_owned()].into());
}
