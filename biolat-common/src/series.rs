//! The counters of one device and op on one CPU: a row of the arrays of counters.

use core::mem::{align_of, offset_of, size_of};

use crate::{
    bucket::{CELLS, add_cells},
    status::STATUSES,
};

/// Number of histograms of a series, in the order of [`Phase`].
pub const PHASES: usize = 4;

/// A phase of a request, which has a histogram of its own.
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

    /// The name used in metrics and logs.
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

/// Counters of one series on one CPU. They only grow, and wrap around, so the daemon adds up differences.
///
/// Nothing is stored that can be derived: the sum of the total phase is `queue_ns + device_ns + unsplit_ns`, and the count of a
/// histogram is the sum of its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Series {
    /// Time in the queue phase, in nanoseconds, of requests with both timestamps.
    pub queue_ns: u64,
    /// Time in the device phase, in nanoseconds, of requests with both timestamps.
    pub device_ns: u64,
    /// Time from allocation to completion, in nanoseconds, of requests without a dispatch timestamp.
    pub unsplit_ns: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Time in the admission phase, in nanoseconds, of requests with a submission timestamp.
    pub admission_ns: u64,
    /// Number of failed completions, by block status.
    pub errors: [u32; STATUSES],
    /// Number of times that a request returned to the queue after its dispatch.
    pub requeues: u32,
    /// Latencies by [`crate::bucket::cell`]. The phases of a cell are adjacent.
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

/// Both patterns name every field without `..`, so adding a field breaks the build until the field is handled here.
#[deny(unused_variables)]
impl Series {
    /// Adds the counters of another CPU. The sums wrap, like the counters.
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
        add_cells(self.cells.as_flattened_mut(), cells.as_flattened());
    }

    /// Returns how much the counters have grown since `earlier`, even across a wrap.
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

/// The ABI between the probe and the daemon. After a change here, rebuild the probe and mention the change in the changelog.
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

/// Identifies a series: a device and an op in one number, so the table and the index compare it in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Key(u64);

impl Key {
    /// Creates the key for `op` on the device with this id (see [`crate::kernel::KernelLayout::disk_id`]). Ids have at most 40
    /// bits: disk sequence numbers and sysfs inode numbers are counted from boot.
    #[inline(always)]
    #[must_use]
    pub const fn new(device: u64, op: u32) -> Self {
        Self(device << 8 | (op & 0xff) as u64)
    }

    /// The key as stored in a map.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Decodes a key from a map.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The id of the device.
    #[inline(always)]
    #[must_use]
    pub const fn device(self) -> u64 {
        self.0 >> 8
    }

    /// The kernel's number for the op.
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
    fn merges_and_subtracts_every_counter_across_a_wrap() {
        let mut sum = series(u64::MAX - 1, u32::MAX - 1);
        let before = sum;
        sum.merge(&series(5, 7));
        assert_eq!(sum, series(3, 5));
        assert_eq!(sum.since(&before), series(5, 7));
    }
}
