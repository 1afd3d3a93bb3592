//! Finds the file and the process of a slow or failed I/O: see [`biolat_common::names`].
//!
//! Everything here is read with helpers, at addresses whose types the verifier does not know. So a stale pointer reads garbage at
//! worst, and what is read is checked before it is believed. Each step is a global function, which the verifier walks once, and
//! keeps its state in this CPU's buffer.

use aya_ebpf::helpers::generated::{bpf_probe_read_kernel_str, bpf_snprintf};
use biolat_common::{
    names::{
        COMPONENT_BYTES, Function, LEVELS, NO_OFFSET, NamedRecord, Names, PATH_BYTES, STACKED_BIOS,
        SYMBOL_BYTES, Search, class, file, is_block_device, kind, page, process, symbol_key,
    },
    slow::SlowRecord,
};

use crate::{
    constants::{layout_const, names_const, option_const},
    kernel_memory::{read, read_u32, read_u64},
    maps::{self, Program},
};

/// `TMPFS_MAGIC`: a page of such a file is a buffer in shared memory, and the file has no drive.
const TMPFS: u64 = 0x0102_1994;

/// Low bits of `page.mapping`: no file if one is set, anonymous memory if only the first is.
const MAPPING_FLAGS: u64 = 3;
const MAPPING_ANONYMOUS: u64 = 1;

/// Completes the record of a request with its names, in this CPU's buffer for this program, and sends it.
#[inline(always)]
pub(crate) fn send<P: Program>(record: &SlowRecord, request: u64) {
    let program = u32::from(P::IS_UNDERSTUDY);
    let Some(buffer) = buffer(program) else { return };
    buffer.record = *record;
    buffer.search.request = request;
    let path = find_names(program);
    maps::send_named::<P>(buffer, path as usize);
}

/// Finds the names of the request in this CPU's buffer. Returns the length of the path in bytes. `program` is 1 for the
/// understudy.
///
/// The arguments of a global function must be numbers, so the address of the request is passed in the buffer.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_names(program: u32) -> u32 {
    let Some(buffer) = buffer(program) else { return 0 };
    let first = read_u64(buffer.search.request, layout_const!(bio));
    buffer.names = Names {
        inode: 0,
        device: 0,
        mode: 0,
        links: 0,
        process: 0,
        file: file::NONE,
        process_source: process::NONE,
        page: page::NONE,
        class: class::NONE,
        is_metadata: 0,
        is_truncated: 0,
        padding: [0; 2],
        file_system: [0; 16],
        command: [0; 16],
        function: [0; 4],
    };
    if first == 0 {
        return 0;
    }
    let search = &mut buffer.search;
    search.bio = first;
    search.end = read_u64(first, names_const!(bio_end_io));
    search.private = read_u64(first, names_const!(bio_private));
    search.iocb = 0;
    search.task = 0;
    search.inode = 0;
    search.dentry = 0;
    for _ in 0..STACKED_BIOS {
        if climb(program) == 0 {
            break;
        }
    }
    follow_end(program);
    follow_iocb(program);
    // The drive's bio has the data. That of dm-crypt is encrypted: the submitted bio has the page of the file.
    if look_at_page(first, program) == u32::from(page::NO_FILE) {
        look_at_page(0, program);
    }
    follow_buffer(program);
    describe_process(program);
    if option_const!(slow_names) < 2 {
        return 0;
    }
    describe_file(program);
    read_path(program)
}

/// Goes from a part or a clone to its original bio. Returns 0 if there is none.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn climb(program: u32) -> u32 {
    let Some(NamedRecord { search, .. }) = buffer(program) else { return 0 };
    let Some(function) = function(search.end, program) else { return 0 };
    let base = base(search, function);
    let [a, b, _] = function.offsets;
    match function.kind {
        kind::CLONE => {
            let parent = follow(follow(base, a), b);
            if parent == 0 {
                return 0;
            }
            search.bio = parent;
            search.end = read_u64(parent, names_const!(bio_end_io));
            search.private = read_u64(parent, names_const!(bio_private));
            1
        }
        kind::REPLACED => {
            search.end = read_u64(base, a);
            search.private = read_u64(base, b);
            1
        }
        _ => 0,
    }
}

/// Follows the data of the function at the end of the submitted bio.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn follow_end(program: u32) -> u32 {
    let Some(NamedRecord { search, names, .. }) = buffer(program) else { return 0 };
    let flags = read_u32(search.bio, names_const!(bio_flags));
    names.is_metadata = u8::from(flags & names_const!(metadata_flag) != 0);
    if flags & names_const!(swap_flag) != 0 {
        names.class = class::SWAP;
    }
    let Some(function) = function(search.end, program) else {
        if names_const!(has_symbols) != 0 {
            let [a, b, c, d, ..] = search.symbol;
            names.function = [a, b, c, d];
        }
        return 0;
    };
    let base = base(search, function);
    let [a, b, c] = function.offsets;
    match function.kind {
        kind::DIRECT => {
            search.iocb = read_u64(base, a);
            if b != NO_OFFSET && read_u32(base, b) & 0xff != 0 {
                search.task = read_u64(base, c);
            }
        }
        kind::BLOCK_DEVICE => {
            names.file = file::BLOCK_DEVICE;
            let waiter_or_iocb = read_u64(base, a);
            if read_u32(base, b) & c != 0 {
                search.task = waiter_or_iocb;
            } else {
                search.iocb = waiter_or_iocb;
            }
        }
        kind::COMPLETION => {
            let list = search.private + u64::from(names_const!(completion_tasks));
            let first = read_u64(list, 0);
            if first != 0 && first != list {
                let waiter = first - u64::from(names_const!(wait_list));
                search.task = read_u64(waiter, names_const!(wait_task));
            }
            // A direct read of one bio is embedded in a structure with its `iocb`, in a pool of its own.
            if names_const!(simple_bio) != NO_OFFSET {
                let pool = read_u64(search.bio, names_const!(bio_pool));
                if pool != 0 && read_u32(pool, names_const!(pool_front_pad)) == names_const!(simple_bio) {
                    let simple = search.bio - u64::from(names_const!(simple_bio));
                    search.iocb = read_u64(simple, names_const!(simple_iocb));
                }
            }
        }
        kind::WAITER => {
            names.file = file::BLOCK_DEVICE;
            search.task = search.private;
        }
        kind::BUFFER_HEAD => {
            let end = read_u64(search.private, a);
            if let Some(function) = self::function(end, program)
                && function.kind == kind::CLASS
            {
                names.class = function.offsets[0] as u8;
            }
        }
        kind::INODE => {
            let inode = read_u64(base, a);
            if inode != 0 {
                search.inode = inode + u64::from(b);
                names.file = file::FILE_SYSTEM;
            }
        }
        kind::CLASS => names.class = a as u8,
        _ => {}
    }
    if search.task != 0 {
        names.process_source = process::WAITER;
    }
    0
}

/// Finds the open file and the process of an `iocb`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn follow_iocb(program: u32) -> u32 {
    let Some(NamedRecord { search, names, .. }) = buffer(program) else { return 0 };
    let iocb = search.iocb;
    if iocb == 0 {
        return 0;
    }
    let open_file = read_u64(iocb, names_const!(iocb_file));
    let inode = read_u64(open_file, names_const!(file_inode));
    if inode == 0 {
        return 0;
    }
    search.inode = inode;
    search.dentry = read_u64(open_file, names_const!(file_dentry));
    names.file = file::OPEN_FILE;
    let Some(function) = function(read_u64(iocb, names_const!(iocb_complete)), program) else { return 0 };
    match function.kind {
        kind::IO_URING if names_const!(uring_task) != NO_OFFSET => {
            let mut task = read_u64(iocb, names_const!(uring_task));
            if names_const!(uring_context_task) != NO_OFFSET {
                task = read_u64(task, names_const!(uring_context_task));
            }
            search.task = task;
            names.process_source = process::IO_URING;
        }
        kind::LIBAIO if names_const!(aio_context) != NO_OFFSET && has_owners() => {
            let context = read_u64(iocb, names_const!(aio_context));
            let ring = read_u64(context, names_const!(aio_ring));
            let mapping = read_u64(ring, names_const!(file_mapping));
            let node = read_u64(mapping, names_const!(mapping_areas));
            if node != 0 {
                search.task = owner(node - u64::from(names_const!(area_node)));
                names.process_source = if search.task == 0 { process::ENDED } else { process::LIBAIO };
            }
        }
        _ => {}
    }
    0
}

/// Looks at the first page of a bio that has not completed; 0 stands for the submitted bio. Returns one of [`page`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn look_at_page(bio: u64, program: u32) -> u32 {
    /// Size of `struct bio_vec`, which begins with the page.
    const VECTOR_BYTES: u64 = 16;
    let Some(NamedRecord { search, names, .. }) = buffer(program) else { return 0 };
    let bio = if bio == 0 { search.bio } else { bio };
    search.mapping = 0;
    let vectors = read_u64(bio, names_const!(bio_vectors));
    // Nothing is left at the last completion of a FUA write, and the index is beyond the end.
    if vectors == 0 || read_u32(bio, names_const!(bio_size)) == 0 {
        return 0;
    }
    let index = u64::from(read_u32(bio, names_const!(bio_index)));
    let any: u64 = read(vectors + index * VECTOR_BYTES);
    if any == 0 {
        return 0;
    }
    let head = head(any);
    search.page = head;
    let mapping = read_u64(head, names_const!(page_mapping));
    search.mapping = mapping;
    names.page = page::NO_FILE;
    if mapping == 0 {
        return u32::from(page::NO_FILE);
    }
    if mapping & MAPPING_FLAGS != 0 {
        names.page =
            if mapping & MAPPING_FLAGS == MAPPING_ANONYMOUS { page::ANONYMOUS } else { page::NO_FILE };
        return u32::from(names.page);
    }
    let inode = read_u64(mapping, names_const!(mapping_host));
    // A page of the slab allocator has something else in this place.
    if inode == 0 || inode + u64::from(names_const!(inode_data)) != mapping {
        return u32::from(page::NO_FILE);
    }
    let is_of_device = is_block_device(read_u32(inode, names_const!(inode_mode)));
    let in_io = read_u64(head, names_const!(page_flags)) & u64::from(names_const!(page_in_io)) != 0;
    let super_block = read_u64(inode, names_const!(inode_super));
    // The kernel locks a page while it reads it, and flags it while it writes it. For metadata it locks the buffer in the page.
    if read_u64(super_block, names_const!(super_magic)) == TMPFS || !in_io && !is_of_device {
        names.page = page::MAPPED_BUFFER;
        return u32::from(page::MAPPED_BUFFER);
    }
    names.page = page::FILE;
    if search.inode == 0 {
        search.inode = inode;
        names.file = file::PAGE;
    }
    u32::from(page::FILE)
}

/// The first page of a compound page.
#[inline(always)]
fn head(any: u64) -> u64 {
    /// If the high half is all ones, the number is a mask for the address of the head; otherwise it is that address plus 1.
    const MASK: u64 = 0xffff_ffff;
    let head = read_u64(any, names_const!(page_head));
    if head & 1 == 0 {
        any
    } else if head >> 32 == MASK {
        any & head
    } else {
        head - 1
    }
}

/// Finds the process by the page: the owner of an anonymous buffer, or a task that waits for a page of a file.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn follow_buffer(program: u32) -> u32 {
    let Some(NamedRecord { search, names, .. }) = buffer(program) else { return 0 };
    if search.task != 0 || names.process_source == process::ENDED {
        return 0;
    }
    if names.page == page::ANONYMOUS && has_owners() {
        let anonymous = search.mapping & !MAPPING_FLAGS;
        let root = read_u64(anonymous, names_const!(anonymous_root));
        if root == 0 {
            return 0;
        }
        let memory = memory_of_chain(root);
        let is_shared = differs(memory, root, RIGHT) | differs(memory, root, LEFT);
        if is_shared {
            names.process_source = process::SHARED_BUFFER;
            return 0;
        }
        search.task = owner_of(memory);
        names.process_source = if search.task == 0 { process::ENDED } else { process::BUFFER_OWNER };
    } else if names.page == page::FILE {
        find_page_waiter(program);
    }
    0
}

/// Offsets in `struct rb_node`.
const RIGHT: u32 = 8;
const LEFT: u32 = 16;

/// Whether a node of the tree below `root` has other memory. A tree of more than two levels counts as different.
#[inline(always)]
fn differs(memory: u64, root: u64, side: u32) -> bool {
    let node = read_u64(root, side);
    node != 0 && (memory_of_chain(node) != memory || read_u64(node, LEFT) != 0 || read_u64(node, RIGHT) != 0)
}

#[inline(always)]
fn memory_of_chain(node: u64) -> u64 {
    let chain = node - u64::from(names_const!(chain_node));
    read_u64(read_u64(chain, names_const!(chain_area)), names_const!(area_memory))
}

/// Whether the kernel knows the owner of memory.
#[inline(always)]
fn has_owners() -> bool {
    names_const!(memory_owner) != NO_OFFSET
}

/// The process that owns an area of memory; 0 if it has ended.
#[inline(always)]
fn owner(area: u64) -> u64 {
    owner_of(read_u64(area, names_const!(area_memory)))
}

#[inline(always)]
fn owner_of(memory: u64) -> u64 {
    let task = read_u64(memory, names_const!(memory_owner));
    // If the memory was freed, this hardly ever agrees.
    if memory != 0 && task != 0 && read_u64(task, names_const!(task_memory)) == memory { task } else { 0 }
}

/// Finds a task that waits for the page in the kernel's hashed queues, if their address is known.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_page_waiter(program: u32) -> u32 {
    /// `GOLDEN_RATIO_64` and `PAGE_WAIT_TABLE_BITS`.
    const RATIO: u64 = 0x61c8_8646_80b5_83eb;
    const BITS: u32 = 8;
    const WAITERS: usize = 8;
    let Some(NamedRecord { search, names, .. }) = buffer(program) else { return 0 };
    let queues = maps::page_wait_queues();
    if queues == 0 || names_const!(page_wait_page) == NO_OFFSET {
        names.process_source = process::NO_QUEUES;
        return 0;
    }
    let index = search.page.wrapping_mul(RATIO) >> (64 - BITS);
    let list = queues + index * u64::from(names_const!(queue_bytes)) + u64::from(names_const!(queue_list));
    let mut entry = read_u64(list, 0);
    for _ in 0..WAITERS {
        if entry == 0 || entry == list {
            break;
        }
        let waiter = entry - u64::from(names_const!(page_wait_entry));
        if read_u64(waiter, names_const!(page_wait_page)) == search.page {
            search.task = read_u64(waiter, names_const!(page_wait_task));
            names.process_source = process::PAGE_WAITER;
            break;
        }
        entry = read_u64(entry, 0);
    }
    0
}

/// Reads the id and the command of the process.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn describe_process(program: u32) -> u32 {
    let Some(NamedRecord { search, names, .. }) = buffer(program) else { return 0 };
    if search.task == 0 {
        return 0;
    }
    names.process = read_u32(search.task, names_const!(task_group));
    let leader = read_u64(search.task, names_const!(task_leader));
    read_text(&mut names.command, leader + u64::from(names_const!(task_command)));
    0
}

/// Reads the inode and its file system.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn describe_file(program: u32) -> u32 {
    let Some(NamedRecord { search, names, .. }) = buffer(program) else { return 0 };
    let inode = search.inode;
    if inode == 0 {
        return 0;
    }
    let super_block = read_u64(inode, names_const!(inode_super));
    names.inode = read_u64(inode, names_const!(inode_number));
    names.mode = read_u32(inode, names_const!(inode_mode)) & 0xffff;
    names.links = read_u32(inode, names_const!(inode_links));
    names.device = if is_block_device(names.mode) {
        read_u32(inode, names_const!(inode_device))
    } else {
        read_u32(super_block, names_const!(super_device))
    };
    let type_ = read_u64(super_block, names_const!(super_type));
    read_text(&mut names.file_system, read_u64(type_, names_const!(type_name)));
    0
}

/// Reads the components of the path, innermost first. Returns their length.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn read_path(program: u32) -> u32 {
    let Some(NamedRecord { search, names, .. }) = buffer(program) else { return 0 };
    if search.inode == 0 || is_block_device(names.mode) {
        return 0;
    }
    if search.dentry == 0 {
        let alias = read_u64(search.inode, names_const!(inode_dentries));
        if alias == 0 {
            return 0;
        }
        search.dentry = alias - u64::from(names_const!(dentry_alias));
    }
    search.length = 0;
    for _ in 0..LEVELS {
        if read_component(program) == 0 {
            break;
        }
    }
    // The root is its own parent.
    names.is_truncated = u8::from(read_u64(search.dentry, names_const!(dentry_parent)) != search.dentry);
    search.length as u32
}

/// Reads one component of the path and goes to its directory. Returns 0 at the root.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn read_component(program: u32) -> u32 {
    let Some(NamedRecord { search, path, .. }) = buffer(program) else { return 0 };
    let parent = read_u64(search.dentry, names_const!(dentry_parent));
    if parent == search.dentry || parent == 0 {
        return 0;
    }
    let name = read_u64(search.dentry, names_const!(dentry_name));
    let place = search.length as usize & (PATH_BYTES - 1);
    // SAFETY: in bounds because of the mask; the helper writes at most this many bytes.
    let read = unsafe {
        bpf_probe_read_kernel_str(
            path.as_mut_ptr().add(place).cast(),
            COMPONENT_BYTES as u32,
            name as *const _,
        )
    };
    if read > 0 {
        search.length += read as u64;
    }
    search.dentry = parent;
    1
}

/// The structure that contains a bio or that `bi_private` points to.
#[inline(always)]
fn base(search: &Search, function: &Function) -> u64 {
    if function.container == NO_OFFSET { search.private } else { search.bio - u64::from(function.container) }
}

/// The pointer at an offset, or the address itself without an offset.
#[inline(always)]
fn follow(address: u64, offset: u32) -> u64 {
    if offset == NO_OFFSET { address } else { read_u64(address, offset) }
}

/// The entry of the kernel's function at an address.
#[inline(always)]
fn function(address: u64, program: u32) -> Option<&'static Function> {
    let key = if names_const!(has_symbols) != 0 { key_of_symbol(address, program) } else { address };
    maps::function(key)
}

/// The key of a function by its name. The kernel prints the name without the offset that hides addresses, and without the
/// capability to see them.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn key_of_symbol(address: u64, program: u32) -> u64 {
    // The kernel verifies a global function even if nothing calls it.
    if names_const!(has_symbols) == 0 {
        return 0;
    }
    let Some(NamedRecord { search, .. }) = buffer(program) else { return 0 };
    search.symbol = [0; SYMBOL_BYTES / 8];
    let mut argument = address;
    // SAFETY: the helper writes at most this many bytes.
    unsafe {
        bpf_snprintf(
            search.symbol.as_mut_ptr().cast(),
            SYMBOL_BYTES as u32,
            maps::symbol_format().cast(),
            &raw mut argument,
            size_of::<u64>() as u32,
        );
    }
    symbol_key(&search.symbol)
}

#[inline(always)]
fn read_text(text: &mut [u8; 16], address: u64) {
    // SAFETY: the helper writes at most this many bytes, and zeros if the text cannot be read.
    unsafe { bpf_probe_read_kernel_str(text.as_mut_ptr().cast(), text.len() as u32, address as *const _) };
}

#[inline(always)]
fn buffer(program: u32) -> Option<&'static mut NamedRecord> {
    // SAFETY: this CPU's own buffer for this program.
    maps::named_record(program).map(|buffer| unsafe { &mut *buffer })
}
