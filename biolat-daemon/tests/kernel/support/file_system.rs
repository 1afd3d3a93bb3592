//! File systems that not every kernel has.

use std::{
    fs,
    process::{Command, Stdio},
};

/// Whether the kernel has a file system, perhaps as a module.
pub(crate) fn is_there(name: &str) -> bool {
    let _ = Command::new("modprobe").args(["-q", name]).stderr(Stdio::null()).status();
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    known.lines().any(|line| line.split_whitespace().next_back() == Some(name))
}
