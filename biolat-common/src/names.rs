//! File and process of a slow or failed I/O, as far as the probe can tell. A record of [`crate::slow`] is followed by [`Names`]
//! and the components of the file's path, if the probe was loaded with names.
//!
//! At completion the kernel still has everything that belongs to the I/O: the request's first bio points to the function that is
//! called when it ends and to that function's data, such as the `iocb` of a direct I/O, and to a page, which belongs to a file or
//! to the buffer of a process. Which data it is depends on the function, so the daemon fills a map of [`Function`]s.

use core::mem::{align_of, size_of};

use crate::{hash::spread, slow::SlowRecord};

/// Maximum number of components of a path. The outer ones of a longer path are missing.
pub const LEVELS: usize = 10;

/// Maximum size of a component, including the terminating zero.
pub const COMPONENT_BYTES: usize = 256;

/// Size of the buffer for the components: [`LEVELS`] times [`COMPONENT_BYTES`], rounded up to a power of two, so a mask keeps
/// positions in bounds.
pub const PATH_BYTES: usize = 4096;

const _: () = assert!(LEVELS * COMPONENT_BYTES <= PATH_BYTES);

/// Size of the ring buffer of records with names in bytes: a record has about 300.
pub const RING_BYTES: usize = 512 << 10;

/// Maximum number of functions in the map.
pub const FUNCTIONS: usize = 128;

/// Size of a function's name, including the name of its module: `clone_endio [dm_mod]`.
pub const SYMBOL_BYTES: usize = 64;

/// Maximum number of bios between the drive's and the submitted one: through dm, md and splits.
pub const STACKED_BIOS: usize = 8;

/// Stands for an offset that is not followed.
pub const NO_OFFSET: u32 = u32::MAX;

/// What the probe has read about the file and the process of an I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Names {
    /// Number of the inode; 0 if the file is unknown.
    pub inode: u64,
    /// Device of the inode's file system, or the device itself for the inode of a block device: the kernel's `dev_t`.
    pub device: u32,
    /// `inode.i_mode`.
    pub mode: u32,
    /// Number of links to the inode: 0 if the file was removed.
    pub links: u32,
    /// Thread group of the process; 0 if it is unknown.
    pub process: u32,
    /// How the file is known: one of [`mod@file`].
    pub file: u8,
    /// How the process is known, or why it is not: one of [`mod@process`].
    pub process_source: u8,
    /// What the page of the I/O is: one of [`mod@page`].
    pub page: u8,
    /// What the end of the I/O means for its class: one of [`mod@class`].
    pub class: u8,
    /// 1 if the submitter marked the I/O as metadata.
    pub is_metadata: u8,
    /// 1 if the path has more components than were read.
    pub is_truncated: u8,
    /// Always zero.
    pub padding: [u8; 2],
    /// Type of the file system: `ext4`.
    pub file_system: [u8; 16],
    /// Command of the process.
    pub command: [u8; 16],
    /// The beginning of the name of the function at the end of the I/O, if it is not in the map.
    pub function: [u64; 4],
}

/// Whether an inode with this `i_mode` is a block device.
#[inline(always)]
#[must_use]
pub const fn is_block_device(mode: u32) -> bool {
    /// `S_IFMT` and `S_IFBLK`.
    const TYPE_MASK: u32 = 0o170_000;
    const BLOCK_DEVICE: u32 = 0o060_000;
    mode & TYPE_MASK == BLOCK_DEVICE
}

/// Values of [`Names::file`].
pub mod file {
    /// Unknown.
    pub const NONE: u8 = 0;
    /// The I/O is for a page of the file's page cache.
    pub const PAGE: u8 = 1;
    /// Direct I/O, whose `iocb` has the open file.
    pub const OPEN_FILE: u8 = 2;
    /// The file system's own data has the inode.
    pub const FILE_SYSTEM: u8 = 3;
    /// Direct I/O on a block device.
    pub const BLOCK_DEVICE: u8 = 4;
}

/// Values of [`Names::process_source`].
pub mod process {
    /// Nothing about the I/O leads to a process.
    pub const NONE: u8 = 0;
    /// A task waits for the I/O.
    pub const WAITER: u8 = 1;
    /// Submitted through io_uring.
    pub const IO_URING: u8 = 2;
    /// Submitted through libaio.
    pub const LIBAIO: u8 = 3;
    /// The process owns the buffer.
    pub const BUFFER_OWNER: u8 = 4;
    /// A task waits for the page.
    pub const PAGE_WAITER: u8 = 5;
    /// Several processes share the buffer since a fork.
    pub const SHARED_BUFFER: u8 = 6;
    /// The process has ended.
    pub const ENDED: u8 = 7;
    /// A task may wait for the page, but the address of the kernel's queues is unknown.
    pub const NO_QUEUES: u8 = 8;
}

/// Values of [`Names::page`].
pub mod page {
    /// The I/O has no data, or none is left.
    pub const NONE: u8 = 0;
    /// It belongs to no file: memory of the kernel, or of a driver such as dm-crypt.
    pub const NO_FILE: u8 = 1;
    /// Anonymous memory of a process.
    pub const ANONYMOUS: u8 = 2;
    /// It belongs to a file, but is not being read or written: the buffer of a direct I/O is mapped from that file.
    pub const MAPPED_BUFFER: u8 = 3;
    /// It belongs to the page cache of the file that is read or written.
    pub const FILE: u8 = 4;
}

/// Values of [`Names::class`].
pub mod class {
    /// Data, as far as is known.
    pub const NONE: u8 = 0;
    /// The journal of a file system.
    pub const JOURNAL: u8 = 1;
    /// Metadata of a file system.
    pub const METADATA: u8 = 2;
    /// Swap.
    pub const SWAP: u8 = 3;
}

const _: () = {
    assert!(size_of::<Names>() == 96);
    assert!(align_of::<Names>() == 8);
};

/// A record with names as it is built in the probe. The path's components follow [`Names`], innermost first, each with a
/// terminating zero.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NamedRecord {
    /// The record.
    pub record: SlowRecord,
    /// Its names.
    pub names: Names,
    /// The components of the path.
    pub path: [u8; PATH_BYTES + COMPONENT_BYTES],
    /// Where the search has got to. Not sent.
    pub search: Search,
}

/// Size of a [`NamedRecord`] without a path.
pub const HEAD_BYTES: usize = size_of::<SlowRecord>() + size_of::<Names>();

/// Where the search for names has got to, in the probe.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Search {
    /// The request.
    pub request: u64,
    /// The bio.
    pub bio: u64,
    /// The function that is called at its end.
    pub end: u64,
    /// Data of that function.
    pub private: u64,
    /// The `iocb` of a direct I/O, or 0.
    pub iocb: u64,
    /// The task, or 0.
    pub task: u64,
    /// The inode of the file, or 0.
    pub inode: u64,
    /// The directory entry of the file, or 0.
    pub dentry: u64,
    /// The head of the page, or 0.
    pub page: u64,
    /// `page.mapping`.
    pub mapping: u64,
    /// Length of the path so far in bytes.
    pub length: u64,
    /// Name of a function.
    pub symbol: [u64; SYMBOL_BYTES / 8],
}

/// What the probe finds at the end of a bio that calls a function. All offsets are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Function {
    /// One of [`kind`].
    pub kind: u32,
    /// Offset of the bio in the structure that contains it, or [`NO_OFFSET`] if `bi_private` points to the structure.
    pub container: u32,
    /// Meaning depends on the kind.
    pub offsets: [u32; 3],
}

/// Values of [`Function::kind`].
pub mod kind {
    /// The bio is a part or a clone. Offsets: of a pointer to the structure that has the parent, or none; of the pointer to the
    /// parent, or none if the structure is the parent.
    pub const CLONE: u32 = 1;
    /// The function of the bio was replaced. Offsets: of the saved function and of its data.
    pub const REPLACED: u32 = 2;
    /// Direct I/O of a file. Offsets: of the `iocb`; of the flag that a task waits, or none; of the pointer to that task.
    pub const DIRECT: u32 = 3;
    /// Direct I/O of a block device. Offsets: of the `iocb` or the waiting task; of the byte that has the flag; the flag's mask.
    pub const BLOCK_DEVICE: u32 = 4;
    /// `bi_private` is a `struct completion`.
    pub const COMPLETION: u32 = 5;
    /// `bi_private` is a task that waits for a direct I/O on a block device.
    pub const WAITER: u32 = 6;
    /// `bi_private` is a buffer head. Offset: of its function.
    pub const BUFFER_HEAD: u32 = 7;
    /// Offsets: of the pointer to the file system's inode; of the inode in it.
    pub const INODE: u32 = 8;
    /// The function says what class of I/O it is. The first offset is the class.
    pub const CLASS: u32 = 9;
    /// A function of an `iocb`: of io_uring.
    pub const IO_URING: u32 = 10;
    /// A function of an `iocb`: of libaio.
    pub const LIBAIO: u32 = 11;
}

/// The key of a function in the map if the probe knows functions by name. The name is followed by zeros.
#[inline(always)]
#[must_use]
pub const fn symbol_key(name: &[u64; SYMBOL_BYTES / 8]) -> u64 {
    let mut key = 0;
    let mut word = 0;
    while word < name.len() {
        key = spread(key ^ name[word]).rotate_left(29);
        word += 1;
    }
    key
}

/// The layout of the kernel's structs on the way from a bio to the file and the process. A member that the kernel does not have
/// is [`NO_OFFSET`], unless the whole way needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NamesLayout {
    /// 1 if the kernel can print the name of a function (5.13 and later). Otherwise functions are known by address.
    pub has_symbols: u32,
    /// `bio.bi_end_io`.
    pub bio_end_io: u32,
    /// `bio.bi_private`.
    pub bio_private: u32,
    /// `bio.bi_opf`.
    pub bio_flags: u32,
    /// `REQ_META`, as a mask.
    pub metadata_flag: u32,
    /// `REQ_SWAP`, as a mask; 0 without it.
    pub swap_flag: u32,
    /// `bio.bi_io_vec`.
    pub bio_vectors: u32,
    /// `bio.bi_iter.bi_idx`.
    pub bio_index: u32,
    /// `bio.bi_iter.bi_size`.
    pub bio_size: u32,
    /// `bio.bi_pool`.
    pub bio_pool: u32,
    /// `bio_set.front_pad`.
    pub pool_front_pad: u32,
    /// `page.compound_info` or, before 7.0, `page.compound_head`.
    pub page_head: u32,
    /// `page.mapping`.
    pub page_mapping: u32,
    /// `page.flags`.
    pub page_flags: u32,
    /// `PG_locked` and `PG_writeback`, as a mask.
    pub page_in_io: u32,
    /// `address_space.host`.
    pub mapping_host: u32,
    /// `address_space.i_mmap`.
    pub mapping_areas: u32,
    /// `inode.i_data`.
    pub inode_data: u32,
    /// `inode.i_ino`.
    pub inode_number: u32,
    /// `inode.i_mode`.
    pub inode_mode: u32,
    /// `inode.i_nlink`.
    pub inode_links: u32,
    /// `inode.i_rdev`.
    pub inode_device: u32,
    /// `inode.i_sb`.
    pub inode_super: u32,
    /// `inode.i_dentry`.
    pub inode_dentries: u32,
    /// `super_block.s_dev`.
    pub super_device: u32,
    /// `super_block.s_magic`.
    pub super_magic: u32,
    /// `super_block.s_type`.
    pub super_type: u32,
    /// `file_system_type.name`.
    pub type_name: u32,
    /// `dentry.d_alias`.
    pub dentry_alias: u32,
    /// `dentry.d_parent`.
    pub dentry_parent: u32,
    /// `dentry.d_name.name`.
    pub dentry_name: u32,
    /// `kiocb.ki_filp`.
    pub iocb_file: u32,
    /// `kiocb.ki_complete`.
    pub iocb_complete: u32,
    /// `file.f_inode`.
    pub file_inode: u32,
    /// `file.f_path.dentry`.
    pub file_dentry: u32,
    /// `file.f_mapping`.
    pub file_mapping: u32,
    /// `task_struct.tgid`.
    pub task_group: u32,
    /// `task_struct.group_leader`.
    pub task_leader: u32,
    /// `task_struct.comm`.
    pub task_command: u32,
    /// `task_struct.mm`.
    pub task_memory: u32,
    /// `mm_struct.owner`, or [`NO_OFFSET`] (without `CONFIG_MEMCG`).
    pub memory_owner: u32,
    /// `vm_area_struct.vm_mm`.
    pub area_memory: u32,
    /// `vm_area_struct.shared.rb`.
    pub area_node: u32,
    /// `anon_vma.rb_root`.
    pub anonymous_root: u32,
    /// `anon_vma_chain.rb`.
    pub chain_node: u32,
    /// `anon_vma_chain.vma`.
    pub chain_area: u32,
    /// `completion.wait.task_list`.
    pub completion_tasks: u32,
    /// `swait_queue.task`.
    pub wait_task: u32,
    /// `swait_queue.task_list`.
    pub wait_list: u32,
    /// `io_kiocb.task`, or `io_kiocb.tctx` (6.13 and later).
    pub uring_task: u32,
    /// `io_uring_task.task`, or [`NO_OFFSET`] if `io_kiocb` has the task.
    pub uring_context_task: u32,
    /// `aio_kiocb.ki_ctx`.
    pub aio_context: u32,
    /// `kioctx.aio_ring_file`.
    pub aio_ring: u32,
    /// Size of `wait_queue_head`.
    pub queue_bytes: u32,
    /// `wait_queue_head.head`.
    pub queue_list: u32,
    /// `wait_page_queue.folio`, or `wait_page_queue.page` (before 5.16).
    pub page_wait_page: u32,
    /// `wait_page_queue.wait.entry`.
    pub page_wait_entry: u32,
    /// `wait_page_queue.wait.private`.
    pub page_wait_task: u32,
    /// `iomap_dio_simple.bio`, or [`NO_OFFSET`] (before 7.2).
    pub simple_bio: u32,
    /// `iomap_dio_simple.iocb`.
    pub simple_iocb: u32,
}

impl Names {
    /// Decodes names and the components of the path from the rest of a record in the ring buffer. `None` if it is too short.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, path) = bytes.split_first_chunk::<{ size_of::<Self>() }>()?;
        // SAFETY: every bit pattern is valid for its numbers, and there is no padding.
        Some((unsafe { core::mem::transmute::<[u8; size_of::<Self>()], Self>(*head) }, path))
    }
}

/// The name of a function as the words of which [`symbol_key`] makes the key. Cut off like by the kernel.
#[must_use]
pub fn symbol_words(name: &str) -> [u64; SYMBOL_BYTES / 8] {
    let mut bytes = [0; SYMBOL_BYTES];
    let length = name.len().min(SYMBOL_BYTES - 1);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    let mut words = [0; SYMBOL_BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}
