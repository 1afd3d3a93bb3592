//! The daemon's figures for a device's I/Os in flight.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    daemon::{Daemon, wait_for},
    figures::Figures,
    fio::longest_churn_latency,
};

#[derive(Debug, PartialEq)]
pub(crate) struct Shown {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) oldest: f64,
    pub(crate) exact: bool,
}

/// Returns the current time since the epoch.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

impl Shown {
    const NOTHING: Self = Self { reads: 0, writes: 0, oldest: 0.0, exact: true };

    pub(crate) fn of(figures: &Figures, device: &str) -> Self {
        let labels = [("device", device)];
        let ios = |op| figures.value("biolat_inflight_ios", &[labels[0], ("op", op)]) as u64;
        Self {
            reads: ios("read"),
            writes: ios("write"),
            oldest: figures.value("biolat_oldest_inflight_seconds", &labels),
            exact: figures.metrics("biolat_oldest_inflight_exact", &labels).is_empty(),
        }
    }
}

/// Asserts that a device's metrics are exact and its oldest I/O was submitted at this time, since the epoch.
pub(crate) fn assert_oldest(figures: &Figures, device: &str, submitted: Duration, tolerance: f64) {
    let shown = Shown::of(figures, device);
    let expected = (figures.taken() - submitted).as_secs_f64();
    println!("{device}: {shown:?}, expected {expected} s");
    assert!(shown.exact && (shown.oldest - expected).abs() < tolerance, "{shown:?}, expected {expected} s");
}

/// Waits until the daemon reports that nothing is in flight; on a slow machine the device's survey can be late.
pub(crate) fn wait_until_clear(daemon: &Daemon, device: &str) {
    wait_for("nothing to be in flight", || Shown::of(&daemon.fresh(), device) == Shown::NOTHING);
}

/// Does random I/O on all of these devices at once while the daemon collects: no I/O may look older than possible, and nothing is
/// in flight at the end.
pub(crate) fn check_churn(daemon: &Daemon, devices: &[(&str, PathBuf)]) {
    const SECONDS: u32 = 5;
    let mut shown = Vec::new();
    let longest: Vec<_> = thread::scope(|scope| {
        let churn = devices.iter().map(|(_, path)| scope.spawn(|| longest_churn_latency(path, SECONDS)));
        let churn: Vec<_> = churn.collect();
        let mut taken = Duration::ZERO;
        while churn.iter().any(|churn| !churn.is_finished()) {
            let figures = Figures::scrape(daemon.address);
            if figures.taken() > taken {
                taken = figures.taken();
                shown.push(devices.iter().map(|(name, _)| Shown::of(&figures, name)).collect::<Vec<_>>());
            }
            thread::sleep(Duration::from_millis(20));
        }
        churn.into_iter().map(|churn| churn.join().unwrap()).collect()
    });
    let mut busy_collections = 0;
    for (number, ((device, _), longest)) in devices.iter().zip(longest).enumerate() {
        let shown: Vec<_> = shown.iter().map(|shown| &shown[number]).collect();
        let oldest = shown.iter().map(|shown| shown.oldest).fold(0.0, f64::max);
        let count = |holds: fn(&Shown) -> bool| shown.iter().filter(|shown| holds(shown)).count();
        let (busy, exact) = (count(|shown| shown.reads + shown.writes > 0), count(|shown| shown.exact));
        println!(
            "{device}: oldest {oldest:.4} s, longest latency {longest:.4} s; {busy} of {} collections saw I/O in flight, \
             {exact} were exact",
            shown.len()
        );
        // Sums over all devices, because a fast device has nothing in flight while another program uses the CPU.
        busy_collections += busy;
        assert!(exact > 0, "{shown:?}");
        assert!(
            oldest <= longest,
            "{device}: the oldest shown was {oldest} s, but no I/O took longer than {longest} s"
        );
        wait_until_clear(daemon, device);
    }
    assert!(busy_collections > 0, "no collection saw I/O in flight");
}
