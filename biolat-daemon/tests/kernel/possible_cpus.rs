//! More possible CPUs than any server has: maps and buffers with a value for each.

use crate::scale::reads_and_writes;

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn reads_and_writes_of_4_drives_on_1024_cpus() {
    reads_and_writes(1024, 4, 92);
}
