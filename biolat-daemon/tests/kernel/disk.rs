//! The disk that holds the temporary files; it has real interrupts.

use std::fs;

use crate::{
    counts::assert_audit_is_exact,
    support::{Folder, load, run},
};

#[test]
#[ignore = "needs root and a disk: cargo xtask test"]
fn audit_on_disk_is_exact() {
    let folder = Folder::new("disk", false);
    let file = folder.0.join("file");
    fs::write(&file, vec![1; 160 << 20]).unwrap();
    run("sync", &[]);
    assert_audit_is_exact(&disk_of(&folder), || {
        let target = load::Target::open(&file);
        target.read(60_000);
        target.write(2_000);
        target.flush();
    });
}

/// Returns the whole disk that a directory is on.
fn disk_of(folder: &Folder) -> String {
    let number = run("stat", &["--format=%Hd:%Ld", folder.0.to_str().unwrap()]);
    let path = fs::canonicalize(format!("/sys/dev/block/{}", number.trim())).unwrap();
    let disk = if path.join("partition").exists() { path.parent().unwrap() } else { &path };
    assert!(disk.join("mq").is_dir(), "{} is not request-based", disk.display());
    disk.file_name().unwrap().to_str().unwrap().to_owned()
}
