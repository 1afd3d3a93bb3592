//! Files that another program changes while they are in use.

use std::{fs, os::unix::fs::FileExt as _};

use super::{devices, folder, restarted, started};
use crate::tests::host::{difference, sums};

/// Whatever happens to the file, the next interval puts everything in the other file.
#[test]
fn rewrites_changed_files() {
    let truncate: fn(&fs::File) = |file| file.set_len(0).unwrap();
    let shorten: fn(&fs::File) = |file| file.set_len(100).unwrap();
    let append: fn(&fs::File) = |file| file.write_all_at(b"x", file.metadata().unwrap().len()).unwrap();
    // Like a truncation just before a write, which restores the length.
    let blank: fn(&fs::File) = |file| {
        let length = file.metadata().unwrap().len();
        file.set_len(0).unwrap();
        file.set_len(length).unwrap();
    };
    for change in [truncate, shorten, append, blank] {
        let (_folder, path) = folder();
        let (mut host, mut daemon) = started(&path);
        let first = daemon.collect(&mut host);
        for number in 1..=20 {
            host.wait(5.0).io("sda", "read", number, 0.001);
            daemon.collect(&mut host);
        }
        let mut last = first.clone();
        for _ in 0..2 {
            change(&daemon.file.files[daemon.file.in_use]);
            for number in 1..=3 {
                host.wait(5.0).io("sda", "read", number, 0.001);
                last = daemon.collect(&mut host);
            }
        }
        drop(daemon);
        let daemon = restarted(&path, &host);
        assert_eq!(devices(sums(daemon.periods().into_iter())), devices(difference(&first, &last)));
    }
}
