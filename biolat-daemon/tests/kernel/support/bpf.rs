//! The probe's programs and maps in the kernel, as bpftool lists them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::run;

/// IDs of the probe's programs.
pub(crate) fn programs() -> BTreeSet<u64> {
    ids("prog", &["block_rq_complete"])
}

/// IDs of the probe's maps, except inner maps.
pub(crate) fn maps() -> BTreeSet<u64> {
    ids("map", &["TABLE", "INDEX", "FREE", "SERIES", "MORE", "LOST", "EVENTS"])
}

fn ids(kind: &str, names: &[&str]) -> BTreeSet<u64> {
    let list: Value = serde_json::from_str(&run("bpftool", &[kind, "show", "--json"])).unwrap();
    let named =
        list.as_array().unwrap().iter().filter(|object| names.iter().any(|name| object["name"] == *name));
    named.map(|object| object["id"].as_u64().unwrap()).collect()
}
