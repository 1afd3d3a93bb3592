//! The maps and every access to them.

use core::cell::UnsafeCell;

use aya_ebpf::{
    btf_maps::{Array, PerCpuArray, PerCpuHashMap, RingBuf},
    helpers::bpf_get_current_task,
    macros::btf_map,
};
use biolat_common::{
    kernel::{DEVICE_CELLS, device_cell},
    lost::{Counts, Reason},
    processes::{
        Control, IoCounts, IoRecord, NAME_CELLS, ProcessKey, ProcessName, RING_BYTES, Region, Usage,
        name_cell,
    },
};

use crate::{
    constants::{constant, member},
    kernel_memory::{read, read_u64},
    request::Completion,
};

/// The devices to count, by the low bits of their ids. Only user space writes it.
#[btf_map]
static DEVICES: Array<Region, { DEVICE_CELLS as usize }> = Array::new();

/// For each device, hardware queue and tag: the thread group that submitted the request in the low half, the bytes that have
/// completed so far in the high half. Zero between requests. User space sets the size.
#[btf_map]
static PROCESSES: Array<u64, 1> = Array::new();

#[btf_map]
static NAMES: Array<ProcessName, { NAME_CELLS as usize }> = Array::new();

/// User space sets the size.
#[btf_map]
static USAGE: PerCpuHashMap<ProcessKey, Usage, 1> = PerCpuHashMap::new();

#[btf_map]
static LOST: PerCpuArray<Counts, 1> = PerCpuArray::new();

#[btf_map]
static IOS: RingBuf<IoRecord, RING_BYTES> = RingBuf::new();

#[btf_map]
static IO_COUNTS: PerCpuArray<IoCounts, 1> = PerCpuArray::new();

/// See [`Control`]. Only user space writes it.
static CONTROL: Number = Number(UnsafeCell::new(Control::FIRST.bits()));

struct Number(UnsafeCell<u64>);

// SAFETY: read in one load.
unsafe impl Sync for Number {}

/// A reference, because a copy would take most of the stack.
static NO_USAGE: &Usage = &Usage::ZERO;

const BPF_NOEXIST: u64 = 1;
const BPF_RB_NO_WAKEUP: u64 = 1;

#[inline(always)]
pub(crate) fn control() -> Control {
    // SAFETY: see `Number`.
    Control::from_bits(unsafe { CONTROL.0.get().read_volatile() })
}

/// The region of a request's device. `None` if the device is not counted.
#[inline(always)]
pub(crate) fn region(request: &Completion) -> Option<&'static Region> {
    let device = request.device()?;
    DEVICES.get(device_cell(device)).filter(|region| region.device == device)
}

/// The entry of a request in [`PROCESSES`]. No other request has it until this one has ended. `None` if the queue has grown since
/// user space measured it.
#[inline(always)]
pub(crate) fn entry(request: &Completion, region: &Region) -> Option<*mut u64> {
    let queue = member!(u64, request.pointer(), processes.request_hctx) as *const u8;
    if queue.is_null() {
        return None;
    }
    // With a scheduler, `tag` changes when the request is dispatched.
    let internal = member!(u32, request.pointer(), processes.request_internal_tag);
    let tag = if internal.cast_signed() < 0 {
        member!(u32, request.pointer(), processes.request_tag)
    } else {
        internal
    };
    PROCESSES.get_ptr_mut(region.entry(member!(u32, queue, processes.hctx_number), tag)?)
}

/// Captures the name of the current process, unless that has been done in this epoch.
#[inline(always)]
pub(crate) fn note_name(process: u32, epoch: u32) {
    let Some(name) = NAMES.get_ptr_mut(name_cell(process)) else { return };
    // SAFETY: a single number.
    if unsafe { (*name).owner } != ProcessName::owner(process, epoch) {
        capture_name(process, epoch);
    }
}

/// Names are only for display: if two processes share a cell, one name may replace the other.
#[inline(never)]
fn capture_name(process: u32, epoch: u32) {
    let Some(name) = NAMES.get_ptr_mut(name_cell(process)) else { return };
    // SAFETY: the helper has no argument and no precondition.
    let task = unsafe { bpf_get_current_task() };
    let leader = read_u64(task, constant!(processes.task_leader));
    let comm = read(leader + u64::from(constant!(processes.task_comm)));
    // SAFETY: an entry of the map.
    unsafe { name.write(ProcessName { owner: ProcessName::owner(process, epoch), comm }) };
}

/// This CPU's counters for a key. No other run writes them: see the probe's `maps::series`. `None` if there is no room.
#[inline(always)]
pub(crate) fn usage(key: &ProcessKey) -> Option<*mut Usage> {
    if let Some(usage) = USAGE.get_ptr_mut(key) {
        return Some(usage);
    }
    // Fails if the map is full, or if another CPU was faster.
    let _ = USAGE.insert(key, NO_USAGE, BPF_NOEXIST);
    USAGE.get_ptr_mut(key)
}

/// Counts a completion that is neither counted for a process nor sent.
#[inline(always)]
pub(crate) fn count_lost(reason: Reason) {
    if let Some(counts) = LOST.get_ptr_mut(0) {
        // SAFETY: this CPU's own value. In bounds, because every reason is below `REASONS`.
        unsafe { *(*counts).as_mut_ptr().add(reason as usize) += 1 };
    }
}

/// Counts a single I/O. Whether it is to be sent.
#[inline(always)]
pub(crate) fn is_sampled(one_of: u32) -> bool {
    let Some(counts) = IO_COUNTS.get_ptr_mut(0) else { return false };
    // SAFETY: this CPU's own value.
    unsafe {
        (*counts).completed += 1;
        (*counts).completed & u64::from(one_of.wrapping_sub(1)) == 0
    }
}

/// Sends a single I/O, which user space reads within 50 ms. If the ring buffer is full, the I/O is dropped and counted.
#[inline(always)]
pub(crate) fn send(record: IoRecord) {
    if let Some(mut entry) = IOS.reserve(0) {
        entry.write(record);
        entry.submit(BPF_RB_NO_WAKEUP);
    } else if let Some(counts) = IO_COUNTS.get_ptr_mut(0) {
        // SAFETY: this CPU's own value.
        unsafe { (*counts).dropped += 1 };
    }
}
