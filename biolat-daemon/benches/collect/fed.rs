//! A machine of any number of CPUs, as far as a pass's time depends on them: its counters, read from the kernel by the
//! same call, summed and widened by the same code. They stand in a plain array whose value is as long as that of a per-CPU
//! one: the kernel then copies it in one piece instead of CPU by CPU, on its way through the same memory.

use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_map_type};
use biolat_common::series::Series;
use biolat_daemon::{collect::totals::Totals, probe::Counters, snapshot::SeriesView};

pub(crate) struct Machine {
    map: OwnedFd,
    counters: Counters,
    totals: Vec<Totals>,
    bytes: usize,
}

impl Machine {
    pub(crate) fn new(cpus: usize, series: usize) -> Result<Self> {
        let value = vec![busy(); cpus];
        let map = array(size_of_val(value.as_slice()), series).context("cannot make a map")?;
        for index in 0..series as u32 {
            write(&map, index, &value).context("cannot fill a map")?;
        }
        let totals = (0..series).map(|_| Totals::from_floor(Series::ZERO)).collect();
        Ok(Self {
            map,
            counters: Counters::of_cpus(cpus),
            totals,
            bytes: size_of_val(value.as_slice()) * series,
        })
    }

    /// Of counters that are read.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What a pass does with counters, up to what is exposed.
    pub(crate) fn pass(&mut self) -> Result<Vec<SeriesView>> {
        for (index, totals) in (0..).zip(&mut self.totals) {
            totals.add(&self.counters.read(self.map.as_fd(), index)?);
        }
        Ok(self.totals.iter().map(|totals| totals.view("read".to_owned(), true)).collect())
    }
}

/// What one CPU has counted of a drive under a varied load.
fn busy() -> Series {
    let mut series = Series { queue_ns: 1 << 40, device_ns: 1 << 45, bytes: 1 << 50, ..Series::ZERO };
    for (number, cell) in (1..).zip(&mut series.cells[60..108]) {
        *cell = [number; 3];
    }
    series
}

fn array(value_bytes: usize, entries: usize) -> std::io::Result<OwnedFd> {
    let mut attr = zeroed();
    // SAFETY: a union of plain integers; this is the member that the command reads.
    let map = unsafe { &mut attr.__bindgen_anon_1 };
    map.map_type = bpf_map_type::BPF_MAP_TYPE_ARRAY as u32;
    (map.key_size, map.value_size, map.max_entries) = (4, value_bytes as u32, entries as u32);
    let fd = bpf(bpf_cmd::BPF_MAP_CREATE, &mut attr)?;
    // SAFETY: the kernel has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn write(map: &OwnedFd, index: u32, value: &[Series]) -> std::io::Result<()> {
    let mut attr = zeroed();
    // SAFETY: as above.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd().cast_unsigned();
    element.key = (&raw const index) as u64;
    element.__bindgen_anon_1.value = value.as_ptr() as u64;
    bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr).map(drop)
}

fn zeroed() -> bpf_attr {
    // SAFETY: a union of plain integers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> std::io::Result<i64> {
    // SAFETY: `attr` is valid for its size and what it points to outlives the call.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_long, std::ptr::from_mut(attr), size_of::<bpf_attr>())
    };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}
