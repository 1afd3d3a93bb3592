//! The number of values in an entry of a per-CPU map: one for each possible CPU. The kernel writes all of them into the reader's
//! buffer, no matter how small it is. So the number must come from the kernel itself: a mount may hide the file in sysfs.

#![allow(unsafe_code, reason = "reads of maps write to buffers")]

use std::io;

use anyhow::{Context as _, Result, bail};
use aya::maps::{IterableMap as _, MapData, PerCpuArray};
use biolat_common::lost::{Counts, REASONS};

use super::{load_error::LoadError, sys};

const SYSFS: &str = "/sys/devices/system/cpu/possible";

/// The largest `CONFIG_NR_CPUS` of any architecture.
///
/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/Kconfig#L1017>
pub const MAX_CPUS: usize = 8192;

/// The number of possible CPUs. It is only ever obtained from the kernel itself, and does not change until the next boot.
#[derive(Clone, Copy, Debug)]
pub(super) struct PossibleCpus(usize);

impl PossibleCpus {
    /// Counts the values that the kernel writes when the only entry of this map is read.
    ///
    /// The map must not change between two reads, so the probe must not be attached yet.
    pub(super) fn of_kernel(map: &PerCpuArray<MapData, Counts>) -> Result<Self> {
        const CONTEXT: &str = "cannot count the possible CPUs";
        let first = read_over(map, 0x5a).context(CONTEXT)?;
        let second = read_over(map, 0xa5).context(CONTEXT)?;
        match values_written(&first, &second) {
            Some(cpus) if cpus <= MAX_CPUS => Ok(Self(cpus)),
            _ => {
                bail!("{CONTEXT}: the kernel did not write between 1 and {MAX_CPUS} values: please report it")
            }
        }
    }

    pub(super) fn get(self) -> usize {
        self.0
    }

    /// Fails if sysfs lists a different number of CPUs.
    pub(super) fn compare(self, in_sysfs: usize) -> Result<(), LoadError> {
        if self.0 == in_sysfs {
            return Ok(());
        }
        Err(LoadError {
            what: format!(
                "wrong number of possible CPUs in {SYSFS}: {in_sysfs}, but the kernel has {}",
                self.0
            ),
            remedy: Some("check whether another file is mounted over it".to_owned()),
        })
    }

    /// Reads every CPU's value of an entry. `values` is reused, so only the first call allocates.
    pub(super) fn read<T: aya::Pod>(
        self,
        map: &PerCpuArray<MapData, T>,
        index: u32,
        values: &mut Vec<T>,
    ) -> io::Result<()> {
        self.read_value(map.map(), &index, values)
    }

    /// Reads every CPU's value of a key. aya must have checked that the map's keys and values have the sizes of `K` and `T`.
    pub(super) fn read_value<K: aya::Pod, T: aya::Pod>(
        self,
        map: &MapData,
        key: &K,
        values: &mut Vec<T>,
    ) -> io::Result<()> {
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        values.clear();
        values.reserve(self.0);
        // SAFETY: there is room for one value per possible CPU. The kernel rounds the size of a value up to a multiple of 8 bytes,
        // which it already is.
        unsafe { sys::read_value(map, key, values.as_mut_ptr()) }?;
        // SAFETY: the kernel has written this many values, each of which is plain integers.
        unsafe { values.set_len(self.0) };
        Ok(())
    }
}

/// The number of possible CPUs listed by sysfs.
pub(super) fn in_sysfs() -> Result<usize> {
    aya::util::nr_cpus().map_err(|(path, error)| {
        anyhow::Error::new(error).context(format!("cannot read {path} to count the CPUs"))
    })
}

/// One more than the highest number of a possible CPU.
pub(super) fn possible_ids() -> Result<u32> {
    const CONTEXT: &str = "cannot read which CPUs are possible";
    let list = std::fs::read_to_string(SYSFS).context(CONTEXT)?;
    let last = list.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok());
    last.map(|last| last + 1).filter(|&ids| ids as usize <= MAX_CPUS).context(CONTEXT)
}

/// Reads the only entry of the map into a buffer that is prefilled with this byte and large enough for any kernel.
fn read_over(map: &PerCpuArray<MapData, Counts>, filler: u8) -> io::Result<Vec<Counts>> {
    let mut buffer = vec![[u64::from_ne_bytes([filler; 8]); REASONS]; MAX_CPUS + 1];
    // SAFETY: there is room for one value per CPU on the largest kernel.
    unsafe { sys::read_entry(map.map(), 0, buffer.as_mut_ptr()) }?;
    Ok(buffer)
}

/// The number of values that two reads wrote into two buffers, each prefilled with a different byte. Words that are equal in both
/// buffers were written; they must all be at the start. `None` if no words or only part of a value were written.
fn values_written<const WORDS: usize>(first: &[[u64; WORDS]], second: &[[u64; WORDS]]) -> Option<usize> {
    let mut words = first.as_flattened().iter().zip(second.as_flattened());
    let written = words.by_ref().take_while(|(first, second)| first == second).count();
    let is_rest_untouched = words.all(|(first, second)| first != second);
    (is_rest_untouched && written > 0 && written.is_multiple_of(WORDS)).then_some(written / WORDS)
}

#[cfg(test)]
mod tests {
    use super::{PossibleCpus, values_written};

    /// Two buffers of five values with two words each, of which the kernel has overwritten the first `written` words.
    fn buffers(written: usize) -> [Vec<[u64; 2]>; 2] {
        [0x5a5a, 0xa5a5].map(|filler| {
            let mut buffer = vec![[filler; 2]; 5];
            // The map's contents may look like a filler.
            buffer.as_flattened_mut()[..written].fill(0x5a5a);
            buffer
        })
    }

    #[test]
    fn counts_overwritten_values() {
        for (words, expected) in [(0, None), (1, None), (2, Some(1)), (3, None), (4, Some(2)), (10, Some(5))]
        {
            let [first, second] = buffers(words);
            assert_eq!(values_written(&first, &second), expected, "{words} words");
        }
    }

    #[test]
    fn rejects_gaps() {
        let [mut first, mut second] = buffers(4);
        (first[4], second[4]) = ([7; 2], [7; 2]);
        assert_eq!(values_written(&first, &second), None);
    }

    #[test]
    fn rejects_different_count_in_sysfs() {
        assert!(PossibleCpus(2).compare(2).is_ok());
        let error = PossibleCpus(2).compare(1).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "wrong number of possible CPUs in /sys/devices/system/cpu/possible: 1, but the kernel has 2: "
            ),
            "{error}"
        );
    }
}
