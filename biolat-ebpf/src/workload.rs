//! Finds the counters of a workload and series: see [`biolat_common::workload`].

use aya_ebpf::{helpers::generated::bpf_probe_read_kernel_str, programs::RawTracePointContext};
use biolat_common::{
    slot::Cell,
    workload::{Entry, KERNEL, NAME_BYTES, OTHER, PROBES, Tables},
};

use crate::{
    constants::{layout_const, option_const},
    in_place::in_place,
    kernel_memory::{read_u32, read_u64},
    maps::{self, Cpu, EntryPointer, First, Program, Understudy},
    request::Completion,
};

/// This CPU's entry for the workload of a completion and its series. `None` if this series is not counted by workload: its bytes
/// and times are then counted in the series itself.
#[inline(always)]
pub(crate) fn entry<P: Program>(completion: &Completion, cpu: Cpu, series: Cell) -> Option<EntryPointer> {
    if option_const!(workload_slots) == 0 || series.slot() >= option_const!(workload_slots) {
        return None;
    }
    let cgroup = completion.cgroup();
    let workload = completion.workload(cgroup);
    let epoch = maps::epoch();
    let entry = maps::workload::<P>(cpu, tables().place(workload, series, epoch));
    // SAFETY: this CPU's own entry, see `maps::workload`.
    if entry.is_some_and(|entry| unsafe { entry.as_ref().is_of(workload, series, epoch) }) {
        return entry;
    }
    maps::set_current_cgroup::<P>(cgroup as u64);
    let place = if P::IS_UNDERSTUDY {
        understudy_find_or_create(workload, series.bits(), epoch)
    } else {
        find_or_create(workload, series.bits(), epoch)
    };
    maps::workload::<P>(cpu, place)
}

#[inline(always)]
fn tables() -> Tables {
    Tables { slots: option_const!(workload_slots), hashes: option_const!(workload_hashes) }
}

/// The place of an entry. Called for the first I/O of a workload in an epoch, and for entries that are not in their first place.
///
/// The kernel verifies a global function once, not for each state in which it is called. The arguments of a global function must
/// be numbers, so the address of the cgroup is passed in this CPU's buffer.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_or_create(workload: u64, series: u64, epoch: u64) -> u32 {
    place::<First>(workload, series, epoch)
}

/// [`find_or_create`] for the understudy's tables.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn understudy_find_or_create(workload: u64, series: u64, epoch: u64) -> u32 {
    place::<Understudy>(workload, series, epoch)
}

#[inline(always)]
fn place<P: Program>(workload: u64, series: u64, epoch: u64) -> u32 {
    let (cpu, series) = (Cpu::current(), Cell::from_bits(series));
    // Otherwise the compiler would keep each summand of the place on the stack, which is short.
    let first = in_place(tables().place(workload, series, epoch).into()) as u32;
    let (mut place, mut owner) = (tables().other(series.slot(), epoch), OTHER);
    for step in 0..PROBES {
        let candidate = first + step;
        let Some(entry) = maps::workload::<P>(cpu, candidate) else { break };
        // SAFETY: this CPU's own entry, see `maps::workload`.
        let (is_found, is_in_use) =
            unsafe { (entry.as_ref().is_of(workload, series, epoch), entry.as_ref().epoch == epoch) };
        if is_found || !is_in_use {
            (place, owner) = (candidate, workload);
            break;
        }
    }
    if owner != OTHER && owner != KERNEL && !ensure_recorded::<P>(owner) {
        (place, owner) = (tables().other(series.slot(), epoch), OTHER);
    }
    if let Some(entry) = maps::workload::<P>(cpu, place) {
        // SAFETY: this CPU's own entry, see `maps::workload`.
        unsafe {
            // The entry of `OTHER` may still have counts of an earlier series in the same slot, whose device is gone.
            if !entry.as_ref().is_of(owner, series, epoch) {
                begin(entry, owner, series, epoch);
                return maps::mark_workload(place, epoch);
            }
        }
    }
    place
}

/// Writes an entry without counts.
///
/// # Safety
///
/// The entry must be this CPU's own.
#[inline(always)]
unsafe fn begin(mut entry: EntryPointer, workload: u64, series: Cell, epoch: u64) {
    // SAFETY: the entry is this CPU's own. `Entry` is all integers, aligned to 8 bytes and a whole number of words long.
    unsafe {
        // Volatile, because the compiler would call `memset`, a loop over single bytes that the verifier walks to its end.
        for word in 0..size_of::<Entry>() / size_of::<u64>() {
            entry.cast::<u64>().add(word).write_volatile(0);
        }
        let entry = entry.as_mut();
        (entry.workload, entry.series, entry.epoch) = (workload, series.bits(), epoch);
    }
}

/// Records a cgroup at its first I/O, and again when its record is stale. `false` if there is no room.
#[inline(always)]
fn ensure_recorded<P: Program>(workload: u64) -> bool {
    let stale = maps::is_record_stale(workload);
    match stale {
        Some(false) => true,
        // If a stale record cannot be replaced now, it stays.
        _ => record_cgroup::<P>(workload) || stale.is_some(),
    }
}

/// Records the names of a workload's cgroup, which is in this CPU's buffer. `false` if there is no room.
#[inline(never)]
fn record_cgroup<P: Program>(workload: u64) -> bool {
    let Some(record) = maps::cgroup_buffer::<P>() else { return false };
    // SAFETY: this CPU's own buffer.
    let record = unsafe { &mut *record };
    let mut node = read_u64(read_u64(record.css, layout_const!(blkcg_cgroup)), layout_const!(cgroup_node));
    for name in &mut record.names {
        let parent = read_u64(node, layout_const!(kernfs_parent));
        // The root also has a name, which is skipped. There is no branch, because one would double the paths that the verifier
        // walks.
        let is_below_root = (parent | parent.wrapping_neg()).cast_signed() >> 63;
        let text = read_u64(node, layout_const!(kernfs_name)) & is_below_root.cast_unsigned();
        // SAFETY: the helper writes at most this many bytes, and zeros if the text cannot be read.
        unsafe { bpf_probe_read_kernel_str(name.as_mut_ptr().cast(), NAME_BYTES as u32, text as *const _) };
        node = parent;
    }
    maps::insert_cgroup(workload, record)
}

/// Whether a cgroup still exists: 1 or 0. Only the daemon runs it. Arguments: the address of the cgroup's state, and its serial
/// number.
#[inline(always)]
pub(crate) fn exists(ctx: &RawTracePointContext) -> i32 {
    let (css, workload): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    // The flag of an offline cgroup is cleared, and stays cleared in freed memory; if the memory has been reused, the serial
    // number differs or cannot be read. An offline cgroup may still be charged for writeback.
    let is_online = read_u32(css, layout_const!(blkcg_flags)) & layout_const!(css_online) != 0;
    i32::from(is_online && read_u64(css, layout_const!(blkcg_serial)) == workload)
}
