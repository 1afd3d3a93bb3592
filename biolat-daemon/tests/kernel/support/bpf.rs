//! The probe's programs and maps in the kernel, as bpftool lists them.

use std::collections::BTreeSet;

use biolat_common::series::Key;
use serde_json::Value;

use super::{block, run};

/// IDs of the probe's programs.
pub(crate) fn programs() -> BTreeSet<u64> {
    ids("prog", &["block_rq_complete", "block_rq_requeue", "inflight"])
}

/// IDs of the probe's maps, except inner maps.
pub(crate) fn maps() -> BTreeSet<u64> {
    ids("map", &["TABLE", "INDEX", "FREE", "SERIES", "MORE", "LOST", "EVENTS", "SLOW", "DROPPED", "INFLIGHT"])
}

fn ids(kind: &str, names: &[&str]) -> BTreeSet<u64> {
    let list: Value = serde_json::from_str(&run("bpftool", &[kind, "show", "--json"])).unwrap();
    let named =
        list.as_array().unwrap().iter().filter(|object| names.iter().any(|name| object["name"] == *name));
    named.map(|object| object["id"].as_u64().unwrap()).collect()
}

/// How many series of a device are in the probe's table.
pub(crate) fn series_in_table(device: &str) -> usize {
    let id = block::number(device, "diskseq");
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
