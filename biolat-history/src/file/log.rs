//! One file: a header and records. A record that is torn, or left over from an earlier use of the file, fails its checksum; only
//! the records before it are read.

use std::{
    fs::File,
    io::{self, BufReader, Read as _},
    os::unix::fs::FileExt as _,
};

use flate2::Crc;

/// A file that starts with anything else was not written by biolat.
pub(super) const MAGIC: [u8; 8] = *b"biolat\nH";

/// Format number. A file in any other format is not read.
const FORMAT: u32 = 1;

/// Magic, format, checksum of the generation, generation.
const HEADER: usize = 24;

/// Length, checksum, kind.
const RECORD_HEADER: usize = 9;

/// Maximum length of a record. A greater length was not written by biolat.
const MAX_RECORD: u32 = 64 << 20;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Names = 1,
    Interval = 2,
    /// The last record of the complete store that each use of a file begins with. Without it, the other file has to be read.
    Totals = 3,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Names, Self::Interval, Self::Totals].into_iter().find(|kind| *kind as u8 == byte)
    }
}

fn checksum(generation: u64, rest: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(&generation.to_le_bytes());
    crc.update(rest);
    crc.sum()
}

/// Records in memory, to be written together.
pub(super) struct Records {
    generation: u64,
    pub(super) bytes: Vec<u8>,
}

impl Records {
    /// Starts a file over, with its header.
    pub(super) fn begin(generation: u64) -> Self {
        let mut records = Self::next(generation);
        records.bytes.extend(MAGIC);
        records.bytes.extend(FORMAT.to_le_bytes());
        records.bytes.extend(checksum(generation, &[]).to_le_bytes());
        records.bytes.extend(generation.to_le_bytes());
        records
    }

    /// Continues a file.
    pub(super) const fn next(generation: u64) -> Self {
        Self { generation, bytes: Vec::new() }
    }

    pub(super) fn add(&mut self, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        let began = self.bytes.len();
        self.bytes.extend([0; RECORD_HEADER - 1]);
        self.bytes.push(kind as u8);
        write(&mut self.bytes);
        let length = (self.bytes.len() - began - RECORD_HEADER) as u32;
        let checksum = checksum(self.generation, &self.bytes[began + RECORD_HEADER - 1..]);
        self.bytes[began..began + 4].copy_from_slice(&length.to_le_bytes());
        self.bytes[began + 4..began + 8].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// The generation of a file. `None` if it cannot be read, has no valid header or has an unknown format.
pub(super) fn generation(file: &File) -> Option<u64> {
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0).ok()?;
    let generation = header[16..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let is_valid =
        header[..8] == MAGIC && word(&header, 8) == FORMAT && word(&header, 12) == checksum(generation, &[]);
    is_valid.then_some(generation)
}

/// Reads records up to the first invalid one. Returns whether the file ends there.
pub(super) fn read(
    file: &File,
    generation: u64,
    mut record: impl FnMut(Kind, &[u8]) -> Option<()>,
) -> io::Result<bool> {
    let mut input = BufReader::with_capacity(1 << 16, At { file, place: HEADER as u64 });
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        (&mut input).take(RECORD_HEADER as u64).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Ok(true);
        }
        let Ok(header) = <[u8; RECORD_HEADER]>::try_from(&*bytes) else { return Ok(false) };
        let (length, expected, kind) = (word(&header, 0), word(&header, 4), header[8]);
        if length > MAX_RECORD {
            return Ok(false);
        }
        bytes.clear();
        bytes.push(kind);
        (&mut input).take(length.into()).read_to_end(&mut bytes)?;
        if bytes.len() != length as usize + 1 || checksum(generation, &bytes) != expected {
            return Ok(false);
        }
        if Kind::of(kind).and_then(|kind| record(kind, &bytes[1..])).is_none() {
            return Ok(false);
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

/// Reads a file from an offset.
struct At<'a> {
    file: &'a File,
    place: u64,
}

impl io::Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.place)?;
        self.place += read as u64;
        Ok(read)
    }
}
