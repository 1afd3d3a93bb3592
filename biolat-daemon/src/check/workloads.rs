//! Whether I/O can be told by workload: which cgroups the kernel charges, and whether pods have names.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use biolat_model::{cgroup::PodNames, shell, text::sanitize};

use super::finding::Finding;

const SUBJECT: &str = "workloads";

/// The most cgroups that are named.
const MOST: usize = 4;

/// What fixes a controller that is off, as a step.
const WITH_SYSTEMD: &str = "with systemd, for good: DefaultIOAccounting=yes in /etc/systemd/system.conf";

/// Which cgroups the kernel charges with I/O.
pub(super) fn charged(kernel_knows: bool, sysfs: &Path) -> Finding {
    const ID: &str = "workloads.cgroups";
    let root = sysfs.join("fs/cgroup");
    if !kernel_knows {
        return Finding::note(
            ID,
            SUBJECT,
            "this kernel does not tell the cgroup of an I/O: it is built without CONFIG_BLK_CGROUP",
        );
    }
    if root.join("blkio").is_dir() {
        return Finding::ok(
            ID,
            SUBJECT,
            "by cgroup v1 (blkio); buffered writes are charged to the root cgroup",
        );
    }
    if !root.join("cgroup.controllers").exists() {
        return Finding::note(ID, SUBJECT, format!("no cgroups in {}", root.display()))
            .step("mount the cgroup file system there");
    }
    // The host's root has no such file; what a container sees as its root has one.
    if root.join("cgroup.type").exists() {
        let text = match has_io(&root.join("cgroup.controllers")) {
            true => "by cgroup v2; the io controller is on for this container",
            false => "by cgroup v2; which cgroups are charged cannot be seen from this container",
        };
        return Finding::ok(ID, SUBJECT, text);
    }
    if !has_io(&root.join(ENABLED)) {
        return Finding::note(
            ID,
            SUBJECT,
            "the io controller is off: all I/O is charged to the root cgroup, and not told apart",
        )
        .command(turned_on(&[&root]))
        .step(WITH_SYSTEMD);
    }
    let ancestors = charged_ancestors(&root);
    if ancestors.is_empty() {
        return Finding::ok(ID, SUBJECT, "by cgroup v2, where the io controller is on");
    }
    let (shown, others) = ancestors.split_at(ancestors.len().min(MOST));
    let names: Vec<_> = shown.iter().map(|path| format!("/{}", relative(path, &root))).collect();
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    Finding::note(
        ID,
        SUBJECT,
        format!(
            "by cgroup v2; cgroups below these have no io controller, and their I/O is charged to these: {}{more}",
            names.join(", ")
        ),
    )
    .command(turned_on(shown))
    .step(WITH_SYSTEMD)
}

/// The file that says which controllers the children of a cgroup have.
const ENABLED: &str = "cgroup.subtree_control";

fn has_io(file: &Path) -> bool {
    let controllers = fs::read_to_string(file).unwrap_or_default();
    controllers.split_whitespace().any(|controller| controller == "io")
}

/// The cgroups that have the io controller and children without it, the outermost first: they are charged with the I/O of all
/// cgroups below.
fn charged_ancestors(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut with_io) = (Vec::new(), vec![root.to_owned()]);
    while !with_io.is_empty() {
        let mut below = Vec::new();
        for cgroup in with_io {
            let mut children = children(&cgroup);
            if has_io(&cgroup.join(ENABLED)) {
                below.append(&mut children);
            } else if !children.is_empty() {
                found.push(cgroup);
            }
        }
        below.sort();
        with_io = below;
    }
    found
}

fn children(cgroup: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cgroup).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn relative(path: &Path, root: &Path) -> String {
    sanitize::text(&path.strip_prefix(root).unwrap_or(path).to_string_lossy())
}

/// The command that enables the io controller for the children of cgroups.
fn turned_on(cgroups: &[impl AsRef<Path>]) -> String {
    let files = cgroups.iter().map(|cgroup| cgroup.as_ref().join(ENABLED));
    let files: Vec<_> = files.map(|file| shell::quoted(&file.display().to_string()).into_owned()).collect();
    format!("echo +io | tee {}", files.join(" "))
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
    use biolat_testing::Tree;

    use super::{
        super::finding::Verdict::{Note, Ok as Fine},
        charged, pods,
    };

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
                (Note, "all I/O is charged to the root cgroup"),
            ),
            (
                "below",
                vec![
                    ("fs/cgroup/cgroup.controllers", "cpu io memory\n"),
                    ("fs/cgroup/cgroup.subtree_control", "cpu io\n"),
                    ("fs/cgroup/init.scope/cgroup.subtree_control", "\n"),
                    ("fs/cgroup/kubepods.slice/cgroup.subtree_control", "io\n"),
                    ("fs/cgroup/kubepods.slice/a.slice/cgroup.subtree_control", "\n"),
                    ("fs/cgroup/kubepods.slice/a.slice/b.scope/cgroup.subtree_control", "\n"),
                    ("fs/cgroup/system.slice/cgroup.subtree_control", "memory pids\n"),
                    ("fs/cgroup/system.slice/cron.service/cgroup.subtree_control", "\n"),
                    ("fs/cgroup/system.slice/cron.service/inner/cgroup.subtree_control", "\n"),
                ],
                (
                    Note,
                    "cgroups below these have no io controller, and their I/O is charged to these: /system.slice, \
                     /kubepods.slice/a.slice",
                ),
            ),
            (
                "container",
                vec![("fs/cgroup/cgroup.controllers", "cpu\n"), ("fs/cgroup/cgroup.type", "domain\n")],
                (Fine, "cannot be seen from this container"),
            ),
            // A pod's container on a node where kubelet has enabled the controller, as seen in its own cgroup namespace.
            (
                "pod",
                vec![
                    ("fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids\n"),
                    ("fs/cgroup/cgroup.subtree_control", "\n"),
                    ("fs/cgroup/cgroup.type", "domain\n"),
                ],
                (Fine, "the io controller is on for this container"),
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
