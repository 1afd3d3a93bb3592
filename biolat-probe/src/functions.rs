//! The kernel's functions that the probe knows, with what it finds at the end of a bio that calls one: see
//! [`biolat_common::names`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead as _, BufReader},
};

use anyhow::{Context as _, Result};
use aya::maps::{Array, HashMap, MapData};
use biolat_common::names::{Function, NO_OFFSET, class, kind, symbol_key, symbol_words};
use biolat_system::host::Host;

use super::{btf::Btf, host_btf::kernel_btf, kernel::Kernel, map_set::MapSet};

/// Modules whose BTF describes structs with a bio. Each may also be built into the kernel.
const MODULES: [&str; 7] = ["dm_mod", "dm_crypt", "md_mod", "raid1", "raid10", "raid456", "btrfs"];

/// The kernel's queues of tasks that wait for a page. The second name is from before 5.16.
const PAGE_WAIT_QUEUES: [&str; 2] = ["folio_wait_table", "page_wait_table"];

/// The map of functions, and the address of the queues.
pub(super) struct Functions {
    map: HashMap<MapData, u64, [u32; WORDS]>,
    page_wait_queues: Array<MapData, u64>,
    /// Modules whose BTF has been read.
    modules: Option<BTreeSet<&'static str>>,
}

const WORDS: usize = size_of::<Function>() / size_of::<u32>();

impl Functions {
    pub(super) fn from_maps(maps: &mut MapSet<'_>) -> Result<Self> {
        Ok(Self {
            map: maps.take("FUNCTIONS")?.try_into()?,
            page_wait_queues: maps.take("PAGE_QUEUES")?.try_into()?,
            modules: None,
        })
    }

    /// Fills the map, and adds functions of modules that have been loaded since. Does nothing if there is no new module.
    pub(super) fn refresh(&mut self, kernel: &Kernel, host: &Host) -> Result<()> {
        let Some(layout) = kernel.names else { return Ok(()) };
        let path = |module: &str| host.btf().with_file_name(module);
        let modules: BTreeSet<_> = MODULES.into_iter().filter(|module| path(module).exists()).collect();
        if self.modules.as_ref() == Some(&modules) {
            return Ok(());
        }
        let vmlinux = kernel_btf(host)?;
        let vmlinux = Btf::parse(&vmlinux)?;
        let bytes: Vec<_> = modules.iter().filter_map(|module| fs::read(path(module)).ok()).collect();
        let parsed = bytes.iter().filter_map(|bytes| vmlinux.parse_module(bytes).ok());
        let types = Types { all: parsed.collect::<Vec<_>>(), vmlinux: &vmlinux };
        let known = known(&types);
        let addresses = Addresses::read(host, known.iter().map(|known| known.name).chain(PAGE_WAIT_QUEUES));
        for known in &known {
            let keys: Vec<u64> = if layout.has_symbols != 0 {
                known.symbols().iter().map(|symbol| symbol_key(&symbol_words(symbol))).collect()
            } else {
                addresses.of(known.name).collect()
            };
            for key in keys {
                self.map
                    .insert(key, words(known.function), 0)
                    .context("cannot add a function to the probe")?;
            }
        }
        let queues = PAGE_WAIT_QUEUES.iter().flat_map(|name| addresses.of(name)).next();
        if let Some(address) = queues {
            self.page_wait_queues.set(0, address, 0).context("cannot tell the probe an address")?;
        }
        self.modules = Some(modules);
        Ok(())
    }
}

const fn words(function: Function) -> [u32; WORDS] {
    let [a, b, c] = function.offsets;
    [function.kind, function.container, a, b, c]
}

/// A function of the kernel.
pub(super) struct Known {
    pub(super) name: &'static str,
    /// The module that has it, unless it is built in; empty if it is always built in.
    module: &'static str,
    pub(super) function: Function,
}

impl Known {
    /// The texts that the kernel may print for it.
    fn symbols(&self) -> Vec<String> {
        let mut symbols = vec![self.name.to_owned()];
        if !self.module.is_empty() {
            symbols.push(format!("{} [{}]", self.name, self.module));
        }
        symbols
    }
}

/// The types of the kernel and its modules.
pub(super) struct Types<'a> {
    pub(super) vmlinux: &'a Btf<'a>,
    pub(super) all: Vec<Btf<'a>>,
}

impl Types<'_> {
    fn find<T>(&self, look: impl Fn(&Btf<'_>) -> Option<T>) -> Option<T> {
        look(self.vmlinux).or_else(|| self.all.iter().find_map(look))
    }

    fn offset(&self, structure: &str, member: &str) -> Option<u32> {
        self.find(|btf| btf.member_offset(structure, member))
    }
}

/// The functions whose structs exist on this kernel.
pub(super) fn known(types: &Types<'_>) -> Vec<Known> {
    let offset = |structure: &str, member: &str| types.offset(structure, member);
    let function = |kind, container: Option<u32>, offsets: [Option<u32>; 3]| Function {
        kind,
        container: container.unwrap_or(NO_OFFSET),
        offsets: offsets.map(|offset| offset.unwrap_or(NO_OFFSET)),
    };
    let class = |class: u8| function(kind::CLASS, None, [Some(class.into()), None, None]);
    let parent = |at: Option<u32>| at.map(|at| function(kind::CLONE, None, [None, Some(at), None]));
    let dm_clone = || {
        let (container, io) = (offset("dm_target_io", "clone")?, offset("dm_target_io", "io")?);
        Some(function(kind::CLONE, Some(container), [Some(io), Some(offset("dm_io", "orig_bio")?), None]))
    };
    // In 7.3, `bi_private` does not point to the structure.
    let md_clone = || {
        let (bio, original) = (offset("md_io_clone", "bio_clone")?, offset("md_io_clone", "orig_bio")?);
        Some(function(kind::CLONE, Some(bio), [None, Some(original), None]))
    };
    let md_saved = || {
        let (end, private) = (offset("md_io", "orig_bi_end_io")?, offset("md_io", "orig_bi_private")?);
        Some(function(kind::REPLACED, None, [Some(end), Some(private), None]))
    };
    let chained = function(kind::CLONE, None, [None, None, None]);
    let direct = || {
        let waiter = types.find(|btf| btf.nested_offset("iomap_dio", &["submit", "waiter"]));
        let waits = offset("iomap_dio", "wait_for_completion").filter(|_| waiter.is_some());
        Some(function(kind::DIRECT, None, [Some(offset("iomap_dio", "iocb")?), waits, waiter]))
    };
    let old_direct = || Some(function(kind::DIRECT, None, [Some(offset("dio", "iocb")?), None, None]));
    let simple = || {
        let (bio, iocb) = (offset("iomap_dio_simple", "bio")?, offset("iomap_dio_simple", "iocb")?);
        Some(function(kind::DIRECT, Some(bio), [Some(iocb), None, None]))
    };
    /// `DIO_IS_SYNC`.
    const IS_SYNC: u32 = 2;
    let block_device = || {
        let flag = offset("blkdev_dio", "flags").map(|flags| (flags, IS_SYNC));
        let (flags, mask) = flag.or_else(|| types.find(|btf| btf.flag("blkdev_dio", "is_sync")))?;
        let iocb = offset("blkdev_dio", "iocb")?;
        Some(function(kind::BLOCK_DEVICE, None, [Some(iocb), Some(flags), Some(mask)]))
    };
    let block_device_async = || {
        let (bio, iocb) = (offset("blkdev_dio", "bio")?, offset("blkdev_dio", "iocb")?);
        // No flag: nobody waits.
        Some(function(kind::BLOCK_DEVICE, Some(bio), [Some(iocb), Some(iocb), Some(0)]))
    };
    let completion = Some(function(kind::COMPLETION, None, [None; 3]));
    let buffer_head = offset("buffer_head", "b_end_io")
        .map(|end| function(kind::BUFFER_HEAD, None, [Some(end), None, None]));
    let btrfs = || {
        let (bio, inode) = (offset("btrfs_bio", "bio")?, offset("btrfs_bio", "inode")?);
        let vfs_inode = offset("btrfs_inode", "vfs_inode")?;
        Some(function(kind::INODE, Some(bio), [Some(inode), Some(vfs_inode), None]))
    };
    let has_md = offset("md_io_clone", "orig_bio").or_else(|| offset("md_io", "orig_bi_end_io"));
    let raid5 = parent(offset("md_io_acct", "orig_bio")).or_else(|| has_md.map(|_| chained));
    let functions = [
        ("bio_chain_endio", "", Some(chained)),
        ("clone_endio", "dm_mod", dm_clone()),
        ("crypt_endio", "dm_crypt", parent(offset("dm_crypt_io", "base_bio"))),
        ("md_end_clone_io", "md_mod", md_clone()),
        ("md_end_io_acct", "md_mod", parent(offset("md_io_acct", "orig_bio"))),
        ("md_end_io", "md_mod", md_saved()),
        ("raid1_end_read_request", "raid1", parent(offset("r1bio", "master_bio"))),
        ("raid1_end_write_request", "raid1", parent(offset("r1bio", "master_bio"))),
        ("raid10_end_read_request", "raid10", parent(offset("r10bio", "master_bio"))),
        ("raid10_end_write_request", "raid10", parent(offset("r10bio", "master_bio"))),
        ("raid5_align_endio", "raid456", raid5),
        ("iomap_dio_bio_end_io", "", direct()),
        ("iomap_dio_simple_end_io", "", simple()),
        ("dio_bio_end_io", "", old_direct()),
        ("dio_bio_end_aio", "", old_direct()),
        ("blkdev_bio_end_io", "", block_device()),
        ("blkdev_bio_end_io_async", "", block_device_async()),
        ("blkdev_bio_end_io_simple", "", Some(function(kind::WAITER, None, [None; 3]))),
        ("submit_bio_wait_endio", "", completion),
        ("bio_wait_end_io", "", completion),
        ("end_bio_bh_io_sync", "", buffer_head),
        ("btrfs_simple_end_io", "btrfs", btrfs()),
        ("btrfs_orig_write_end_io", "btrfs", btrfs()),
        ("journal_end_buffer_io_sync", "jbd2", Some(class(class::JOURNAL))),
        ("xlog_bio_end_io", "xfs", Some(class(class::JOURNAL))),
        ("xfs_buf_bio_end_io", "xfs", Some(class(class::METADATA))),
        ("end_swap_bio_read", "", Some(class(class::SWAP))),
        // Since 7.3, instead of the former.
        ("swap_bio_read_end_io", "", Some(class(class::SWAP))),
        ("end_swap_bio_write", "", Some(class(class::SWAP))),
        ("io_complete_rw", "", Some(function(kind::IO_URING, None, [None; 3]))),
        ("io_complete_rw_iopoll", "", Some(function(kind::IO_URING, None, [None; 3]))),
        ("aio_complete_rw", "", Some(function(kind::LIBAIO, None, [None; 3]))),
    ];
    let known =
        |(name, module, function): (_, _, Option<_>)| Some(Known { name, module, function: function? });
    functions.into_iter().filter_map(known).collect()
}

/// Addresses from `/proc/kallsyms`. Empty if this process may not see them.
struct Addresses(BTreeMap<String, Vec<u64>>);

impl Addresses {
    /// Reads the addresses of these names.
    fn read(host: &Host, names: impl Iterator<Item = &'static str>) -> Self {
        let names: BTreeSet<_> = names.collect();
        let file = File::open(host.procfs.join("kallsyms"));
        let lines = file.into_iter().flat_map(|file| BufReader::new(file).lines()).map_while(Result::ok);
        let mut addresses: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (name, address) in lines.filter_map(|line| parse_symbol(&line, &names)) {
            addresses.entry(name).or_default().push(address);
        }
        Self(addresses)
    }

    fn of(&self, name: &str) -> impl Iterator<Item = u64> {
        self.0.get(name).into_iter().flatten().copied()
    }
}

/// Parses a line such as `ffffffffc0a31000 t clone_endio [dm_mod]`. Without the right to see addresses, all of them are 0.
fn parse_symbol(line: &str, names: &BTreeSet<&str>) -> Option<(String, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (address, name) = (words.next()?, words.nth(1)?);
    let address = u64::from_str_radix(address, 16).ok().filter(|address| *address != 0)?;
    names.contains(name).then(|| (name.to_owned(), address))
}

#[cfg(test)]
mod tests;
