//! Commands of `bpf(2)` that aya lacks or implements with an allocation per CPU.

#![allow(unsafe_code, reason = "bpf(2) takes pointers")]

use std::{
    ffi::CString,
    io,
    mem::size_of,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use aya::maps::MapData;
use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_link_info, bpf_map_type, bpf_prog_info};

/// The kernel's counts for a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramCounts {
    /// Number of runs while statistics were enabled.
    pub runs: u64,
    /// Total duration of the runs, in nanoseconds.
    pub run_time_ns: u64,
    /// Number of runs that the kernel refused because the program was already running on that CPU.
    pub recursion_misses: u64,
    /// The same for the program that counts requeues.
    pub requeue_misses: u64,
    /// The same for the program that counts waits for a tag.
    pub tag_wait_misses: u64,
    /// Number of instructions that the verifier processed; 0 before Linux 5.16.
    pub verified_instructions: u32,
}

/// Reads an entry of an array.
///
/// # Safety
///
/// `buffer` must have room for everything that the kernel writes: the map's value or, for a per-CPU map, one value per possible
/// CPU, with the size rounded up to a multiple of 8 bytes.
pub(super) unsafe fn read_entry<T: aya::Pod>(map: &MapData, index: u32, buffer: *mut T) -> io::Result<()> {
    // SAFETY: the key of an array is 4 bytes; the caller vouches for the buffer.
    unsafe { read_value(map, &index, buffer) }
}

/// Writes an entry of an array.
///
/// # Safety
///
/// `value` must have the size of the map's value.
pub(super) unsafe fn write_entry<T>(map: &MapData, index: u32, value: *const T) -> io::Result<()> {
    let mut attr = zeroed();
    // SAFETY: a union of plain integers; this is the member that the command reads.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.fd().as_fd().as_raw_fd().cast_unsigned();
    element.key = (&raw const index) as u64;
    element.__bindgen_anon_1.value = value as u64;
    // SAFETY: the key of an array is 4 bytes; the caller vouches for the value.
    unsafe { bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr) }.map(drop)
}

/// Reads the value of a key.
///
/// # Safety
///
/// The map's keys must have this type, and `buffer` room as for [`read_entry`].
pub(super) unsafe fn read_value<K: aya::Pod, T: aya::Pod>(
    map: &MapData,
    key: &K,
    buffer: *mut T,
) -> io::Result<()> {
    let mut attr = zeroed();
    // SAFETY: a union of plain integers; this is the member that the command reads.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.fd().as_fd().as_raw_fd().cast_unsigned();
    element.key = std::ptr::from_ref(key) as u64;
    element.__bindgen_anon_1.value = buffer as u64;
    // SAFETY: the caller vouches for the key's type and the buffer.
    unsafe { bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM, &mut attr) }.map(drop)
}

/// Reads all entries of a hash map or an array, in one call if the buffers hold them all. Returns their number.
///
/// # Safety
///
/// The map's keys and values must have the types of the buffers.
pub(super) unsafe fn read_batch<K: aya::Pod, V: aya::Pod>(
    map: &MapData,
    keys: &mut [K],
    values: &mut [V],
) -> io::Result<usize> {
    let room = keys.len().min(values.len());
    let (mut position, mut read) = (0_u32, 0);
    while read < room {
        let mut attr = zeroed();
        // SAFETY: a union of plain integers; this is the member that the command reads and writes.
        let batch = unsafe { &mut attr.batch };
        batch.map_fd = map.fd().as_fd().as_raw_fd().cast_unsigned();
        batch.in_batch = if read == 0 { 0 } else { (&raw const position) as u64 };
        batch.out_batch = (&raw mut position) as u64;
        batch.keys = keys[read..].as_mut_ptr() as u64;
        batch.values = values[read..].as_mut_ptr() as u64;
        batch.count = (room - read) as u32;
        // SAFETY: there is room for `count` keys and values, whose types the caller vouches for. A position in a hash map or
        // an array is 4 bytes.
        let result = unsafe { bpf(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attr) };
        match result {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
            // SAFETY: as above.
            _ => read += unsafe { attr.batch.count } as usize,
        }
        if result.is_err() {
            // ENOENT: this was the last batch.
            break;
        }
    }
    Ok(read)
}

/// Information about a program.
pub(super) struct ProgramInfo {
    pub(super) id: u32,
    /// Truncated by the kernel to 15 bytes.
    pub(super) name: String,
    pub(super) counts: ProgramCounts,
}

pub(super) fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    // SAFETY: plain integers, for which zero is valid.
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most the size of the struct. `info` points to no buffers that it could write to.
    unsafe { object_info(program, &mut info) }?;
    let name = info.name.iter().map(|byte| byte.to_ne_bytes()[0]).take_while(|&byte| byte != 0).collect();
    Ok(ProgramInfo {
        id: info.id,
        name: String::from_utf8(name).unwrap_or_default(),
        counts: ProgramCounts {
            runs: info.run_cnt,
            run_time_ns: info.run_time_ns,
            recursion_misses: info.recursion_misses,
            requeue_misses: 0,
            tag_wait_misses: 0,
            verified_instructions: info.verified_insns,
        },
    })
}

/// Returns the id of the program that a link attaches.
pub(super) fn program_of_link(link: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: plain integers and pointers, for which zero is valid.
    let mut info: bpf_link_info = unsafe { std::mem::zeroed() };
    // SAFETY: as for a program.
    unsafe { object_info(link, &mut info) }?;
    Ok(info.prog_id)
}

/// # Safety
///
/// `T` must be the info type of this kind of object. Any buffer that `info` points to must have room for the kernel's data.
unsafe fn object_info<T>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    let mut attr = zeroed();
    attr.info.bpf_fd = object.as_raw_fd().cast_unsigned();
    attr.info.info = std::ptr::from_mut(info) as u64;
    attr.info.info_len = size_of::<T>() as u32;
    // SAFETY: the kernel writes at most `info_len` bytes; the caller vouches for the rest.
    unsafe { bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr) }.map(drop)
}

/// Pins a map, program or link to a new file in a BPF file system.
pub(super) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = zeroed();
    // SAFETY: a union of plain integers; this is the member that the command reads.
    let pin = unsafe { &mut attr.__bindgen_anon_4 };
    pin.pathname = path.as_ptr() as u64;
    pin.bpf_fd = object.as_raw_fd().cast_unsigned();
    // SAFETY: the path is zero-terminated.
    unsafe { bpf(bpf_cmd::BPF_OBJ_PIN, &mut attr) }.map(drop)
}

/// Opens the object that is pinned to a file.
pub(super) fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = zeroed();
    attr.__bindgen_anon_4.pathname = path.as_ptr() as u64;
    // SAFETY: the path is zero-terminated.
    let fd = unsafe { bpf(bpf_cmd::BPF_OBJ_GET, &mut attr) }?;
    // SAFETY: a new file descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Attaches a program to the tracepoint it was loaded for, until the returned link is closed.
pub(super) fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    attr.raw_tracepoint.prog_fd = program.as_raw_fd().cast_unsigned();
    // SAFETY: the command reads no buffer. The program itself names the tracepoint.
    let link = unsafe { bpf(bpf_cmd::BPF_RAW_TRACEPOINT_OPEN, &mut attr) }?;
    // SAFETY: a new file descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(link as i32) })
}

/// Creates an array of maps with one entry, for maps like this one.
pub(super) fn create_array_of_maps(inner: &MapData) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    // SAFETY: a union of plain integers; this is the member that the command reads.
    let map = unsafe { &mut attr.__bindgen_anon_1 };
    map.map_type = bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS as u32;
    (map.key_size, map.value_size, map.max_entries) = (4, 4, 1);
    map.inner_map_fd = inner.fd().as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: the command reads no buffer.
    let fd = unsafe { bpf(bpf_cmd::BPF_MAP_CREATE, &mut attr) }?;
    // SAFETY: a new file descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Creates an array that can be mapped into memory. With `node`, it is in the memory of this NUMA node.
pub(super) fn create_mappable_array(length: u32, value_bytes: u32, node: Option<u32>) -> io::Result<OwnedFd> {
    const BPF_F_NUMA_NODE: u32 = 1 << 2;
    const BPF_F_MMAPABLE: u32 = 1 << 10;
    let mut attr = zeroed();
    // SAFETY: a union of plain integers; this is the member that the command reads.
    let map = unsafe { &mut attr.__bindgen_anon_1 };
    map.map_type = bpf_map_type::BPF_MAP_TYPE_ARRAY as u32;
    (map.key_size, map.value_size, map.max_entries) = (4, value_bytes, length);
    map.map_flags = BPF_F_MMAPABLE;
    if let Some(node) = node {
        map.map_flags |= BPF_F_NUMA_NODE;
        map.numa_node = node;
    }
    // SAFETY: the command reads no buffer.
    let fd = unsafe { bpf(bpf_cmd::BPF_MAP_CREATE, &mut attr) }?;
    // SAFETY: a new file descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Runs a raw tracepoint program with these arguments, and returns its result.
pub(super) fn run(program: BorrowedFd<'_>, arguments: &[u64]) -> io::Result<u32> {
    /// The maximum number of arguments of a tracepoint.
    const ARGUMENTS: usize = 12;
    let mut context = [0_u64; ARGUMENTS];
    context[..arguments.len()].copy_from_slice(arguments);
    let mut attr = zeroed();
    attr.test.prog_fd = program.as_raw_fd().cast_unsigned();
    attr.test.ctx_in = context.as_ptr() as u64;
    attr.test.ctx_size_in = size_of_val(&context) as u32;
    // SAFETY: the kernel reads the context. There is no buffer for it to write to.
    unsafe { bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attr) }?;
    // SAFETY: the command has written this member.
    Ok(unsafe { attr.test.retval })
}

fn zeroed() -> bpf_attr {
    // SAFETY: a union of plain integers, for which zero is valid. The kernel requires zeros in the fields that a command does not
    // use.
    unsafe { std::mem::zeroed() }
}

/// # Safety
///
/// Everything that the pointers in `attr` refer to must be valid, with room for what the command writes there.
unsafe fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i64> {
    // SAFETY: `attr` is valid for its size; the caller vouches for what it points to.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_long, std::ptr::from_mut(attr), size_of::<bpf_attr>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
