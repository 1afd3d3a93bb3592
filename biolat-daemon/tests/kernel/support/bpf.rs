//! The probe's programs and maps in the kernel, as listed by bpftool.

use std::{collections::BTreeSet, fs, os::unix::fs::MetadataExt as _, path::PathBuf, time::Duration};

use biolat_common::{kernel::directory_id, series::Key};
use serde_json::Value;

use super::{
    block,
    kernel::{self, Ability},
    run,
};

/// IDs of the probe's programs.
pub(crate) fn programs() -> BTreeSet<u64> {
    ids("prog", &["block_rq_complete", "block_rq_requeue", "block_rq_tag_wait", "inflight"])
}

/// IDs of the probe's maps, except inner maps.
pub(crate) fn maps() -> BTreeSet<u64> {
    ids("map", &["TABLE", "INDEX", "FREE", "SERIES", "CPUS", "LOST", "EVENTS", "SLOW", "DROPPED", "INFLIGHT"])
}

fn ids(kind: &str, names: &[&str]) -> BTreeSet<u64> {
    let list: Value = serde_json::from_str(&run("bpftool", &[kind, "show", "--json"])).unwrap();
    let named =
        list.as_array().unwrap().iter().filter(|object| names.iter().any(|name| object["name"] == *name));
    named.map(|object| object["id"].as_u64().unwrap()).collect()
}

/// Returns the number of a daemon's links to the tracepoints of bios.
pub(crate) fn volume_links(pid: u32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let volumes =
        ids("prog", &["block_bio_queue", "block_bio_complete", "other_bio_queue", "other_bio_complete"]);
    let is_link = |path: &PathBuf| field(path, "link_id:").is_some();
    let ours = entries.map(|entry| entry.unwrap().path()).filter(is_link);
    ours.filter(|path| field(path, "prog_id:").is_some_and(|id| volumes.contains(&id))).count()
}

/// Returns how often the kernel refused to run the program that counts requeues. Only one daemon may be running.
pub(crate) fn refused_requeues(pid: u32) -> u64 {
    let id = ids("prog", &["block_rq_requeue"]).into_iter().next().unwrap();
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    // The program's link has the same id but no count.
    let mut ours = paths.filter(|path| field(path, "prog_id:") == Some(id));
    ours.find_map(|path| field(&path, "recursion_misses:")).unwrap_or_default()
}

/// Returns the number of devices in the probe's map of waits for a tag.
pub(crate) fn tag_wait_devices() -> usize {
    let dump: Value =
        serde_json::from_str(&run("bpftool", &["map", "dump", "name", "TAG_WAITS", "--json"])).unwrap();
    dump.as_array().unwrap().len()
}

/// Returns the number of a device's series in the probe's table.
pub(crate) fn series_in_table(device: &str) -> usize {
    let id = if kernel::has(Ability::DiskSequences) {
        block::number(device, "diskseq")
    } else {
        directory_id(fs::metadata(format!("/sys/block/{device}")).unwrap().ino())
    };
    let dump: Value =
        serde_json::from_str(&run("bpftool", &["map", "dump", "name", "TABLE", "--json"])).unwrap();
    let byte =
        |byte: &Value| u8::from_str_radix(byte.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    let key = |cell: &Value| {
        let bytes: Vec<u8> = cell["value"].as_array().unwrap().iter().map(byte).collect();
        Key::from_bits(u64::from_ne_bytes(bytes.try_into().unwrap()) >> 16)
    };
    dump.as_array().unwrap().iter().filter(|cell| key(cell).device() == id).count()
}

/// The program that surveys I/Os in flight, and the kernel's statistics about it.
pub(crate) struct InflightProgram {
    /// The fdinfo file of the program's descriptor.
    fdinfo: PathBuf,
}

/// Number and total duration of a program's runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs {
    pub(crate) count: u64,
    pub(crate) time: Duration,
}

impl InflightProgram {
    /// Finds the program of a daemon, which must be the only one running.
    pub(crate) fn of(pid: u32) -> Self {
        let id = ids("prog", &["inflight"]).into_iter().next().unwrap();
        let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let fdinfo = paths.find(|path| field(path, "prog_id:") == Some(id)).unwrap();
        Self { fdinfo }
    }

    pub(crate) fn runs(&self) -> Runs {
        let number = |name| field(&self.fdinfo, name).unwrap();
        Runs { count: number("run_cnt:"), time: Duration::from_nanos(number("run_time_ns:")) }
    }
}

/// Returns a number from an fdinfo file.
fn field(fdinfo: &PathBuf, name: &str) -> Option<u64> {
    let text = fs::read_to_string(fdinfo).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Makes the kernel count the runs of all programs until dropped.
pub(crate) struct RunStatistics(());

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl RunStatistics {
    pub(crate) fn enable() -> Self {
        fs::write(SWITCH, "1").unwrap();
        Self(())
    }
}

impl Drop for RunStatistics {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, "0");
    }
}
