//! Records of single I/Os that were slow or failed, read from their ring buffer.

use anyhow::{Context as _, Result};
use aya::{
    Ebpf,
    maps::{MapData, PerCpuArray, RingBuf},
};
use biolat_common::slow::{RECORD_BYTES, RING_BYTES, SlowRecord};

use super::cpus::PossibleCpus;

/// The ring buffer, and the records that found it full.
pub(super) struct SlowRecords {
    ring: RingBuf<MapData>,
    dropped: PerCpuArray<MapData, u64>,
    buffer: Vec<u64>,
}

impl SlowRecords {
    pub(super) fn from_object(object: &mut Ebpf) -> Result<Self> {
        let mut take =
            |name: &str| object.take_map(name).with_context(|| format!("the probe has no map {name}"));
        Ok(Self {
            ring: take("SLOW")?.try_into()?,
            dropped: take("DROPPED")?.try_into()?,
            buffer: Vec::new(),
        })
    }

    /// The records since the last call. It ends even if the probe sends records all the time.
    pub(super) fn read(&mut self) -> Vec<SlowRecord> {
        let mut records = Vec::new();
        for _ in 0..RING_BYTES / RECORD_BYTES {
            let Some(bytes) = self.ring.next() else { break };
            records.extend(SlowRecord::from_bytes(&bytes));
        }
        records
    }

    /// Records that found the ring buffer full.
    pub(super) fn dropped(&mut self, cpus: PossibleCpus) -> Result<u64> {
        cpus.read(&self.dropped, 0, &mut self.buffer).context("cannot read the dropped records")?;
        Ok(self.buffer.iter().sum())
    }
}
