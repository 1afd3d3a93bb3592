//! The counters of one device and op on one CPU: the value of the per-CPU maps.

use core::mem::{align_of, offset_of, size_of};

use crate::{bucket::CELLS, status::STATUSES};

/// Histograms of one series, in the order of [`Phase`].
pub const PHASES: usize = 4;

/// The part of a request's latency that a histogram holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Phase {
    /// From the submission of the first bio to the allocation of the request.
    Admission = 0,
    /// From the allocation of the request to its dispatch to the driver.
    Queue = 1,
    /// From the dispatch to the driver to the completion.
    Device = 2,
    /// From the allocation of the request to the completion.
    Total = 3,
}

impl Phase {
    /// Every phase, in the order of the cells.
    pub const ALL: [Self; PHASES] = [Self::Admission, Self::Queue, Self::Device, Self::Total];

    /// The name that metrics and logs use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Queue => "queue",
            Self::Device => "device",
            Self::Total => "total",
        }
    }
}

/// Counters of one series on one CPU. They only grow, and wrap: the daemon adds differences.
///
/// Nothing is stored that can be derived: the sum of the total is `queue_ns + device_ns + unsplit_ns`, and a
/// histogram's count is the sum of its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Series {
    /// Nanoseconds in the queue, of requests with both timestamps.
    pub queue_ns: u64,
    /// Nanoseconds in the device, of requests with both timestamps.
    pub device_ns: u64,
    /// Nanoseconds from allocation to completion, of requests without a dispatch timestamp.
    pub unsplit_ns: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Nanoseconds before the allocation, of requests with a timestamp of their submission.
    pub admission_ns: u64,
    /// Completions that failed, by block status.
    pub errors: [u32; STATUSES],
    /// Times that a request went back to the queue after its dispatch.
    pub requeues: u32,
    /// Latencies by [`crate::bucket::cell`], the phases of a cell side by side.
    pub cells: [[u32; PHASES]; CELLS],
}

impl Series {
    /// All counters at zero.
    pub const ZERO: Self = Self {
        queue_ns: 0,
        device_ns: 0,
        unsplit_ns: 0,
        bytes: 0,
        admission_ns: 0,
        errors: [0; STATUSES],
        requeues: 0,
        cells: [[0; PHASES]; CELLS],
    };
}

/// Both patterns name every field and have no `..`, so adding a field does not compile until it is handled here.
#[deny(unused_variables)]
impl Series {
    /// Adds the counters of another CPU. The sums wrap like the counters.
    pub fn merge(&mut self, other: &Self) {
        let Self { queue_ns, device_ns, unsplit_ns, bytes, admission_ns, errors, requeues, cells } = other;
        self.queue_ns = self.queue_ns.wrapping_add(*queue_ns);
        self.device_ns = self.device_ns.wrapping_add(*device_ns);
        self.unsplit_ns = self.unsplit_ns.wrapping_add(*unsplit_ns);
        self.bytes = self.bytes.wrapping_add(*bytes);
        self.admission_ns = self.admission_ns.wrapping_add(*admission_ns);
        self.requeues = self.requeues.wrapping_add(*requeues);
        for (sum, count) in self.errors.iter_mut().zip(errors) {
            *sum = sum.wrapping_add(*count);
        }
        for (sum, count) in self.cells.as_flattened_mut().iter_mut().zip(cells.as_flattened()) {
            *sum = sum.wrapping_add(*count);
        }
    }

    /// The growth of the counters since `earlier`, also across a wrap.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let Self { queue_ns, device_ns, unsplit_ns, bytes, admission_ns, errors, requeues, cells } = earlier;
        let mut growth = Self {
            queue_ns: self.queue_ns.wrapping_sub(*queue_ns),
            device_ns: self.device_ns.wrapping_sub(*device_ns),
            unsplit_ns: self.unsplit_ns.wrapping_sub(*unsplit_ns),
            bytes: self.bytes.wrapping_sub(*bytes),
            admission_ns: self.admission_ns.wrapping_sub(*admission_ns),
            errors: self.errors,
            requeues: self.requeues.wrapping_sub(*requeues),
            cells: self.cells,
        };
        for (growth, before) in growth.errors.iter_mut().zip(errors) {
            *growth = growth.wrapping_sub(*before);
        }
        for (growth, before) in growth.cells.as_flattened_mut().iter_mut().zip(cells.as_flattened()) {
            *growth = growth.wrapping_sub(*before);
        }
        growth
    }
}

/// The ABI between probe and daemon. After a change here, rebuild the probe and note it in the changelog.
const _: () = {
    assert!(align_of::<Series>() == 8);
    assert!(offset_of!(Series, queue_ns) == 0);
    assert!(offset_of!(Series, device_ns) == 8);
    assert!(offset_of!(Series, unsplit_ns) == 16);
    assert!(offset_of!(Series, bytes) == 24);
    assert!(offset_of!(Series, admission_ns) == 32);
    assert!(offset_of!(Series, errors) == 40);
    assert!(offset_of!(Series, requeues) == 124);
    assert!(offset_of!(Series, cells) == 128);
    assert!(size_of::<Series>() == 128 + CELLS * PHASES * 4);
};

/// The identity of a series: a device and an op in one number, which the table and the index compare in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Key(u64);

impl Key {
    /// The series of `op` on the device with this id (see [`crate::kernel::KernelLayout::disk_id`]). The id has at most 40 bits:
    /// disk sequence numbers and inode numbers of sysfs count from boot.
    #[inline(always)]
    #[must_use]
    pub const fn new(device: u64, op: u32) -> Self {
        Self(device << 8 | (op & 0xff) as u64)
    }

    /// The key as it is stored in a map.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// A key that was read from a map.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The device's id.
    #[inline(always)]
    #[must_use]
    pub const fn device(self) -> u64 {
        self.0 >> 8
    }

    /// The kernel's number of the op.
    #[inline(always)]
    #[must_use]
    pub const fn op(self) -> u32 {
        (self.0 & 0xff) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::Series;

    fn series(wide: u64, narrow: u32) -> Series {
        Series {
            queue_ns: wide,
            device_ns: wide,
            unsplit_ns: wide,
            bytes: wide,
            admission_ns: wide,
            errors: [narrow; _],
            requeues: narrow,
            cells: [[narrow; _]; _],
        }
    }

    #[test]
    fn every_counter_is_merged_and_compared_across_a_wrap() {
        let mut sum = series(u64::MAX - 1, u32::MAX - 1);
        let before = sum;
        sum.merge(&series(5, 7));
        assert_eq!(sum, series(3, 5));
        assert_eq!(sum.since(&before), series(5, 7));
    }
}
