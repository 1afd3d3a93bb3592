//! The cost of a collection: whole collections with this machine's CPUs and loop devices, and only the part that grows with the
//! number of CPUs, with maps as large as on bigger machines. Run by `cargo xtask bench collect`.

mod disks;
mod fed;

use std::{ffi::OsString, path::Path, process::ExitCode, time::Duration};

use anyhow::{Result, anyhow, bail};
use biolat_collect::collector::Collector;
use biolat_common::size::Counters;
use biolat_model::device::Selection;
use biolat_probe::Plan;
use biolat_system::host::Host;
use clap::Parser;
use serde_json::{Value, json};

use crate::{
    command::{self, Usual},
    measure::Cost,
};
use disks::Disks;

/// Measure the cost of a collection
#[derive(Parser)]
#[command(name = "cargo xtask bench collect", bin_name = "cargo xtask bench collect")]
struct Options {
    #[command(flatten)]
    usual: Usual,
}

struct Row {
    what: &'static str,
    cpus: usize,
    devices: usize,
    /// Bytes of counters that a collection reads.
    bytes: usize,
    cost: Cost,
}

pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    command::main(arguments, run)
}

fn run(options: &Options) -> Result<()> {
    let mut rows = Vec::new();
    for devices in [1, 4] {
        rows.push(whole_collection(devices)?);
    }
    rows.extend([fed_collection(2, 4)?, fed_collection(2, 21)?, fed_collection(16, 4)?]);
    rows.extend([fed_collection(64, 21)?, fed_collection(128, 21)?, fed_collection(384, 21)?]);
    rows.push(idle_collection(384, 21)?);
    if options.usual.json {
        println!("{:#}", rows.iter().map(Row::to_json).collect::<Value>());
    } else {
        println!(
            "{:13}  {:>4}  {:>7}  {:>13}  {:>11}  {:>11}  {:>15}",
            "", "CPUs", "devices", "counter bytes", "CPU time", "allocations", "allocated bytes"
        );
        for row in &rows {
            println!(
                "{:13}  {:>4}  {:>7}  {:>13}  {:>8.3} ms  {:>11}  {:>15}",
                row.what,
                row.cpus,
                row.devices,
                row.bytes,
                row.cost.ms(),
                row.cost.allocations,
                row.cost.allocated_bytes
            );
        }
    }
    if options.usual.check { check(&rows) } else { Ok(()) }
}

fn whole_collection(devices: usize) -> Result<Row> {
    let disks = Disks::attach(devices)?;
    let host = Host::default();
    let selection = Selection::new(Some(&disks.pattern()), None).map_err(|error| anyhow!("{error:?}"))?;
    let mut collector = Collector::attach(host, selection, biolat_probe::Options::default())?;
    collector.collect()?;
    disks.read_and_write()?;
    collector.collect()?;
    let mut failure = None;
    let cost = Cost::of(500, || collector.collect().map_err(|error| failure = Some(error)));
    let room = Plan::of_host(Path::new("/sys"))?.room();
    let slot_bytes = biolat_probe::slot_bytes(true, room) as usize;
    let (cpus, bytes) = (slot_bytes / size_of::<Counters>(), 2 * devices * slot_bytes);
    match failure {
        Some(error) => Err(error),
        None => Ok(Row { what: "whole collection", cpus, devices, bytes, cost }),
    }
}

/// Simulates a read and a write series per device.
fn fed_collection(cpus: u32, devices: usize) -> Result<Row> {
    let mut machine = fed::Machine::new(2 * devices as u32, cpus)?;
    let cost = Cost::of(50, || machine.collect(true));
    Ok(Row { what: "counters only", cpus: cpus as usize, devices, bytes: machine.bytes(), cost })
}

/// The same without I/O since the last collection.
fn idle_collection(cpus: u32, devices: usize) -> Result<Row> {
    let mut machine = fed::Machine::new(2 * devices as u32, cpus)?;
    // Until the counters have settled.
    for _ in 0..4 {
        machine.collect(false);
    }
    let cost = Cost::of(50, || machine.collect(false));
    Ok(Row { what: "idle counters", cpus: cpus as usize, devices, bytes: machine.bytes(), cost })
}

impl Row {
    fn to_json(&self) -> Value {
        json!({
            "what": self.what,
            "cpus": self.cpus,
            "devices": self.devices,
            "counter_bytes": self.bytes,
            "cost": self.cost.to_json(),
        })
    }
}

/// Bounds that only a bug exceeds.
fn check(rows: &[Row]) -> Result<()> {
    for row in rows {
        // A gigabyte a second is slow for any memory.
        let bound = Duration::from_millis(3) + Duration::from_nanos(row.bytes as u64);
        if row.cost.cpu > bound {
            bail!("{} of {} CPUs and {} devices takes {:.1?}", row.what, row.cpus, row.devices, row.cost.cpu);
        }
    }
    Ok(())
}
