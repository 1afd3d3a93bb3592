//! The names of processes: from procfs or, for a process that has ended, the name it had.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::PathBuf,
};

use biolat_model::text::sanitize;

/// A process that does I/O.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Thread group id; 0 if unknown.
    pub pid: u32,
    /// Its `comm`; empty if unknown.
    pub name: String,
    /// Whether it is a kernel thread.
    pub is_kernel: bool,
}

/// The names of the processes seen lately.
pub(super) struct Names {
    procfs: PathBuf,
    known: HashMap<u32, Process>,
    /// Looked up since the last [`forget_others`](Self::forget_others).
    seen: BTreeSet<u32>,
}

impl Names {
    pub(super) fn new(procfs: PathBuf) -> Self {
        Self { procfs, known: HashMap::new(), seen: BTreeSet::new() }
    }

    /// Returns a process. `captured` is the name that the start program captured. A process can change its name, so procfs is read
    /// again after each [`forget_others`](Self::forget_others).
    pub(super) fn find(&mut self, pid: u32, captured: impl FnOnce() -> Option<String>) -> Process {
        if pid == 0 {
            return Process::default();
        }
        if self.seen.insert(pid)
            && let Some(process) = self.read(pid)
        {
            self.known.insert(pid, process);
        }
        let ended =
            || Process { pid, name: sanitize::text(&captured().unwrap_or_default()), is_kernel: false };
        self.known.entry(pid).or_insert_with(ended).clone()
    }

    /// Forgets all processes that were not looked up since the last call.
    pub(super) fn forget_others(&mut self) {
        self.known.retain(|pid, _| self.seen.contains(pid));
        self.seen.clear();
    }

    fn read(&self, pid: u32) -> Option<Process> {
        let stat = fs::read(self.procfs.join(pid.to_string()).join("stat")).ok()?;
        parse(pid, &String::from_utf8_lossy(&stat))
    }
}

/// Parses `/proc/PID/stat`: `1234 (name) S …`. The name can contain parentheses.
fn parse(pid: u32, stat: &str) -> Option<Process> {
    /// `PF_KTHREAD` in the ninth field.
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let (_, rest) = stat.split_once('(')?;
    let (name, fields) = rest.rsplit_once(')')?;
    let flags: u64 = fields.split_ascii_whitespace().nth(6)?.parse().ok()?;
    Some(Process { pid, name: sanitize::text(name), is_kernel: flags & KERNEL_THREAD != 0 })
}

#[cfg(test)]
mod tests {
    use biolat_testing::Tree;

    use super::{Names, Process, parse};

    const USER: &str = "77 (a) (b) x) S 1 77 77 0 -1 4194560 1056 0";
    const KERNEL: &str = "9 (kworker/u4:0-writeback) I 2 0 0 0 -1 69238880 0 0";

    fn process(pid: u32, name: &str, is_kernel: bool) -> Process {
        Process { pid, name: name.to_owned(), is_kernel }
    }

    #[test]
    fn parses_stat() {
        assert_eq!(parse(77, USER), Some(process(77, "a) (b) x", false)));
        assert_eq!(parse(9, KERNEL), Some(process(9, "kworker/u4:0-writeback", true)));
        assert_eq!((parse(9, ""), parse(9, "9 (x) S 1")), (None, None));
        assert_eq!(parse(9, &USER.replace("a)", "\u{1b}[2J")).unwrap().name, "\u{fffd}[2J (b) x");
    }

    #[test]
    fn a_process_that_has_ended_keeps_its_name() {
        let tree = Tree::new("processes", &[]);
        let path = tree.0.join("77/stat");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, USER).unwrap();
        let mut names = Names::new(tree.0.clone());
        let expected = process(77, "a) (b) x", false);
        assert_eq!(names.find(77, || None), expected);
        std::fs::remove_file(&path).unwrap();
        names.forget_others();
        assert_eq!(names.find(77, || Some("other".into())), expected);
        assert_eq!(names.find(78, || Some("short".into())), process(78, "short", false));
        names.forget_others();
        names.forget_others();
        assert_eq!(names.find(78, || None), process(78, "", false));
        assert_eq!(names.find(0, || Some("swapper".into())), Process::default());
    }
}
