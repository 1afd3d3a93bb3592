//! Checks whether I/O can be attributed to workloads: which cgroups the kernel charges, and whether pod names are known.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use biolat_model::{cgroup::PodNames, shell, text::sanitize};

use super::finding::Finding;

const SUBJECT: &str = "workloads";

/// Maximum number of cgroups that a finding lists.
const MAX_LISTED: usize = 4;

/// Permanent fix for an io controller that is off.
const WITH_SYSTEMD: &str = "permanently, with systemd: DefaultIOAccounting=yes in /etc/systemd/system.conf";

/// Checks which cgroups the kernel charges with I/O.
pub(super) fn charged_cgroups(has_blk_cgroup: bool, root: &Path) -> Finding {
    const ID: &str = "workloads.cgroups";
    if !has_blk_cgroup {
        return Finding::note(
            ID,
            SUBJECT,
            "this kernel does not record the cgroup of an I/O: it was built without CONFIG_BLK_CGROUP",
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
    // The real root cgroup has no such file; the root of a container's cgroup namespace has one.
    if root.join("cgroup.type").exists() {
        let text = match has_io(&root.join("cgroup.controllers")) {
            true => "by cgroup v2; the io controller is on for this container",
            false => "by cgroup v2; this container cannot see which cgroups are charged",
        };
        return Finding::ok(ID, SUBJECT, text);
    }
    if !has_io(&root.join(ENABLED)) {
        return Finding::note(ID, SUBJECT, "the io controller is off: all I/O is charged to the root cgroup")
            .command(enable_command(&[root]))
            .step(WITH_SYSTEMD);
    }
    let ancestors = charged_ancestors(root);
    if ancestors.is_empty() {
        return Finding::ok(ID, SUBJECT, "by cgroup v2; the io controller is on");
    }
    let (shown, others) = ancestors.split_at(ancestors.len().min(MAX_LISTED));
    let names: Vec<_> = shown.iter().map(|path| format!("/{}", relative(path, root))).collect();
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    Finding::note(
        ID,
        SUBJECT,
        format!(
            "by cgroup v2; these are charged with the I/O of all cgroups below them, which have no io controller: {}{more}",
            names.join(", ")
        ),
    )
    .command(enable_command(shown))
    .step(WITH_SYSTEMD)
}

/// The file that lists the controllers of a cgroup's children.
const ENABLED: &str = "cgroup.subtree_control";

fn has_io(file: &Path) -> bool {
    let controllers = fs::read_to_string(file).unwrap_or_default();
    controllers.split_whitespace().any(|controller| controller == "io")
}

/// Returns the cgroups that have the io controller but whose children do not, outermost first. They are charged with the I/O of
/// all cgroups below them.
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

/// Returns a command that enables the io controller for the children of these cgroups.
fn enable_command(cgroups: &[impl AsRef<Path>]) -> String {
    let files = cgroups.iter().map(|cgroup| cgroup.as_ref().join(ENABLED));
    let files: Vec<_> = files.map(|file| shell::quoted(&file.display().to_string()).into_owned()).collect();
    format!("echo +io | tee {}", files.join(" "))
}

/// Checks whether the time is known for which workloads are stalled on I/O.
pub(super) fn stalled_time(root: &Path, procfs: &Path) -> Finding {
    const ID: &str = "workloads.stalled";
    let unknown = |why: String| {
        Finding::note(
            ID,
            SUBJECT,
            format!("how long they wait for I/O, including the wait for io.max, is not known: {why}"),
        )
    };
    if !root.join("cgroup.controllers").exists() {
        return unknown(format!("no cgroup v2 in {}", root.display()))
            .step("with systemd, boot with systemd.unified_cgroup_hierarchy=1");
    }
    if root.join("cgroup.type").exists() {
        return unknown(format!("{} has only the cgroups of this container", root.display()))
            .step("mount the host's /sys/fs/cgroup read-only, and set --cgroupfs (in the chart: cgroupPressure: true)");
    }
    if !procfs.join("pressure/io").exists() {
        return unknown("the kernel does not record pressure".to_owned()).step("boot with psi=1");
    }
    Finding::ok(ID, SUBJECT, "how long they wait for I/O is known from io.pressure")
}

/// Checks whether pod names are known; `None` if there are no pods on this host.
pub(super) fn pods(directory: &Path) -> Option<Finding> {
    const ID: &str = "workloads.pods";
    let shown = directory.display();
    match PodNames::read(directory) {
        Ok(_) => Some(Finding::ok(ID, SUBJECT, format!("pod names from {shown}"))),
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
        charged_cgroups, pods, stalled_time,
    };

    #[test]
    fn reports_charged_cgroups_by_hierarchy() {
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
                    "charged with the I/O of all cgroups below them, which have no io controller: /system.slice, \
                     /kubepods.slice/a.slice",
                ),
            ),
            (
                "container",
                vec![("fs/cgroup/cgroup.controllers", "cpu\n"), ("fs/cgroup/cgroup.type", "domain\n")],
                (Fine, "this container cannot see"),
            ),
            // The view from a pod's cgroup namespace on a node where kubelet has enabled the controller.
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
            let root = tree.0.join("fs/cgroup");
            let finding = charged_cgroups(true, &root);
            assert_eq!(finding.verdict, expected.0, "{name}");
            assert!(finding.text.contains(expected.1), "{name}: {}", finding.text);
            assert_eq!(charged_cgroups(false, &root).verdict, Note);
        }
    }

    #[test]
    fn reports_whether_stalled_time_is_known() {
        let tree = Tree::new("workloads-stalled", &[]);
        let (root, procfs) = (tree.0.join("fs/cgroup"), tree.0.join("proc"));
        for (file, verdict, expected) in [
            ("fs/cgroup/blkio/tasks", Note, "no cgroup v2 in "),
            ("fs/cgroup/cgroup.controllers", Note, "does not record pressure"),
            ("proc/pressure/io", Fine, "is known from io.pressure"),
            ("fs/cgroup/cgroup.type", Note, "only the cgroups of this container"),
        ] {
            tree.write(file, b"");
            let finding = stalled_time(&root, &procfs);
            assert_eq!(finding.verdict, verdict, "{file}");
            assert!(finding.text.contains(expected), "{file}: {}", finding.text);
        }
    }

    #[test]
    fn reports_nothing_without_pods() {
        let tree = Tree::new("pods", &[]);
        assert_eq!(pods(&tree.0.join("containers")), None);
        tree.write("containers/a.log", b"");
        assert_eq!(pods(&tree.0.join("containers")).unwrap().verdict, Fine);
    }
}
