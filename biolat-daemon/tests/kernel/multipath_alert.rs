//! One of a multipath device's two paths fails: tests everything from the load to the firing alert, with a daemon and a real
//! Prometheus that evaluates the alert rule. No call fails, because the kernel uses the other path. A second, healthy multipath
//! device raises no alert.

use std::{collections::BTreeSet, thread};

use crate::support::{
    block,
    daemon::{Daemon, wait_for},
    diskstats::Stat,
    load::{StopFlag, read_and_write},
    nvme_tcp::TwoPaths,
    prometheus::{Prometheus, alert_rule_with},
};

const ALERT: &str = "BlockPathDown";

/// A second instead of a minute, and a minute instead of an hour.
const SOON: [(&str, &str); 2] = [("for: 1m\n", "for: 1s\n"), ("[1h:1m]", "[1m:1s]")];

/// A device with two paths, and a Prometheus that scrapes its daemon.
struct Monitoring {
    device: TwoPaths,
    prometheus: Prometheus,
    _daemon: Daemon,
}

impl Monitoring {
    /// Starts the daemon and Prometheus. `others` are the healthy device's paths.
    fn start(device: TwoPaths, others: &[String]) -> Self {
        let paths = [&device.paths[..], others].concat();
        // Leaves out classic histograms, which are thousands of series.
        let daemon =
            Daemon::start(&["--interval", "500ms", "--format", "native", "--device", &paths.join("|")]);
        let rule = alert_rule_with(ALERT, &SOON);
        let prometheus = Prometheus::in_guest("prometheus-path", daemon.address, &[("alert.yml", &rule)]);
        let scrapes = "count_over_time(biolat_path_info{state=\"live\"}[1m]) >= 3";
        wait_for("scrapes of live paths", || prometheus.vector(scrapes).len() == paths.len());
        Self { device, prometheus, _daemon: daemon }
    }

    /// Returns the multipath devices in the result of this query.
    fn devices(&self, query: &str) -> BTreeSet<String> {
        let series = self.prometheus.vector(query);
        series.iter().map(|series| series["metric"]["path_of"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the devices for which the alert has ever been pending or firing.
    fn ever_alerted(&self) -> BTreeSet<String> {
        self.devices(&format!("max_over_time(ALERTS{{alertname=\"{ALERT}\"}}[10m])"))
    }

    /// Waits until the second path is in this state and the alert fires.
    fn wait_until_firing(&self, state: &str) {
        let firing = format!("ALERTS{{alertname=\"{ALERT}\",alertstate=\"firing\",severity=\"warning\"}}");
        let path = format!("biolat_path_info{{device=\"{}\",state=\"{state}\"}}", self.device.paths[1]);
        let query = format!("{firing} and on (path_of) {path}");
        wait_for(&query, || !self.devices(&query).is_empty());
    }

    /// Waits until both paths are live and there is no alert.
    fn wait_until_resolved(&self) {
        let live = format!("biolat_path_info{{path_of=\"{}\",state=\"live\"}}", self.device.head);
        let query = format!("sum by (path_of) ({live}) == 2 unless on (path_of) ALERTS");
        wait_for(&query, || !self.devices(&query).is_empty());
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn failed_path_raises_alert() {
    let others = block::devices_with("device/serial", "pair");
    let others: Vec<_> = others.into_iter().filter(|name| block::attribute(name, "hidden") == "1").collect();
    assert_eq!(others.len(), 2, "paths of the healthy device: {others:?}");
    let monitoring = Monitoring::start(TwoPaths::connect(), &others);
    let device = &monitoring.device;

    let stop = StopFlag::default();
    thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        scope.spawn(|| read_and_write(&block::path(&device.head), &stop));
        wait_for("requests in flight", || Stat::of(&device.paths[1]).in_flight() >= 4);
        assert_eq!(monitoring.ever_alerted(), BTreeSet::new());
        device.disconnect_second();
        monitoring.wait_until_firing("connecting");
        device.reconnect_second();
        monitoring.wait_until_resolved();
        // A path without access may be a standby, but this one had access before.
        device.set_access_of_second("inaccessible");
        monitoring.wait_until_firing("inaccessible");
        device.set_access_of_second("optimized");
        monitoring.wait_until_resolved();
    });
    assert_eq!(monitoring.ever_alerted(), [device.head.clone()].into());
    let failed = "sum(last_over_time(biolat_failed_ios_total[1m]))";
    assert_eq!(monitoring.prometheus.query(failed), Some(0.0));
}
