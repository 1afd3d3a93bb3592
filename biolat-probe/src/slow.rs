//! Records of individual I/Os that were slow or failed, read from their ring buffer.

use anyhow::{Context as _, Result};
use aya::maps::{MapData, PerCpuArray, RingBuf};
use biolat_common::{
    names::{self, Names},
    slow::{RECORD_BYTES, RING_BYTES, SlowRecord},
};

use super::{cpus::PossibleCpus, map_set::MapSet};

/// The ring buffer, and the counts of the records dropped because it was full.
pub(super) struct SlowRecords {
    ring: RingBuf<MapData>,
    dropped: PerCpuArray<MapData, u64>,
    understudy_dropped: PerCpuArray<MapData, u64>,
    buffer: Vec<u64>,
}

impl SlowRecords {
    pub(super) fn from_maps(maps: &mut MapSet<'_>) -> Result<Self> {
        Ok(Self {
            ring: maps.take("SLOW")?.try_into()?,
            dropped: maps.take("DROPPED")?.try_into()?,
            understudy_dropped: maps.take("DROPPED_2")?.try_into()?,
            buffer: Vec::new(),
        })
    }

    /// Returns the records since the last call. Reads a limited number, so it returns even if the probe keeps sending.
    pub(super) fn read(&mut self) -> Vec<SlowIoRecord> {
        let mut records = Vec::new();
        for _ in 0..RING_BYTES.max(names::RING_BYTES) / RECORD_BYTES {
            let Some(bytes) = self.ring.next() else { break };
            records.extend(SlowIoRecord::from_bytes(&bytes));
        }
        records
    }

    /// The number of records dropped because the ring buffer was full.
    pub(super) fn dropped(&mut self, cpus: PossibleCpus) -> Result<u64> {
        let mut sum = 0;
        for map in [&self.dropped, &self.understudy_dropped] {
            cpus.read(map, 0, &mut self.buffer).context("cannot read the dropped records")?;
            sum += self.buffer.iter().sum::<u64>();
        }
        Ok(sum)
    }
}

/// The record of an I/O that was slow or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowIoRecord {
    /// The figures.
    pub record: SlowRecord,
    /// File and process. `None` if the probe was loaded without names.
    pub names: Option<NamesRecord>,
}

/// File and process of an I/O as the probe has read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesRecord {
    /// Everything but the path.
    pub names: Names,
    /// Components of the file's path below the root of its file system, outermost first.
    pub path: Vec<String>,
}

impl SlowIoRecord {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (record, rest) = bytes.split_at_checked(size_of::<SlowRecord>())?;
        let record = SlowRecord::from_bytes(record)?;
        let names = Names::from_bytes(rest).map(|(names, path)| {
            let components = path.split(|byte| *byte == 0).filter(|component| !component.is_empty());
            let mut path: Vec<_> =
                components.map(|component| String::from_utf8_lossy(component).into_owned()).collect();
            path.reverse();
            NamesRecord { names, path }
        });
        (names.is_some() || rest.is_empty()).then_some(Self { record, names })
    }
}
