//! Whether I/O can be told by workload: which cgroups the kernel charges, and whether pods have names.

use std::{fs, io, path::Path};

use super::finding::Finding;
use crate::cgroup::PodNames;

const SUBJECT: &str = "workloads";

/// Which cgroups the kernel charges with I/O.
pub(super) fn charged(kernel_knows: bool, sysfs: &Path) -> Finding {
    const ID: &str = "workloads.cgroups";
    let root = sysfs.join("fs/cgroup");
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    let has_io = |controllers: &str| controllers.split_whitespace().any(|controller| controller == "io");
    if !kernel_knows {
        return Finding::note(
            ID,
            SUBJECT,
            "this kernel does not tell the cgroup of an I/O: it is built without CONFIG_BLK_CGROUP",
        );
    }
    if root.join("blkio").is_dir() {
        return Finding::ok(ID, SUBJECT, "by cgroup v1 (blkio); buffered writes are the kernel's");
    }
    if !root.join("cgroup.controllers").exists() {
        return Finding::note(ID, SUBJECT, format!("no cgroups in {}", root.display()))
            .step("mount the cgroup file system there");
    }
    // Only the root has no such file, or a cgroup that a container sees as its root.
    if !has_io(&read("cgroup.controllers")) && root.join("cgroup.type").exists() {
        return Finding::ok(
            ID,
            SUBJECT,
            "by cgroup v2; which cgroups are charged cannot be seen from this container",
        );
    }
    if has_io(&read("cgroup.subtree_control")) {
        return Finding::ok(ID, SUBJECT, "by cgroup v2, where the io controller is on");
    }
    Finding::note(
        ID,
        SUBJECT,
        "the io controller is off: all I/O is charged to the root, and shown as the kernel's",
    )
    .command(format!("echo +io > {}", root.join("cgroup.subtree_control").display()))
    .step("with systemd, for good: DefaultIOAccounting=yes in /etc/systemd/system.conf")
}

/// Whether the names of pods are known; nothing where no pod runs.
pub(super) fn pods(directory: &Path) -> Option<Finding> {
    const ID: &str = "workloads.pods";
    let shown = directory.display();
    match PodNames::read(directory) {
        Ok(_) => Some(Finding::ok(ID, SUBJECT, format!("names of pods from {shown}"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(
            Finding::note(ID, SUBJECT, format!("pods are shown by their UIDs: cannot read {shown}: {error}"))
                .step("mount it read-only"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::finding::Verdict::{Note, Ok as Fine},
        charged, pods,
    };
    use crate::device::tree::Tree;

    #[test]
    fn each_kind_of_hierarchy() {
        for (name, files, expected) in [
            ("none", vec![], (Note, "no cgroups in ")),
            ("v1", vec![("fs/cgroup/blkio/tasks", "")], (Fine, "cgroup v1")),
            (
                "on",
                vec![
                    ("fs/cgroup/cgroup.controllers", "cpu io memory\n"),
                    ("fs/cgroup/cgroup.subtree_control", "cpu io\n"),
                ],
                (Fine, "the io controller is on"),
            ),
            (
                "off",
                vec![
                    ("fs/cgroup/cgroup.controllers", "cpu io memory\n"),
                    ("fs/cgroup/cgroup.subtree_control", "cpu memory\n"),
                ],
                (Note, "the io controller is off"),
            ),
            (
                "container",
                vec![("fs/cgroup/cgroup.controllers", "cpu\n"), ("fs/cgroup/cgroup.type", "domain\n")],
                (Fine, "cannot be seen from this container"),
            ),
        ] {
            let tree = Tree::new(&format!("workloads-{name}"), &[]);
            for (path, text) in files {
                tree.write(path, text.as_bytes());
            }
            let finding = charged(true, &tree.0);
            assert_eq!(finding.verdict, expected.0, "{name}");
            assert!(finding.text.contains(expected.1), "{name}: {}", finding.text);
            assert_eq!(charged(false, &tree.0).verdict, Note);
        }
    }

    #[test]
    fn without_pods_nothing_is_said() {
        let tree = Tree::new("pods", &[]);
        assert_eq!(pods(&tree.0.join("containers")), None);
        tree.write("containers/a.log", b"");
        assert_eq!(pods(&tree.0.join("containers")).unwrap().verdict, Fine);
    }
}
