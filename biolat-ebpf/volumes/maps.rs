//! The maps and every access to them.

use aya_ebpf::{
    btf_maps::{Array, ArrayOfMaps, PerCpuArray},
    macros::btf_map,
};
use biolat_common::{
    kernel::{DEVICE_CELLS, device_cell},
    volumes::{BioKey, ENTRIES, GROUPS, MAX_VOLUMES, SET_STARTS, SETS, Start, Tally, Volume, VolumeCounters},
};

type Set = [Start; SET_STARTS];

/// The volumes to measure, by the low bits of their ids. Only user space writes it.
#[btf_map]
static VOLUMES: Array<Volume, { DEVICE_CELLS as usize }> = Array::new();

/// The bios that have been submitted and have not ended.
#[btf_map]
static STARTS: Array<Set, { SETS as usize }> = Array::new();

/// The counters of each volume, which user space adds when it begins to measure the volume. The values are untyped, because user
/// space creates the inner maps without BTF.
#[btf_map]
static COUNTERS: ArrayOfMaps<
    PerCpuArray<[u64; size_of::<VolumeCounters>() / 8], { ENTRIES as usize }>,
    { MAX_VOLUMES as usize },
> = ArrayOfMaps::new();

/// Of the first programs, and of the understudies.
#[btf_map]
static TALLY: PerCpuArray<Tally, 2> = PerCpuArray::new();

/// A program or its understudy. Each has its own counters, because an understudy may run while the first program is preempted.
pub(crate) trait Role {
    const NUMBER: u32;
}

pub(crate) struct First;
pub(crate) struct Understudy;

impl Role for First {
    const NUMBER: u32 = 0;
}

impl Role for Understudy {
    const NUMBER: u32 = 1;
}

/// Only its address is used.
static ANCHOR: u64 = 0;

/// An address that stays the same while the programs are loaded: see [`crate::number`].
#[inline(always)]
pub(crate) fn anchor() -> *const u8 {
    core::ptr::from_ref(&ANCHOR).cast()
}

/// The volume with this id. `None` if the device is not measured.
#[inline(always)]
pub(crate) fn volume(device: u64) -> Option<&'static Volume> {
    VOLUMES.get(device_cell(device)).filter(|volume| volume.device == device)
}

/// This CPU's counters. The kernel does not run a program that is already running on the CPU (since 6.1; before that, an interrupt
/// may do so, and a count may be lost).
#[inline(always)]
pub(crate) fn counters<R: Role>(volume: u32, group: u32) -> Option<*mut VolumeCounters> {
    COUNTERS.get_value_ptr_mut(volume, &(R::NUMBER * GROUPS + group)).map(<*mut _>::cast)
}

/// The set of starts that a bio belongs to.
#[inline(always)]
pub(crate) fn starts(key: BioKey) -> Option<*mut Set> {
    STARTS.get_ptr_mut(key.set())
}

/// Other CPUs may write the place at the same time: see [`Start`].
#[inline(always)]
pub(crate) fn read_start(set: *mut Set, place: usize) -> Start {
    // SAFETY: in bounds, and two numbers.
    unsafe {
        let start = set.cast::<Start>().add(place);
        Start {
            time: (&raw const (*start).time).read_volatile(),
            bytes: (&raw const (*start).bytes).read_volatile(),
        }
    }
}

#[inline(always)]
pub(crate) fn write_start(set: *mut Set, place: usize, value: Start) {
    // SAFETY: as above.
    unsafe {
        let start = set.cast::<Start>().add(place);
        (&raw mut (*start).time).write_volatile(value.time);
        (&raw mut (*start).bytes).write_volatile(value.bytes);
    }
}

#[inline(always)]
pub(crate) fn count_evicted<R: Role>() {
    if let Some(tally) = TALLY.get_ptr_mut(R::NUMBER) {
        // SAFETY: this CPU's own value.
        unsafe { (*tally).evicted += 1 };
    }
}

/// Only an understudy's are of interest.
#[inline(always)]
pub(crate) fn count_taken<R: Role>() {
    if R::NUMBER != First::NUMBER
        && let Some(tally) = TALLY.get_ptr_mut(R::NUMBER)
    {
        // SAFETY: this CPU's own value.
        unsafe { (*tally).taken += 1 };
    }
}
