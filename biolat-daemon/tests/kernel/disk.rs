//! The disk that holds temporary files, whose interrupts are real.

use std::fs;

use crate::{
    counts::audit_is_exact,
    support::{Folder, load, run},
};

#[test]
#[ignore = "needs root and a disk: cargo xtask test"]
fn the_audit_closes_the_books() {
    let folder = Folder::new("disk", false);
    let file = folder.0.join("file");
    fs::write(&file, vec![1; 160 << 20]).unwrap();
    run("sync", &[]);
    audit_is_exact(&disk_of(&folder), || {
        let target = load::Target::open(&file);
        target.read(60_000);
        target.write(2_000);
        target.flush();
    });
}

/// The disk that a folder is on, itself or one of its partitions.
fn disk_of(folder: &Folder) -> String {
    let number = run("stat", &["--format=%Hd:%Ld", folder.0.to_str().unwrap()]);
    let path = fs::canonicalize(format!("/sys/dev/block/{}", number.trim())).unwrap();
    let disk = if path.join("partition").exists() { path.parent().unwrap() } else { &path };
    assert!(disk.join("mq").is_dir(), "{} has no requests of its own", disk.display());
    disk.file_name().unwrap().to_str().unwrap().to_owned()
}
