//! Records of single I/Os that were slow or failed, sent from the probe to the daemon through a ring buffer.

use core::mem::{align_of, size_of};

use crate::series::Key;

/// Size of the ring buffer in bytes, enough for more than a thousand records. While it is full, records are dropped and counted.
pub const RING_BYTES: usize = 128 << 10;

/// Size of one record in the ring buffer, including its header.
pub const RECORD_BYTES: usize = 8 + size_of::<SlowRecord>();

/// Value of a latency for which the kernel has no timestamps.
pub const UNKNOWN_NS: u64 = u64::MAX;

/// An I/O that was slow or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SlowRecord {
    /// Completion time, on the same clock as the request's timestamps.
    pub completed_ns: u64,
    /// Its series.
    pub key: Key,
    /// First sector, in units of 512 bytes. If the I/O completed in parts, the first sector of the last part.
    pub sector: u64,
    /// Time from submission to allocation, or [`UNKNOWN_NS`].
    pub admission_ns: u64,
    /// Time from allocation to dispatch, or [`UNKNOWN_NS`].
    pub queue_ns: u64,
    /// Time from allocation to completion, or [`UNKNOWN_NS`].
    pub total_ns: u64,
    /// Serial number of the cgroup that the kernel charges: see [`crate::workload`].
    pub workload: u64,
    /// Bytes of the completion. If the I/O completed in parts, the bytes of the last part.
    pub bytes: u32,
    /// Block status: see [`crate::status`].
    pub status: u32,
    /// CPU on which the I/O completed.
    pub cpu: u32,
    /// Always zero.
    pub padding: u32,
}

const _: () = {
    assert!(size_of::<SlowRecord>() == 72);
    // The ring buffer aligns records to 8 bytes.
    assert!(align_of::<SlowRecord>() == 8);
};

impl SlowRecord {
    /// Decodes a record from the ring buffer. `None` if its size is wrong.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let &[completed_ns, key, sector, admission_ns, queue_ns, total_ns, workload, a, b] = words else {
            return None;
        };
        let word = u64::from_ne_bytes;
        let halves = |[b0, b1, b2, b3, b4, b5, b6, b7]: [u8; 8]| {
            (u32::from_ne_bytes([b0, b1, b2, b3]), u32::from_ne_bytes([b4, b5, b6, b7]))
        };
        let ((bytes, status), (cpu, padding)) = (halves(a), halves(b));
        rest.is_empty().then_some(Self {
            completed_ns: word(completed_ns),
            key: Key::from_bits(word(key)),
            sector: word(sector),
            admission_ns: word(admission_ns),
            queue_ns: word(queue_ns),
            total_ns: word(total_ns),
            workload: word(workload),
            bytes,
            status,
            cpu,
            padding,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::SlowRecord;
    use crate::series::Key;

    #[test]
    fn decodes_an_encoded_record() {
        let record = SlowRecord {
            completed_ns: 1,
            key: Key::new(45, 1),
            sector: 3,
            admission_ns: 4,
            queue_ns: 5,
            total_ns: 6,
            workload: 7,
            bytes: 8,
            status: 9,
            cpu: 10,
            padding: 0,
        };
        // SAFETY: integers without padding.
        let bytes: [u8; size_of::<SlowRecord>()] = unsafe { core::mem::transmute(record) };
        assert_eq!(SlowRecord::from_bytes(&bytes), Some(record));
        assert_eq!(SlowRecord::from_bytes(&bytes[1..]), None);
        assert_eq!(SlowRecord::from_bytes(&[0; 80]), None);
    }
}
