//! More possible CPUs than any server has: maps and buffers hold a value for each CPU.

use crate::{
    scale::check_reads_and_writes,
    support::kernel::{self, Ability},
};

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn counts_4_drives_on_1024_cpus() {
    if kernel::is_skipped_without(Ability::LargeValues) {
        return;
    }
    check_reads_and_writes(1024, 4, 92);
}
