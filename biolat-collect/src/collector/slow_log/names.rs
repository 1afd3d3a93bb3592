//! Turns what the probe has read about an I/O into the file and the process to show, or into the reason why there is none.

use biolat_common::names::{Names, class as io_class, file, is_block_device, page, process};
use biolat_model::{
    io_names::{IoFile, IoNames, IoProcess, class},
    name::Name,
};
use biolat_probe::NamesRecord;

use crate::device::MountPoints;

/// Inode of the trees of a btrfs.
const BTRFS_TREES: u64 = 1;

/// Describes an I/O with this op. Without mount points, only the process is named.
pub(super) fn describe(record: &NamesRecord, op: &str, mounts: Option<&MountPoints>) -> IoNames {
    let (process, process_unknown) = match shown_process(&record.names, op) {
        Ok(process) => (Some(process), None),
        Err(reason) => (None, Some(reason.into())),
    };
    let mut described = IoNames { process, process_unknown, ..IoNames::default() };
    let Some(mounts) = mounts else { return described };
    match target(record, op, mounts) {
        Target::Class(class) => described.class = Some(class.into()),
        Target::File(file) => (described.class, described.file) = (Some(class::FILE.into()), Some(file)),
        Target::Unknown(reason) => described.file_unknown = Some(reason),
    }
    described
}

/// What an I/O reads or writes.
enum Target {
    Class(&'static str),
    File(IoFile),
    Unknown(Name),
}

fn target(record: &NamesRecord, op: &str, mounts: &MountPoints) -> Target {
    let names = &record.names;
    match op {
        "flush" => return Target::Class(class::FLUSH),
        "discard" | "secure_erase" => return Target::Class(class::DISCARD),
        _ => {}
    }
    match names.class {
        io_class::JOURNAL => return Target::Class(class::JOURNAL),
        io_class::METADATA => return Target::Class(class::METADATA),
        io_class::SWAP => return Target::Class(class::SWAP),
        _ => {}
    }
    let file_system = text(&names.file_system);
    if names.inode == 0 {
        return without_inode(names);
    }
    if is_block_device(names.mode) {
        // The page cache of the device belongs to the file system on it, if there is one.
        let is_file_system = names.file == file::PAGE && (names.is_metadata != 0 || mounts.has(names.device));
        return Target::Class(if is_file_system { class::METADATA } else { class::RAW_DEVICE });
    }
    if file_system == "btrfs" && names.inode == BTRFS_TREES {
        return Target::Class(class::METADATA);
    }
    let mut path: String = record.path.iter().flat_map(|component| ["/", component]).collect();
    let mut mount = None;
    if names.is_truncated != 0 {
        path.insert_str(0, "/…");
        mount = mounts.of(names.device, "/").map(|(point, _)| point);
    } else if let Some((point, root)) = mounts.of(names.device, &path) {
        path.drain(..root.len());
        mount = Some(point);
    }
    Target::File(IoFile { path, mount, file_system, inode: names.inode, removed: names.links == 0 })
}

fn without_inode(names: &Names) -> Target {
    if names.file == file::BLOCK_DEVICE {
        return Target::Class(class::RAW_DEVICE);
    }
    if names.is_metadata != 0 {
        return Target::Class(class::METADATA);
    }
    let what = match names.page {
        page::NONE => return Target::Unknown("no data was left at completion".into()),
        page::ANONYMOUS | page::MAPPED_BUFFER => "direct I/O",
        _ => "data in kernel memory that belongs to no file",
    };
    // The name of the function says which file system or driver does the I/O.
    let function: Vec<u8> = names.function.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let function = text(&function);
    let through = if function.is_empty() { String::new() } else { format!(" through {function}") };
    Target::Unknown(format!("{what}{through}").into())
}

fn shown_process(names: &Names, op: &str) -> Result<IoProcess, &'static str> {
    let known_by: Name = match names.process_source {
        process::WAITER => "waiter",
        process::IO_URING => "io_uring",
        process::LIBAIO => "libaio",
        process::BUFFER_OWNER => "buffer owner",
        process::PAGE_WAITER => "page waiter",
        process::SHARED_BUFFER => return Err("processes share the buffer since a fork"),
        process::ENDED => return Err("the process has ended"),
        process::NO_QUEUES => return Err("/proc/kallsyms does not show who waits for a page"),
        _ if names.page == page::FILE && op == "read" => return Err("nobody waits for the page"),
        _ if names.page == page::FILE => return Err("written back by the kernel"),
        _ => return Err("no process waits for it"),
    }
    .into();
    if names.process == 0 {
        return Err("the process has ended");
    }
    Ok(IoProcess { id: names.process, command: text(&names.command), known_by })
}

/// Text that ends with a zero.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}
