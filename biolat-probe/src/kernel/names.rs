//! The layout of the structs that lead from an I/O to its file and its process.

use biolat_common::names::{NO_OFFSET, NamesLayout};

use crate::btf::Btf;

/// Resolves the layout. `None` if a member is missing without which no name can be found.
pub(super) fn layout(btf: &Btf<'_>) -> Option<NamesLayout> {
    let member = |structure: &str, member: &str| btf.member_offset(structure, member);
    let nested = |structure: &str, members: &[&str]| btf.nested_offset(structure, members);
    let bit = |name: &str| 1_u32.checked_shl(u32::try_from(btf.enumerator(name)?).ok()?);
    let uring = uring(btf).unwrap_or((NO_OFFSET, NO_OFFSET));
    let aio = member("aio_kiocb", "ki_ctx").zip(member("kioctx", "aio_ring_file"));
    let aio = aio.unwrap_or((NO_OFFSET, NO_OFFSET));
    let simple = member("iomap_dio_simple", "bio").zip(member("iomap_dio_simple", "iocb"));
    let simple = simple.unwrap_or((NO_OFFSET, NO_OFFSET));
    let layout = NamesLayout {
        // The helper's enumerator exists since the release that added it.
        has_symbols: u32::from(btf.enumerator("BPF_FUNC_snprintf").is_some()),
        bio_end_io: member("bio", "bi_end_io")?,
        bio_private: member("bio", "bi_private")?,
        bio_flags: member("bio", "bi_opf")?,
        metadata_flag: bit("__REQ_META")?,
        swap_flag: bit("__REQ_SWAP").unwrap_or(0),
        bio_vectors: member("bio", "bi_io_vec")?,
        bio_index: nested("bio", &["bi_iter", "bi_idx"])?,
        bio_size: nested("bio", &["bi_iter", "bi_size"])?,
        bio_pool: member("bio", "bi_pool")?,
        pool_front_pad: member("bio_set", "front_pad")?,
        page_head: member("page", "compound_info").or_else(|| member("page", "compound_head"))?,
        page_mapping: member("page", "mapping")?,
        page_flags: member("page", "flags")?,
        page_in_io: bit("PG_locked")? | bit("PG_writeback")?,
        mapping_host: member("address_space", "host")?,
        mapping_areas: member("address_space", "i_mmap")?,
        inode_data: member("inode", "i_data")?,
        inode_number: member("inode", "i_ino")?,
        inode_mode: member("inode", "i_mode")?,
        inode_links: member("inode", "i_nlink")?,
        inode_device: member("inode", "i_rdev")?,
        inode_super: member("inode", "i_sb")?,
        inode_dentries: member("inode", "i_dentry")?,
        super_device: member("super_block", "s_dev")?,
        super_magic: member("super_block", "s_magic")?,
        super_type: member("super_block", "s_type")?,
        type_name: member("file_system_type", "name")?,
        dentry_alias: member("dentry", "d_alias").or_else(|| nested("dentry", &["d_u", "d_alias"]))?,
        dentry_parent: member("dentry", "d_parent")?,
        dentry_name: nested("dentry", &["d_name", "name"])?,
        iocb_file: member("kiocb", "ki_filp")?,
        iocb_complete: member("kiocb", "ki_complete")?,
        file_inode: member("file", "f_inode")?,
        file_dentry: nested("file", &["f_path", "dentry"])?,
        file_mapping: member("file", "f_mapping")?,
        task_group: member("task_struct", "tgid")?,
        task_leader: member("task_struct", "group_leader")?,
        task_command: member("task_struct", "comm")?,
        task_memory: member("task_struct", "mm")?,
        // Only with CONFIG_MEMCG.
        memory_owner: member("mm_struct", "owner").unwrap_or(NO_OFFSET),
        area_memory: member("vm_area_struct", "vm_mm")?,
        area_node: nested("vm_area_struct", &["shared", "rb"])?,
        anonymous_root: member("anon_vma", "rb_root")?,
        chain_node: member("anon_vma_chain", "rb")?,
        chain_area: member("anon_vma_chain", "vma")?,
        completion_tasks: nested("completion", &["wait", "task_list"])?,
        wait_task: member("swait_queue", "task")?,
        wait_list: member("swait_queue", "task_list")?,
        uring_task: uring.0,
        uring_context_task: uring.1,
        aio_context: aio.0,
        aio_ring: aio.1,
        simple_bio: simple.0,
        simple_iocb: simple.1,
        ..page_wait(btf)
    };
    Some(layout)
}

/// Returns `uring_task` and `uring_context_task`. `None` without io_uring.
fn uring(btf: &Btf<'_>) -> Option<(u32, u32)> {
    if let Some(context) = btf.member_offset("io_kiocb", "tctx") {
        return Some((context, btf.member_offset("io_uring_task", "task")?));
    }
    Some((btf.member_offset("io_kiocb", "task")?, NO_OFFSET))
}

/// Returns a layout with the members that lead to a task that waits for a page.
fn page_wait(btf: &Btf<'_>) -> NamesLayout {
    let members = || {
        let page = ["folio", "page"].iter().find_map(|name| btf.member_offset("wait_page_queue", name))?;
        Some(NamesLayout {
            queue_bytes: btf.size("wait_queue_head")?,
            queue_list: btf.member_offset("wait_queue_head", "head")?,
            page_wait_page: page,
            page_wait_entry: btf.nested_offset("wait_page_queue", &["wait", "entry"])?,
            page_wait_task: btf.nested_offset("wait_page_queue", &["wait", "private"])?,
            ..NamesLayout::default()
        })
    };
    members().unwrap_or(NamesLayout { page_wait_page: NO_OFFSET, ..NamesLayout::default() })
}
