//! A daemon that is killed and restarted under load.

use std::{collections::BTreeSet, thread};

use crate::{
    lifecycle::number_of_programs,
    support::{
        awake::Awake,
        bpf::{maps, programs},
        daemon::{Daemon, wait_for},
        diskstats::{READ, Stat},
        figures::Figures,
        load::{StopFlag, Target},
        loop_device::LoopDevice,
        settled::{compare, settled},
    },
};

#[test]
#[ignore = "needs root and bpftool: cargo xtask test"]
fn restarts_from_zero_under_load() {
    let device = LoopDevice::attach("restarts", true);
    let name = device.name.as_str();
    let _awake = Awake::all_cpus();
    let stop = StopFlag::default();
    let daemon = thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        scope.spawn(|| {
            let target = Target::open(&device.path());
            while !stop.is_set() {
                target.read(100);
            }
        });
        let others = (programs(), maps());
        let killed = Daemon::start(&["--interval", "100ms", "--device", name]);
        let own: [BTreeSet<_>; 2] = [&programs() - &others.0, &maps() - &others.1];
        assert_eq!(own.each_ref().map(BTreeSet::len), [number_of_programs(&killed), 10], "{own:?}");
        wait_for("figures", || killed.fresh().count(name, READ) > 0);
        // Drop sends SIGKILL.
        drop(killed);
        wait_for("the kernel to free the probe", || {
            programs().is_disjoint(&own[0]) && maps().is_disjoint(&own[1])
        });

        let accounted = Stat::of(name).completions(READ);
        let daemon = Daemon::start(&["--interval", "100ms", "--device", name]);
        let first = Figures::scrape(daemon.address);
        let since = Stat::of(name).completions(READ) - accounted;
        // The new daemon starts from zero and counts only I/O since its start.
        assert!(first.count(name, READ) <= since, "{} of {since}", first.count(name, READ));
        assert!(first.missed(name) * 200 <= since, "{} of {since} missed", first.missed(name));
        assert_eq!(first.errors(name, "read", "ioerr"), 0);
        wait_for("figures", || daemon.fresh().count(name, READ) > first.count(name, READ));
        daemon
    });
    let before = settled(&daemon, name);
    Target::open(&device.path()).read(500);
    let after = settled(&daemon, name);
    let growth = compare(name, &before, &after);
    assert_eq!(growth.of(READ), 500);
    growth.assert_few_missed();
}
