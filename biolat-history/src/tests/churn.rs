//! Workloads that come and go all day: their names are dropped together with the intervals' sizes and workloads.

use super::{
    host::{TestHost, at, clock, difference, sums},
    store,
};

/// New cgroups per collection, each with one I/O: 240 in five minutes.
const NEW: u64 = 4;

#[test]
fn names_of_ended_workloads_evict_no_interval() {
    let mut store = store();
    let mut host = TestHost::new(&["sda"]);
    let first = host.collect(&mut store);
    let mut last = first.clone();
    for number in 0..24 * 720_u64 {
        host.wait(5.0);
        for job in number * NEW..(number + 1) * NEW {
            let pod = "kubepods-burstable-pod0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9.slice";
            let cgroup =
                format!("/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{job:064x}.scope");
            host.io("sda", "read", 1, 0.001).workload(&cgroup, "sda", 1, 0.001);
        }
        host.io("sda", "write", 10 + number % 50, 0.002);
        last = host.collect(&mut store);
        host.snapshot.workloads.as_mut().unwrap().clear();
        assert!(store.bytes() <= store.limits.bytes);
    }
    let kept = store.kept_from().unwrap();
    println!("{kept:?}, {} bytes of names", store.names.bytes());
    assert_eq!(kept.all, clock(0.0));
    let without_parts = |mut sums: super::host::Sums| {
        sums.values_mut().for_each(|sum| sum.parts.clear());
        sums
    };
    let all = sums(store.select(at(0.0), at(4e9)).into_periods(None));
    assert_eq!(without_parts(all), without_parts(difference(&first, &last)));
    // Wherever there are workloads, each still has its name.
    let from = kept.breakdown.unwrap();
    let periods = store.select(from, at(4e9)).into_periods(None);
    let named: usize = periods.flat_map(|period| period.workloads).map(|workloads| workloads.len()).sum();
    let seconds = last.taken.duration_since(from).unwrap().as_secs();
    assert!(named as u64 >= seconds / 5 * NEW, "{named} in {seconds} s");
}
