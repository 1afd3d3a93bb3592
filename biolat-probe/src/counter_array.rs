//! An array of counters whose values have a row for each CPU of a bank: see [`biolat_common::slot`].

#![allow(unsafe_code, reason = "maps a file into memory and reads it")]

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
    ptr,
};

use anyhow::{Context as _, Result, ensure};
use aya::maps::MapData;

use super::sys;

/// The shape of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Number of values.
    pub(super) length: u32,
    /// Number of rows in a value.
    pub(super) rows: u32,
    /// Size of a row in bytes, a multiple of 8.
    pub(super) row_bytes: u32,
}

impl Shape {
    pub(super) const fn value_bytes(self) -> u32 {
        self.rows * self.row_bytes
    }

    pub(super) const fn bytes(self) -> u64 {
        self.length as u64 * self.value_bytes() as u64
    }
}

/// Creates an array in the memory of a NUMA node, if one is given.
pub(super) fn create(shape: Shape, node: Option<u32>) -> Result<MapData> {
    let array = sys::create_mappable_array(shape.length, shape.value_bytes(), node);
    Ok(MapData::from_fd(array.context("cannot create an array of counters")?)?)
}

/// Fails unless a map has this shape.
pub(super) fn ensure_shape(map: &MapData, shape: Shape) -> Result<()> {
    let info = map.info().context("cannot read the info of an array of counters")?;
    let (length, bytes) = (info.max_entries(), info.value_size());
    ensure!(
        (length, bytes) == (shape.length, shape.value_bytes()),
        "an array of counters has {length} values of {bytes} bytes"
    );
    Ok(())
}

/// An array whose first values are mapped into memory for reading. The kernel does not let such a mapping become writable.
///
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/bpf/syscall.c#L924>
pub(super) struct MappedArray {
    map: MapData,
    shape: Shape,
    memory: *const u64,
    /// Number of values that are mapped. The process's resident memory includes all of them, even if nothing was ever counted.
    mapped: u32,
}

// SAFETY: the memory is only read, and belongs to this value.
unsafe impl Send for MappedArray {}

impl MappedArray {
    /// The array, of which nothing is mapped yet.
    pub(super) fn new(map: MapData, shape: Shape) -> Result<Self> {
        ensure_shape(&map, shape)?;
        Ok(Self { map, shape, memory: ptr::null(), mapped: 0 })
    }

    /// Maps a value and all before it, unless they are mapped already.
    pub(super) fn map_up_to(&mut self, index: u32) -> Result<()> {
        if index < self.mapped {
            return Ok(());
        }
        self.unmap();
        // Twice as many each time, because the slots of an array are taken one after the other.
        let values = (index + 1).next_power_of_two().min(self.shape.length);
        let (bytes, fd) = (self.bytes_of(values), self.fd().as_raw_fd());
        // SAFETY: a new mapping, which no other memory depends on.
        let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("cannot map an array of counters");
        }
        (self.memory, self.mapped) = (memory.cast(), values);
        Ok(())
    }

    fn unmap(&mut self) {
        if self.mapped > 0 {
            // SAFETY: this value's own mapping. Rows in it are only used until the next change of this value.
            unsafe { libc::munmap(self.memory.cast_mut().cast(), self.bytes_of(self.mapped)) };
            self.mapped = 0;
        }
    }

    fn bytes_of(&self, values: u32) -> usize {
        Shape { length: values, ..self.shape }.bytes() as usize
    }

    pub(super) fn map(&self) -> &MapData {
        &self.map
    }

    /// Number of values.
    pub(super) fn length(&self) -> u32 {
        self.shape.length
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.shape.bytes()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd().as_fd()
    }

    /// The words of a row of a mapped value.
    pub(super) fn row(&self, index: u32, row: u32) -> Row {
        assert!(index < self.mapped && row < self.shape.rows);
        let offset =
            index as usize * self.shape.value_bytes() as usize + row as usize * self.shape.row_bytes as usize;
        // SAFETY: in bounds of the mapping.
        Row(unsafe { self.memory.byte_add(offset) })
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        self.unmap();
    }
}

/// One CPU's row of a value. The probe may be writing it.
#[derive(Clone, Copy)]
pub(super) struct Row(*const u64);

impl Row {
    /// The row as counters. They may change at any time, and a completion that is being counted may be in some of them only.
    ///
    /// # Safety
    ///
    /// `T` must have the size of the row and consist of integers. The reference must only be used to read each of them once, while
    /// the array is mapped.
    pub(super) unsafe fn counters<'a, T>(self) -> &'a T {
        // SAFETY: aligned to 8 bytes, and any value is valid; the caller vouches for the rest.
        unsafe { &*self.0.cast() }
    }

    /// The sum of the words in a range of bytes, rounded up to whole words.
    ///
    /// # Safety
    ///
    /// The row must have these bytes.
    pub(super) unsafe fn sum(self, from: usize, to: usize) -> u64 {
        let words = from / size_of::<u64>()..to.div_ceil(size_of::<u64>());
        // SAFETY: the caller vouches for the range.
        words.fold(0, |sum, word| sum.wrapping_add(unsafe { self.0.add(word).read_volatile() }))
    }

    #[cfg(test)]
    pub(super) fn of<T>(value: &T) -> Self {
        Self(ptr::from_ref(value).cast())
    }
}
