//! The maps and every access to them. ARCHITECTURE.md lists their names, sizes and writers.

use core::{
    cell::UnsafeCell,
    ptr::{self, NonNull},
};

use aya_ebpf::{
    btf_maps::{Array, ArrayOfMaps, HashMap, LruHashMap, PerCpuArray, Queue, RingBuf},
    helpers::generated::{bpf_get_smp_processor_id, bpf_ringbuf_output},
    macros::btf_map,
};
use biolat_common::{
    constants::{COUNTER_FLAGS, ENTRY_WORDS_PLACEHOLDER, PLACES_PLACEHOLDER, SERIES_WORDS_PLACEHOLDER},
    event::{Event, RING_BYTES},
    inflight::Found,
    lost::{Counts, LEFT, Reason, TAG_WAITS as LOST_TAG_WAITS, TAKEN},
    mark::Mark,
    names::{FUNCTIONS as MAX_FUNCTIONS, Function, HEAD_BYTES, NamedRecord, PATH_BYTES},
    series::{Key, Series},
    size::{Counters, MAX_PARTS, Parts, Sizes},
    slot::{BANKS, CHUNK_SLOTS, CHUNKS, Cell, CpuPlace, SLOTS, TABLE_CELLS, array_index, table_cell},
    slow::{self, SlowRecord},
    tags::{MAX_DEVICES, Pool, TagWaits},
    workload::{Cgroup, Entry, MAX_PLACES, Places},
};

use crate::{atomic, constants::option_const, in_place::in_place, maximum::Maximum};

/// An array of counters of one chunk or workload table and one bank: see [`biolat_common::slot`]. Its value has a row for each of
/// the bank's CPUs; the daemon sets its size when it loads the probe.
///
/// The kernel accepts a map into an array of maps only if it matches the template here. From 5.15 to 6.1, a template whose value
/// is a struct in BTF does not match a map without BTF, and the daemon creates its maps without BTF. So values are words here.
///
/// <https://github.com/torvalds/linux/blob/v6.1/kernel/bpf/map_in_map.c#L86>
type Rows<const WORDS: usize, const LENGTH: usize> = Array<[u64; WORDS], LENGTH, COUNTER_FLAGS>;

/// The counters of the series in one chunk.
type Chunk = Rows<SERIES_WORDS_PLACEHOLDER, { CHUNK_SLOTS as usize }>;

/// Workload tables.
type WorkloadTables = Rows<ENTRY_WORDS_PLACEHOLDER, PLACES_PLACEHOLDER>;

/// One of the two programs that record completions. Each has its own counters, and the kernel does not run a program that is
/// already running on the CPU. So no other run writes these counters on this CPU, with two exceptions: the requeue program, which
/// writes only `requeues`, and, before Linux 6.1, an interrupt.
pub(crate) trait Program {
    const IS_UNDERSTUDY: bool;
}

/// The program `block_rq_complete`, attached from the start.
pub(crate) enum First {}

/// The program `understudy`, which records completions for which the kernel refused to run the first program.
pub(crate) enum Understudy {}

impl Program for First {
    const IS_UNDERSTUDY: bool = false;
}

impl Program for Understudy {
    const IS_UNDERSTUDY: bool = true;
}

#[btf_map]
static TABLE: Array<u64, { TABLE_CELLS as usize }> = Array::new();

#[btf_map]
static INDEX: HashMap<u64, u32, { SLOTS as usize }> = HashMap::new();

#[btf_map]
static FREE: Queue<u32, { SLOTS as usize }> = Queue::new();

/// Where the counters of each CPU are, as [`CpuPlace::bits`]. Only the daemon writes it; it also sets the number of CPUs when it
/// loads the probe.
#[btf_map]
static CPUS: Array<u64, 1> = Array::new();

/// The counters of the first bank for the slots that exist from the start. The daemon sets their number when it loads the probe.
#[btf_map]
static SERIES: Chunk = Chunk::new();

/// The other chunks, by [`array_index`], which the daemon adds.
#[btf_map]
static MORE: ArrayOfMaps<Chunk, { (CHUNKS * BANKS) as usize }> = ArrayOfMaps::new();

/// The understudy's counters. The daemon adds all of them before it attaches the understudy.
#[btf_map]
static SERIES_2: ArrayOfMaps<Chunk, { (CHUNKS * BANKS) as usize }> = ArrayOfMaps::new();

#[btf_map]
static LOST: PerCpuArray<Counts, 1> = PerCpuArray::new();

#[btf_map]
static LOST_2: PerCpuArray<Counts, 1> = PerCpuArray::new();

/// Marks of recorded completions, by stack frame: see [`crate::marks`]. The daemon sets the number of lines when it loads the
/// probe.
#[btf_map]
static MARKS: Array<Mark, 1> = Array::new();

/// Nonzero if completions are marked. Only the daemon writes it, before it attaches the understudy.
#[unsafe(link_section = ".data.marking")]
static MARKING: Number = Number(UnsafeCell::new(0));

#[btf_map]
static EVENTS: RingBuf<Event, RING_BYTES> = RingBuf::new();

#[btf_map]
static SLOW: RingBuf<SlowRecord, { slow::RING_BYTES }> = RingBuf::new();

/// Number of records dropped because [`SLOW`] was full.
#[btf_map]
static DROPPED: PerCpuArray<u64, 1> = PerCpuArray::new();

#[btf_map]
static DROPPED_2: PerCpuArray<u64, 1> = PerCpuArray::new();

/// Buffers in which records with names are built: one for each of the two programs.
#[btf_map]
static NAMED: PerCpuArray<NamedRecord, 2> = PerCpuArray::new();

/// Functions that lead to names, by the key of their symbol or by address. Only the daemon writes it.
#[btf_map]
static FUNCTIONS: HashMap<u64, Function, MAX_FUNCTIONS> = HashMap::new();

/// Address of the kernel's queues of tasks that wait for a page; 0 if it is unknown. Only the daemon writes it.
#[btf_map]
static PAGE_QUEUES: Array<u64, 1> = Array::new();

/// Prints the name of a function.
static SYMBOL_FORMAT: [u8; 4] = *b"%ps\0";

/// Requests that have completed in part, by address.
#[btf_map]
static PARTS: LruHashMap<u64, Parts, MAX_PARTS> = LruHashMap::new();

/// The latest allocation time of any partially completed request, not counting steps of flush sequences. A global instead of a
/// map, because the common case can then read it with one load.
static PARTS_UNTIL: Maximum = Maximum::new();

/// Waits for a tag, by device. The daemon sets the maximum number of entries to 1 where the kernel has no such tracepoint.
#[btf_map]
static TAG_WAITS: HashMap<u64, TagWaits, MAX_DEVICES> = HashMap::new();

/// A number that the daemon writes and the probe only reads.
struct Number(UnsafeCell<u64>);

// SAFETY: read in one load.
unsafe impl Sync for Number {}

/// Result of the latest run of [`crate::inflight::look`].
#[btf_map]
static INFLIGHT: Array<Found, 1> = Array::new();

/// The workload tables of the first bank.
#[btf_map]
static WORKLOADS: WorkloadTables = WorkloadTables::new();

/// The workload tables of the other banks, which the daemon adds.
#[btf_map]
static MORE_WORKLOADS: ArrayOfMaps<WorkloadTables, { BANKS as usize }> = ArrayOfMaps::new();

/// The understudy's workload tables. The daemon adds them before it attaches the understudy.
#[btf_map]
static WORKLOADS_2: ArrayOfMaps<WorkloadTables, { BANKS as usize }> = ArrayOfMaps::new();

/// For each place in the workload tables, the latest epoch in which any CPU created an entry there. They form a single value, so
/// the daemon reads them all with one system call.
#[btf_map]
static WORKLOADS_USED: Array<Places, 1> = Array::new();

/// The cgroups that have their own entries, by serial number. The daemon sets the maximum number.
#[btf_map]
static CGROUPS: HashMap<u64, Cgroup, 1> = HashMap::new();

/// Buffers in which new entries of [`CGROUPS`] are built.
#[btf_map]
static CGROUP_BUFFER: PerCpuArray<Cgroup, 1> = PerCpuArray::new();

#[btf_map]
static CGROUP_BUFFER_2: PerCpuArray<Cgroup, 1> = PerCpuArray::new();

/// The current epoch of the workload tables. Only the daemon writes it. The initial value is not zero, which keeps it out of
/// `.bss`, where the probe writes.
static EPOCH: Number = Number(UnsafeCell::new(1));

const BPF_NOEXIST: u64 = 1;
const BPF_RB_NO_WAKEUP: u64 = 1;

/// The slot of a series, with its key, if the series is in the table.
#[inline(always)]
pub(crate) fn series_in_table(key: Key) -> Option<Cell> {
    let cell = Cell::from_bits(*TABLE.get(table_cell(key))?);
    cell.is_of(key).then_some(cell)
}

/// The slot of a series; creates the series if necessary. `None` if no slot is free.
#[inline(always)]
pub(crate) fn slot_or_new(key: Key) -> Option<u32> {
    let bits = key.bits();
    if let Some(slot) = slot_in_index(bits) {
        return Some(slot);
    }
    let slot = FREE.pop().ok()??;
    if INDEX.insert(bits, slot, BPF_NOEXIST).is_ok() {
        return Some(slot);
    }
    // Another CPU was faster, the index is full, or its bucket is locked. Return the slot.
    let _ = FREE.push(slot, 0);
    slot_in_index(bits)
}

#[inline(always)]
fn slot_in_index(bits: u64) -> Option<u32> {
    // SAFETY: entries are plain numbers. Only the daemon removes them, after the device is gone; the memory may then be reused.
    unsafe { INDEX.get(bits) }.copied()
}

/// Where this CPU's counters are.
#[derive(Clone, Copy)]
pub(crate) struct Cpu(CpuPlace);

impl Cpu {
    #[inline(always)]
    pub(crate) fn current() -> Self {
        // SAFETY: the helper has no requirements.
        let number = unsafe { bpf_get_smp_processor_id() } as u32;
        if number < option_const!(first_rows) {
            return Self(CpuPlace::new(0, number));
        }
        Self(CpuPlace::from_bits(CPUS.get(number).copied().unwrap_or(0)))
    }

    /// The CPU's row in the first bank, if it is there.
    #[inline(always)]
    fn first_row(self) -> Option<u64> {
        bounded(self.0.number(), option_const!(first_rows))
    }

    /// The CPU's row in its bank.
    #[inline(always)]
    fn row(self) -> Option<u64> {
        bounded(self.decoded_here().row().into(), option_const!(rows))
    }

    #[inline(always)]
    fn bank(self) -> u32 {
        self.decoded_here().bank()
    }

    /// The same place. The compiler decodes it where it is needed, instead of keeping both halves on the stack, which is short.
    #[inline(always)]
    fn decoded_here(self) -> CpuPlace {
        CpuPlace::from_number(in_place(self.0.number()))
    }
}

/// The row if it is below this limit.
#[inline(always)]
fn bounded(row: u64, limit: u32) -> Option<u64> {
    let row = in_place(row);
    // Otherwise the compiler would multiply before it compares, and the verifier would not know the bound of the product.
    (row < u64::from(limit)).then(|| in_place(row))
}

/// A row of a value whose rows have this size.
#[inline(always)]
fn at(rows: *mut u8, row: u64, bytes: u32) -> *mut u8 {
    // SAFETY: the row is bounded.
    unsafe { rows.add(row as usize * bytes as usize) }
}

/// This CPU's counters for a slot. No other run writes them, except `requeues`: since Linux 6.1 the kernel does not run a program
/// that is already running on the CPU. Earlier kernels may do so in an interrupt; a count may then be lost, which the audit
/// detects.
///
/// <https://github.com/torvalds/linux/commit/05b24ff9b2cfabfcfd951daaa915a036ab53c9e1>
#[inline(always)]
pub(crate) fn series<P: Program>(cpu: Cpu, slot: u32) -> Option<*mut Series> {
    let bytes = option_const!(series_bytes);
    if !P::IS_UNDERSTUDY
        && let Some(row) = cpu.first_row()
        && let Some(rows) = SERIES.get_ptr_mut(slot)
    {
        return Some(at(rows.cast(), row, bytes).cast());
    }
    let chunks = if P::IS_UNDERSTUDY { &SERIES_2 } else { &MORE };
    let chunk = array_index(slot / CHUNK_SLOTS, cpu.bank());
    let rows = chunks.get_value_ptr_mut(chunk, &(slot % CHUNK_SLOTS))?;
    Some(at(rows.cast(), cpu.row()?, bytes).cast())
}

/// This CPU's size counters of a series. They exist only if the constant `sizes` is 1.
#[inline(always)]
pub(crate) fn sizes(series: *mut Series) -> *mut Sizes {
    // SAFETY: the value of the map is a `Counters`.
    unsafe { &raw mut (*series.cast::<Counters>()).sizes }
}

/// Whether parts of a request allocated at this time may have completed already.
#[inline(always)]
pub(crate) fn may_have_parts(allocated_at: u64) -> bool {
    allocated_at <= PARTS_UNTIL.get()
}

/// Adds the bytes of a completed part of a request.
#[inline(always)]
pub(crate) fn add_part(request: u64, allocated_at: u64, bytes: u32) {
    let before = bytes_of_parts(request, allocated_at);
    let parts = Parts { allocated_at, bytes: before + u64::from(bytes) };
    let _ = PARTS.insert(request, parts, 0);
}

/// Notes that a part of a request allocated at this time has completed. The run that ends the request comes later and sees this.
#[inline(always)]
pub(crate) fn note_part(allocated_at: u64) {
    PARTS_UNTIL.raise(allocated_at);
}

/// Removes and returns the bytes of a request's earlier parts.
#[inline(always)]
pub(crate) fn take_parts(request: u64, allocated_at: u64) -> u64 {
    let bytes = bytes_of_parts(request, allocated_at);
    let _ = PARTS.remove(request);
    bytes
}

#[inline(always)]
fn bytes_of_parts(request: u64, allocated_at: u64) -> u64 {
    // SAFETY: plain numbers. Only completions of this request write its entry, one at a time, but the map may evict the entry and
    // reuse its memory for another request while it is read. The allocation time then differs, unless the memory is reused
    // between the two loads; in that case the size of one request is wrong.
    match unsafe { PARTS.get(request) } {
        Some(parts) if parts.allocated_at == allocated_at => parts.bytes,
        _ => 0,
    }
}

/// Counts a lost completion. Returns this CPU's count for the reason.
#[inline(always)]
pub(crate) fn count_lost<P: Program>(reason: Reason) -> u64 {
    count::<P>(reason as usize)
}

/// Counts a completion that the first program leaves to the understudy.
#[inline(always)]
pub(crate) fn count_left() {
    count::<First>(LEFT);
}

/// Counts a completion that the understudy records.
#[inline(always)]
pub(crate) fn count_taken() {
    count::<Understudy>(TAKEN);
}

#[inline(always)]
fn count<P: Program>(index: usize) -> u64 {
    let map = if P::IS_UNDERSTUDY { &LOST_2 } else { &LOST };
    let Some(counts) = map.get_ptr_mut(0) else { return 0 };
    // SAFETY: this CPU's own value. In bounds, because every index is below `REASONS`.
    unsafe {
        let count = (*counts).as_mut_ptr().add(index);
        *count += 1;
        *count
    }
}

/// Counts a wait for one of the `tags` tags of a pool.
#[inline(always)]
pub(crate) fn count_tag_wait(device: u64, pool: Pool, tags: u32) {
    let Some(counts) = tag_waits(device) else {
        count::<First>(LOST_TAG_WAITS);
        return;
    };
    let pool = pool as usize;
    // SAFETY: only the daemon removes an entry, after its device is gone. All CPUs add to the same number, and any of them may
    // write the number of tags.
    unsafe {
        atomic::add(&raw mut (*counts).waits[pool], 1);
        (&raw mut (*counts).tags[pool]).write_volatile(u64::from(tags));
    }
}

/// The waits of a device. `None` if there is no room for another device.
#[inline(always)]
fn tag_waits(device: u64) -> Option<*mut TagWaits> {
    const NONE: TagWaits = TagWaits { waits: [0; 3], tags: [0; 3] };
    TAG_WAITS.get_ptr_mut(device).or_else(|| {
        // Another CPU may be faster, so the result is ignored.
        let _ = TAG_WAITS.insert(device, NONE, BPF_NOEXIST);
        TAG_WAITS.get_ptr_mut(device)
    })
}

/// Whether the first program marks completions for the understudy.
#[inline(always)]
pub(crate) fn is_marking() -> bool {
    // SAFETY: see `Number`.
    unsafe { MARKING.0.get().read_volatile() != 0 }
}

/// An address that stays the same while the probe is loaded.
#[inline(always)]
pub(crate) fn anchor() -> *const u8 {
    ptr::from_ref(&MARKING).cast()
}

/// One line of the marks.
#[inline(always)]
pub(crate) fn mark(line: u32) -> Option<*mut Mark> {
    MARKS.get_ptr_mut(line)
}

/// Sends an event, which the daemon reads during its next collection. It is dropped if the ring buffer is full.
#[inline(always)]
pub(crate) fn send(event: Event) {
    if let Some(mut entry) = EVENTS.reserve(0) {
        entry.write(event);
        entry.submit(BPF_RB_NO_WAKEUP);
    }
}

/// Sends the record of an I/O, which the daemon reads within a second. If the ring buffer is full, the record is dropped and
/// counted.
#[inline(always)]
pub(crate) fn send_slow<P: Program>(record: SlowRecord) {
    if let Some(mut entry) = SLOW.reserve(0) {
        entry.write(record);
        entry.submit(BPF_RB_NO_WAKEUP);
    } else {
        count_dropped::<P>();
    }
}

/// Sends a record with its names and a path of this length. If the ring buffer is full, the record is dropped and counted.
#[inline(always)]
pub(crate) fn send_named<P: Program>(record: &NamedRecord, path: usize) {
    // The ring buffer aligns to 8 bytes anyway.
    let length = HEAD_BYTES + (path & (PATH_BYTES - 1));
    // SAFETY: the length is in bounds because of the mask.
    let sent = unsafe {
        bpf_ringbuf_output(
            (&raw const SLOW).cast_mut().cast(),
            ptr::from_ref(record).cast_mut().cast(),
            length as u64,
            BPF_RB_NO_WAKEUP,
        )
    };
    if sent != 0 {
        count_dropped::<P>();
    }
}

#[inline(always)]
fn count_dropped<P: Program>() {
    if let Some(dropped) = (if P::IS_UNDERSTUDY { &DROPPED_2 } else { &DROPPED }).get_ptr_mut(0) {
        // SAFETY: this CPU's own value.
        unsafe { *dropped += 1 };
    }
}

/// This CPU's buffer for a record with names, for the first program or the understudy.
#[inline(always)]
pub(crate) fn named_record(program: u32) -> Option<*mut NamedRecord> {
    NAMED.get_ptr_mut(program)
}

/// What the probe finds at the end of an I/O that calls this function.
#[inline(always)]
pub(crate) fn function(key: u64) -> Option<&'static Function> {
    // SAFETY: entries are plain numbers. The daemon replaces one only with the same numbers.
    unsafe { FUNCTIONS.get(key) }
}

/// Address of the kernel's queues of tasks that wait for a page, or 0.
#[inline(always)]
pub(crate) fn page_wait_queues() -> u64 {
    PAGE_QUEUES.get(0).copied().unwrap_or(0)
}

/// The format that prints the name of a function.
#[inline(always)]
pub(crate) fn symbol_format() -> *const u8 {
    SYMBOL_FORMAT.as_ptr()
}

/// The map value for the result of [`crate::inflight::look`].
#[inline(always)]
pub(crate) fn found() -> Option<*mut Found> {
    INFLIGHT.get_ptr_mut(0)
}

/// The current epoch of the workload tables.
#[inline(always)]
pub(crate) fn epoch() -> u64 {
    // SAFETY: see `Number`.
    unsafe { EPOCH.0.get().read_volatile() }
}

/// This CPU's entry at an index of the workload tables. Nothing else writes it: see [`series`].
#[inline(always)]
pub(crate) fn workload<P: Program>(cpu: Cpu, index: u32) -> Option<EntryPointer> {
    let (rows, row) = match cpu.first_row() {
        Some(row) if !P::IS_UNDERSTUDY => (WORKLOADS.get_ptr_mut(index)?, row),
        _ => {
            let tables = if P::IS_UNDERSTUDY { &WORKLOADS_2 } else { &MORE_WORKLOADS };
            (tables.get_value_ptr_mut(cpu.bank(), &index)?, cpu.row()?)
        }
    };
    EntryPointer::new(at(rows.cast(), row, size_of::<Entry>() as u32).cast())
}

/// A pointer to an entry. An `Option` of it fits in one register; if it took two, the verifier might consider one of them
/// uninitialized.
pub(crate) type EntryPointer = NonNull<Entry>;

/// Notes that the entry at a place is in use. Returns the place.
///
/// A global function: otherwise the verifier would walk the rest of the program for each possible place.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn mark_workload(place: u32, epoch: u64) -> u32 {
    if let Some(used) = WORKLOADS_USED.get_ptr_mut(0) {
        // SAFETY: the mask keeps it in bounds, and it is written as a whole. All runs that write here at the same time write the
        // same number: a place is used only in every second epoch, and between two such epochs the daemon waits for all runs to
        // end.
        unsafe {
            let used = used.cast::<u32>().add((place % MAX_PLACES) as usize);
            if used.read_volatile() != epoch as u32 {
                used.write_volatile(epoch as u32);
            }
        }
    }
    place
}

/// Whether the record of a cgroup is stale. `None` if it has no record.
#[inline(always)]
pub(crate) fn is_record_stale(workload: u64) -> Option<bool> {
    // SAFETY: the flag is a single number.
    CGROUPS.get_ptr(workload).map(|cgroup| unsafe { (*cgroup).is_stale } != 0)
}

/// Records a cgroup, replacing any earlier record. `false` if there is no room for a new one.
#[inline(always)]
pub(crate) fn insert_cgroup(workload: u64, cgroup: &Cgroup) -> bool {
    CGROUPS.insert(workload, cgroup, 0).is_ok()
}

/// Stores the address of the current I/O's cgroup in this CPU's buffer, for [`cgroup_buffer`].
#[inline(always)]
pub(crate) fn set_current_cgroup<P: Program>(css: u64) {
    if let Some(cgroup) = cgroup_buffer::<P>() {
        // SAFETY: this CPU's own buffer.
        unsafe { (*cgroup).css = css }
    }
}

/// This CPU's buffer for [`insert_cgroup`].
#[inline(always)]
pub(crate) fn cgroup_buffer<P: Program>() -> Option<*mut Cgroup> {
    if P::IS_UNDERSTUDY { CGROUP_BUFFER_2.get_ptr_mut(0) } else { CGROUP_BUFFER.get_ptr_mut(0) }
}
