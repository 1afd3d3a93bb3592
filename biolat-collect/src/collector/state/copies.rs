//! Two copies of the state, written in turn. If a process ends in the middle of a write, the older copy remains, and the checksum
//! of the newer one shows that it is torn.
//!
//! They are stored in a sparse in-memory file, where each copy has its own offset, far from the other, and takes up only the
//! pages that it needs; or in a map, which can be pinned, and whose fixed size they share. A state that does not fit gets a
//! larger map.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt as _,
    },
};

use anyhow::{Context as _, Result};
use biolat_probe::StateMap;
use flate2::Crc;
use rustix::fs::{MemfdFlags, memfd_create};

const MAGIC: [u8; 8] = *b"biolat\0\x01";

/// Magic, checksum, 4 zero bytes, sequence number, length. The checksum covers everything after it.
const HEADER: usize = 32;
const CHECKED: usize = 12;

/// Offsets of the copies in a file.
const PLACES: [u64; 2] = [0, 1 << 30];

/// Upper limit on the length of a state in a file; biolat never writes a longer one. The file's own length is no limit, because
/// it can be sparse.
const MAX_LENGTH: u64 = 256 << 20;

/// Memory that contains the copies.
enum Memory {
    File(File),
    Map(StateMap),
}

impl Memory {
    /// Returns the offsets of the copies.
    fn places(&self) -> [u64; 2] {
        match self {
            Self::File(_) => PLACES,
            Self::Map(map) => [0, map.bytes() / 2],
        }
    }

    fn place(&self, sequence: u64) -> u64 {
        self.places()[(sequence % 2) as usize]
    }

    /// Returns the maximum size of a copy at this offset, in bytes.
    fn room(&self, place: u64) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len().saturating_sub(place).min(MAX_LENGTH)),
            Self::Map(map) => Ok(map.bytes() / 2),
        }
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(buffer, at),
            Self::Map(map) => map.read(buffer, at),
        }
    }

    /// Writes a copy.
    fn write(&mut self, copy: &[u8], sequence: u64) -> io::Result<()> {
        let place = self.place(sequence);
        match self {
            Self::File(file) => file.write_all_at(copy, place),
            Self::Map(map) if copy.len() as u64 > map.bytes() / 2 => Err(io::ErrorKind::StorageFull.into()),
            Self::Map(map) => map.write(copy, place),
        }
    }
}

pub(in crate::collector) struct Copies {
    memory: Memory,
    /// Sequence number of the next copy.
    sequence: u64,
    buffer: Vec<u8>,
}

impl Copies {
    pub(in crate::collector) fn create() -> io::Result<Self> {
        let file = memfd_create("biolat", MemfdFlags::CLOEXEC)?.into();
        Ok(Self { memory: Memory::File(file), sequence: 1, buffer: Vec::new() })
    }

    /// Creates the copies in a map, with room for a state of this many bytes.
    pub(in crate::collector) fn create_map(bytes: u64) -> Result<Self> {
        let map = StateMap::create(2 * bytes.next_multiple_of(StateMap::PAGE_BYTES))?;
        Ok(Self { memory: Memory::Map(map), sequence: 1, buffer: Vec::new() })
    }

    /// Opens files or maps that another process wrote one after another. Returns the one with the latest state, along with that
    /// state; `None` if all copies are torn.
    pub(in crate::collector) fn open(fds: Vec<OwnedFd>) -> io::Result<(Self, Option<Vec<u8>>)> {
        let mut latest: Option<(Self, Option<Vec<u8>>)> = None;
        for fd in fds {
            let memory = match StateMap::open(fd.try_clone()?) {
                Ok(map) => Memory::Map(map),
                Err(_) => Memory::File(File::from(fd)),
            };
            let copies = memory.places().into_iter().filter_map(|place| read(&memory, place));
            let (sequence, state) = copies.max_by_key(|(sequence, _)| *sequence).unzip();
            let sequence = sequence.map_or(1, |sequence: u64| sequence.wrapping_add(1));
            if latest.as_ref().is_none_or(|(latest, _)| latest.sequence < sequence) {
                latest = Some((Self { memory, sequence, buffer: Vec::new() }, state));
            }
        }
        latest.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Creates a map with room for twice the state that was just encoded and did not fit, and writes that state to it.
    pub(in crate::collector) fn in_larger_map(&mut self) -> Result<Self> {
        let mut larger = Self::create_map(2 * self.buffer.len() as u64)?;
        larger.memory.write(&self.buffer, self.sequence).context("cannot write the state")?;
        (larger.sequence, larger.buffer) = (self.sequence + 1, std::mem::take(&mut self.buffer));
        Ok(larger)
    }

    /// Overwrites the older copy with a state.
    pub(in crate::collector) fn write(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.resize(HEADER, 0);
        encode(&mut self.buffer);
        let length = (self.buffer.len() - HEADER) as u64;
        let header = &mut self.buffer[..HEADER];
        header[..8].copy_from_slice(&MAGIC);
        header[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        header[24..].copy_from_slice(&length.to_le_bytes());
        let checksum = checksum(&self.buffer);
        self.buffer[8..CHECKED].copy_from_slice(&checksum.to_le_bytes());
        self.memory.write(&self.buffer, self.sequence)?;
        self.sequence += 1;
        Ok(())
    }

    /// Invalidates both copies. The first page of a written copy already exists, so this needs no memory.
    pub(in crate::collector) fn invalidate(&mut self) -> io::Result<()> {
        for sequence in 0..2 {
            self.memory.write(&[0; HEADER], sequence)?;
        }
        Ok(())
    }

    /// Returns the memory that the file takes up, in bytes.
    #[cfg(test)]
    pub(in crate::collector) fn bytes(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt as _;
        let Memory::File(file) = &self.memory else { return Ok(0) };
        Ok(file.metadata()?.blocks() * 512)
    }
}

impl AsFd for Copies {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.memory {
            Memory::File(file) => file.as_fd(),
            Memory::Map(map) => map.as_fd(),
        }
    }
}

fn checksum(copy: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(&copy[CHECKED..]);
    crc.sum()
}

/// Returns the sequence number and the state of the copy at this offset, if it is valid.
fn read(memory: &Memory, place: u64) -> Option<(u64, Vec<u8>)> {
    let mut copy = vec![0; HEADER];
    memory.read(&mut copy, place).ok()?;
    let word = |at: usize| copy.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let (sequence, length) = (word(16)?, word(24)?.saturating_add(HEADER as u64));
    // If another program wrote this, the length can be anything.
    if copy[..8] != MAGIC || length > memory.room(place).ok()? || memory.place(sequence) != place {
        return None;
    }
    copy.resize(length as usize, 0);
    memory.read(&mut copy, place).ok()?;
    let expected = u32::from_le_bytes(*copy[8..].first_chunk()?);
    (checksum(&copy) == expected).then(|| (sequence, copy.split_off(HEADER)))
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsFd as _, unix::fs::FileExt as _};

    use super::{Copies, File, HEADER, Memory, PLACES};

    fn written(states: &[&[u8]]) -> Copies {
        let mut copies = Copies::create().unwrap();
        for state in states {
            copies.write(|buffer| buffer.extend_from_slice(state)).unwrap();
        }
        copies
    }

    /// Returns the state that the next process finds.
    fn found(copies: &Copies) -> Option<Vec<u8>> {
        opened(copies).1
    }

    fn opened(copies: &Copies) -> (Copies, Option<Vec<u8>>) {
        Copies::open(vec![copies.as_fd().try_clone_to_owned().unwrap()]).unwrap()
    }

    fn file(copies: &Copies) -> &File {
        let Memory::File(file) = &copies.memory else { panic!("no file") };
        file
    }

    fn place(sequence: usize) -> u64 {
        PLACES[sequence % 2]
    }

    #[test]
    fn finds_latest_state_and_overwrites_older_copy() {
        assert_eq!(found(&written(&[])), None);
        let states: [&[u8]; 4] = [b"one", b"two", b"", b"four, longer than the others"];
        for count in 1..=states.len() {
            let copies = written(&states[..count]);
            assert_eq!(found(&copies).unwrap(), states[count - 1]);
            let (mut next, _) = opened(&copies);
            next.write(|buffer| buffer.extend_from_slice(b"next")).unwrap();
            assert_eq!(found(&copies).unwrap(), b"next");
            // The previous one is still there.
            file(&next).write_all_at(&[0; 64], place(count + 1)).unwrap();
            assert_eq!(found(&copies).unwrap(), states[count - 1]);
        }
    }

    #[test]
    fn torn_write_leaves_older_copy() {
        let (oldest, older, newer) = ([1_u8; 300], [2_u8; 300], [3_u8; 280]);
        let whole = written(&[&oldest, &older, &newer]);
        let mut bytes = vec![0; HEADER + newer.len()];
        file(&whole).read_exact_at(&mut bytes, place(3)).unwrap();
        for length in 0..bytes.len() {
            let copies = written(&[&oldest, &older]);
            file(&copies).write_all_at(&bytes[..length], place(3)).unwrap();
            assert_eq!(found(&copies).unwrap(), older, "{length} bytes written");
        }
        for changed in 0..bytes.len() {
            let copies = written(&[&oldest, &older]);
            let mut bytes = bytes.clone();
            bytes[changed] ^= 0x10;
            file(&copies).write_all_at(&bytes, place(3)).unwrap();
            assert_eq!(found(&copies).unwrap(), older, "byte {changed} changed");
        }
    }

    #[test]
    fn ignores_foreign_data() {
        let copies = written(&[]);
        file(&copies).write_all_at(&[0xff; 4096], 0).unwrap();
        assert_eq!(found(&copies), None);
        file(&copies).set_len(0).unwrap();
        assert_eq!(found(&copies), None);
        let mut copies = written(&[b"one", b"two"]);
        copies.invalidate().unwrap();
        assert_eq!(found(&copies), None);
        copies.write(|buffer| buffer.extend_from_slice(b"three")).unwrap();
        assert_eq!(found(&copies).unwrap(), b"three");
    }

    #[test]
    fn rejects_copy_longer_than_its_room() {
        let copies = written(&[b"one"]);
        assert_eq!(copies.memory.room(place(1)).unwrap(), (HEADER + 3) as u64);
        for length in [4, 100 << 20, u64::MAX] {
            file(&copies).write_all_at(&length.to_le_bytes(), place(1) + 24).unwrap();
            assert_eq!(found(&copies), None);
        }
    }

    #[test]
    fn finds_latest_state_of_several_files() {
        for newer_first in [true, false] {
            let (older, newer) = (written(&[b"one", b"two"]), written(&[b"one", b"two", b"three"]));
            let fds = || {
                let mut all = [&written(&[]), &older, &newer]
                    .map(|copies| copies.as_fd().try_clone_to_owned().unwrap());
                if newer_first {
                    all.reverse();
                }
                all.into()
            };
            let (mut found, state) = Copies::open(fds()).unwrap();
            assert_eq!(state.unwrap(), b"three");
            found.write(|buffer| buffer.extend_from_slice(b"four")).unwrap();
            assert_eq!(Copies::open(fds()).unwrap().1.unwrap(), b"four");
        }
        assert!(Copies::open(Vec::new()).is_err());
    }

    #[test]
    fn takes_only_written_pages() {
        let copies = written(&[&[7; 5000], &[8; 5000]]);
        assert_eq!(copies.bytes().unwrap(), 4 * 4096);
        assert_eq!(file(&copies).metadata().unwrap().len(), PLACES[1] + (HEADER + 5000) as u64);
    }
}
