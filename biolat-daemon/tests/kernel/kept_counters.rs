//! A restart that does not reset the counters, as seen by Prometheus.

use std::{net::TcpListener, thread, time::Duration};

use crate::support::{
    awake::Awake,
    daemon::{Daemon, wait_for},
    diskstats::{READ, WRITE},
    fd_store::FdStore,
    load::Target,
    loop_device::LoopDevice,
    prometheus::Prometheus,
    settled::{compare, settled},
};

#[test]
#[ignore = "needs root: cargo xtask test"]
fn counters_continue_in_prometheus() {
    let device = LoopDevice::attach("counters", true);
    let name = device.name.as_str();
    let store = FdStore::new("counters-store");
    let _awake = Awake::all_cpus();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listen = address.to_string();
    let arguments = ["--interval", "100ms", "--device", name, "--listen", &listen];
    let mut daemon = Daemon::start_command(&mut store.command(&arguments));
    let prometheus = Prometheus::start(address, &[]);
    let count = |op: &str| format!("biolat_total_latency_seconds_count{{device=\"{name}\",op=\"{op}\"}}");
    let missed = format!("biolat_unseen_ios_total{{device=\"{name}\"}}");
    let before = settled(&daemon, name);
    let first = before.figures.count(name, READ);
    wait_for("the first scrape", || prometheus.query(&count("read")) == Some(first as f64));

    for round in 0..6 {
        let target = Target::open(&device.path());
        target.read(100);
        if round % 2 == 0 {
            drop(daemon);
        } else {
            daemon.terminate();
        }
        target.read(200);
        target.write(100);
        daemon = Daemon::start_command(&mut store.command(&arguments));
        // Leaves time for a scrape of each daemon.
        thread::sleep(Duration::from_millis(1200));
    }

    let after = settled(&daemon, name);
    let growth = compare(name, &before, &after);
    assert_eq!((growth.of(READ), growth.of(WRITE)), (1800, 600));
    let last = after.figures.count(name, READ);
    wait_for("the last scrape", || prometheus.query(&count("read")) == Some(last as f64));
    for (op, group) in [("read", READ), ("write", WRITE)] {
        let of_missed = growth.missed as f64;
        let range = format!("max_over_time({0}[10m]) - min_over_time({0}[10m])", count(op));
        let counted = prometheus.query(&range).unwrap();
        assert!((counted..=counted + of_missed).contains(&(growth.of(group) as f64)), "{op}: {counted}");
        // Extrapolating beyond the first and last scrapes adds little.
        let increase = prometheus.query(&format!("increase({}[10m])", count(op))).unwrap();
        assert!((counted - 0.5..counted * 1.2).contains(&increase), "{op}: {increase} instead of {counted}");
    }
    let resets = prometheus.vector("resets({__name__=~\"biolat_.*(_total|_count|_bucket|_sum)\"}[10m]) > 0");
    assert!(resets.is_empty(), "{resets:?}");
    assert!(prometheus.query(&missed).is_some());
    assert!(
        prometheus.query("resets(process_cpu_seconds_total[10m])").unwrap() >= 1.0,
        "the daemon did not restart"
    );
}
