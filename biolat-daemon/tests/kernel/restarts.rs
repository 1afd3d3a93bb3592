//! A daemon that is killed and started again under load.

use std::{collections::BTreeSet, thread};

use serde_json::Value;

use crate::support::{
    awake::Awake,
    books::{READ, Stat},
    daemon::{Daemon, wait_for},
    figures::Figures,
    load::{Target, Until},
    loop_device::LoopDevice,
    run,
    settled::{compare, settled},
};

/// What there is in the kernel of a probe: its programs and its maps, by kind and id.
fn objects() -> BTreeSet<(&'static str, u64)> {
    const NAMES: [(&str, &[&str]); 2] =
        [("prog", &["block_rq_complete"]), ("map", &["TABLE", "INDEX", "FREE", "SERIES", "LOST"])];
    let of_kind = |(kind, names): (&'static str, &[&str])| {
        let list: Value = serde_json::from_str(&run("bpftool", &[kind, "show", "--json"])).unwrap();
        let named = |object: &&Value| names.iter().any(|name| object["name"] == *name);
        let found = list.as_array().unwrap().iter().filter(named);
        found.map(|object| (kind, object["id"].as_u64().unwrap())).collect::<Vec<_>>()
    };
    NAMES.into_iter().flat_map(of_kind).collect()
}

#[test]
#[ignore = "needs root and bpftool: cargo xtask test"]
fn killed_and_started_again_under_load() {
    let device = LoopDevice::attach("restarts", true);
    let name = device.name.as_str();
    let _awake = Awake::all_cpus();
    let load = Until::default();
    let daemon = thread::scope(|scope| {
        let _load = load.dropped();
        scope.spawn(|| {
            let target = Target::open(&device.path());
            while !load.is_over() {
                target.read(100);
            }
        });
        let others = objects();
        let killed = Daemon::start(&["--interval", "100ms", "--device", name]);
        let own: BTreeSet<_> = objects().difference(&others).copied().collect();
        assert_eq!(own.len(), 6, "{own:?}");
        wait_for("figures", || killed.fresh().count(name, READ) > 0);
        // SIGKILL.
        drop(killed);
        wait_for("the kernel to free what was the probe's", || objects().is_disjoint(&own));

        let booked = Stat::of(name).completions(READ);
        let daemon = Daemon::start(&["--interval", "100ms", "--device", name]);
        let first = Figures::scrape(daemon.address);
        let since = Stat::of(name).completions(READ) - booked;
        // It begins with nothing, and what it has is of its own time.
        assert!(first.count(name, READ) <= since, "{} of {since}", first.count(name, READ));
        assert_eq!((first.unseen(name), first.errors(name, "read", "ioerr")), (0, 0));
        wait_for("figures", || daemon.fresh().count(name, READ) > first.count(name, READ));
        daemon
    });
    let before = settled(&daemon, name);
    assert_eq!(before.figures.unseen(name), 0);
    Target::open(&device.path()).read(500);
    let after = settled(&daemon, name);
    let growth = compare(name, &before, &after);
    assert_eq!((growth.of(READ), growth.unseen), (500, 0));
}
