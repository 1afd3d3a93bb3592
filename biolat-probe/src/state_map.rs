//! An array of pages in kernel memory that keeps the state for the next daemon if only a BPF file system is available.

#![allow(unsafe_code, reason = "aya::Pod is an unsafe trait")]

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use anyhow::{Context as _, Result};
use aya::maps::{Array, IterableMap as _, Map, MapData, MapError};

const PAGE: usize = 4096;

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Page([u8; PAGE]);

// SAFETY: bytes.
unsafe impl aya::Pod for Page {}

/// An array of pages.
pub struct StateMap(Array<MapData, Page>);

impl StateMap {
    /// Size of a page. Reads and writes start at a multiple of it.
    pub const PAGE_BYTES: u64 = PAGE as u64;

    /// Creates a map with room for at least this many bytes.
    pub fn create(bytes: u64) -> Result<Self> {
        let pages = u32::try_from(bytes.div_ceil(PAGE as u64)).unwrap_or(u32::MAX);
        Ok(Self(Array::create(pages, 0).context("cannot create a map for the state")?))
    }

    /// Opens a map that another process has created.
    pub fn open(fd: OwnedFd) -> Result<Self> {
        Ok(Self(Map::from_map_data(MapData::from_fd(fd)?)?.try_into()?))
    }

    /// Size of the map in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.0.len()) * PAGE as u64
    }

    /// Reads, starting at a page boundary.
    pub fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        for (bytes, index) in buffer.chunks_mut(PAGE).zip(page(at)?..) {
            let Page(page) = self.0.get(&index, 0).map_err(error)?;
            bytes.copy_from_slice(&page[..bytes.len()]);
        }
        Ok(())
    }

    /// Writes whole pages, starting at a page boundary. The last one is padded with zeros.
    pub fn write(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        for (bytes, index) in bytes.chunks(PAGE).zip(page(at)?..) {
            let mut page = Page([0; PAGE]);
            page.0[..bytes.len()].copy_from_slice(bytes);
            self.0.set(index, page, 0).map_err(error)?;
        }
        Ok(())
    }
}

impl AsFd for StateMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.map().fd().as_fd()
    }
}

fn page(at: u64) -> io::Result<u32> {
    let page = u32::try_from(at / PAGE as u64).ok().filter(|_| at.is_multiple_of(PAGE as u64));
    page.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn error(error: MapError) -> io::Error {
    match error {
        MapError::OutOfBounds { .. } => io::ErrorKind::StorageFull.into(),
        MapError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    }
}
