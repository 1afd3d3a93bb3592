//! The ABI between the probe and the daemon, byte for byte. If you change anything here, rebuild the probe and note the change in
//! the changelog.

use biolat_common::{
    constants::{Constants, ProbeOptions},
    event::{Event, EventKind},
    kernel::{KernelLayout, directory_id},
    lost::{Counts, Reason},
    names::NamesLayout,
    processes::ProcessConstants,
    series::Key,
    slot::{Cell, CpuPlace, SLOTS, TABLE_CELLS, table_cell},
};
use std::mem::{align_of, offset_of, size_of};

/// The bytes of a value in memory.
fn bytes<T>(value: &T) -> &[u8] {
    // SAFETY: used only with `repr(C)` types of plain integers without padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

#[test]
fn keys_and_cells() {
    let key = Key::new(0x12_3456_789a, 0x23);
    assert_eq!(bytes(&key), [0x23, 0x9a, 0x78, 0x56, 0x34, 0x12, 0, 0]);
    assert_eq!((key.device(), key.op()), (0x12_3456_789a, 0x23));
    let cell = Cell::new(key, 0x0abc);
    assert_eq!(bytes(&cell), [0xbc, 0x0a, 0x23, 0x9a, 0x78, 0x56, 0x34, 0x12]);
    assert!(cell.is_of(key) && !cell.is_of(Key::new(0x12_3456_789a, 0x22)));
    assert_eq!(cell.slot(), 0x0abc);
    assert!(!Cell::EMPTY.is_of(Key::new(1, 0)));
    assert!(Cell::EMPTY.yields_to(key) && !cell.yields_to(key) && cell.yields_to(Key::new(5, 1)));
    assert_eq!(table_cell(Key::new(9, 1)), 9 * 8 + 1);
    assert!(table_cell(Key::new((1 << 40) - 1, 35)) < TABLE_CELLS);
    assert_eq!(Cell::new(key, SLOTS - 1).slot(), SLOTS - 1);
}

#[test]
fn places_of_cpus() {
    let place = CpuPlace::new(3, 17);
    assert_eq!((place.bits(), place.bank(), place.row()), (0x3_0000_0012, 3, 17));
    assert_eq!(CpuPlace::from_bits(place.bits()), place);
    assert_eq!(CpuPlace::new(0, 5).number(), 5, "the row, in the first bank");
    assert_eq!((CpuPlace::from_bits(0), CpuPlace::NONE.row()), (CpuPlace::NONE, u32::MAX));
}

#[test]
fn event_layout() {
    let event = Event::new(EventKind::NoRoom, Key::new(0x1234, 0x56));
    assert_eq!(bytes(&event), [1, 0, 0, 0, 0, 0, 0, 0, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0]);
    assert_eq!(Event::from_bytes(bytes(&event)), Some(event));
}

#[test]
fn directory_ids_are_unique_and_spread() {
    let ids = (0..1 << 20).map(directory_id).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(ids.len(), 1 << 20);
    assert_eq!((directory_id(0), ids.last()), (0, Some(&((1 << 20) - 1))));
    // 32 disks, each with this number of inodes in sysfs.
    for files in [64, 100, 128, 131, 256] {
        let cells = (0..32).map(|disk| table_cell(Key::new(directory_id(20_000 + disk * files), 0)));
        let distinct = cells.collect::<std::collections::BTreeSet<_>>().len();
        assert!(distinct >= 28, "{files} each: {distinct} cells");
    }
}

#[test]
fn losses_and_constants() {
    assert_eq!(size_of::<Counts>(), 64);
    for (index, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, index);
    }
    assert_eq!((size_of::<Constants>(), align_of::<Constants>()), (544, 4));
    assert_eq!((size_of::<KernelLayout>(), size_of::<ProbeOptions>()), (200, 36));
    assert_eq!((size_of::<NamesLayout>(), size_of::<ProcessConstants>()), (240, 32));
    assert_eq!((offset_of!(Constants, kernel.request_hctx), offset_of!(Constants, options)), (152, 440));
}
