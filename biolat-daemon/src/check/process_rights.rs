//! Capabilities and restrictions of this process, read from `/proc/self`.

use std::{fs, io, path::Path};

use caps::{Capability, CapsHashSet};

/// Capabilities and restrictions of a process.
#[derive(Clone, Debug)]
pub(super) struct ProcessRights {
    /// User id.
    pub(super) user: u32,
    pub(super) effective: CapsHashSet,
    /// The bounding set: the only capabilities that the process can ever gain.
    pub(super) bounding: CapsHashSet,
    pub(super) no_new_privs: bool,
    /// Whether the process is in the initial user namespace, where capabilities apply to the whole kernel.
    pub(super) in_first_namespace: bool,
}

impl ProcessRights {
    pub(super) fn read(procfs: &Path) -> io::Result<Self> {
        let own = procfs.join("self");
        let status = fs::read_to_string(own.join("status"))?;
        let users = fs::read_to_string(own.join("uid_map"))?;
        Self::from_files(&status, &users).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn from_files(status: &str, users: &str) -> Option<Self> {
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value?.split_whitespace().next()
        };
        let set = |name| {
            let bits = u64::from_str_radix(field(name)?, 16).ok()?;
            let has = |capability: &Capability| bits & capability.bitmask() != 0;
            Some(caps::all().into_iter().filter(has).collect::<CapsHashSet>())
        };
        Some(Self {
            user: field("Uid")?.parse().ok()?,
            effective: set("CapEff")?,
            bounding: set("CapBnd")?,
            no_new_privs: field("NoNewPrivs")? != "0",
            in_first_namespace: users.split_whitespace().eq(["0", "0", "4294967295"]),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::ProcessRights;

    const ALL: &str = "000001ffffffffff";
    const NONE: &str = "0000000000000000";

    fn process(user: u32, effective: &str, bounding: &str, no_new_privs: u8, users: &str) -> ProcessRights {
        let status = format!(
            "Name:\tbiolat\nUid:\t{user}\t{user}\t{user}\t{user}\nCapEff:\t{effective}\nCapBnd:\t{bounding}\n\
             NoNewPrivs:\t{no_new_privs}\n"
        );
        ProcessRights::from_files(&status, users).unwrap()
    }

    const INITIAL_NAMESPACE: &str = "         0          0 4294967295\n";

    pub(in crate::check) fn root() -> ProcessRights {
        process(0, ALL, ALL, 0, INITIAL_NAMESPACE)
    }

    pub(in crate::check) fn nobody() -> ProcessRights {
        process(65534, NONE, ALL, 0, INITIAL_NAMESPACE)
    }

    pub(in crate::check) fn with_perfmon_alone() -> ProcessRights {
        process(65534, "0000004000000000", ALL, 0, INITIAL_NAMESPACE)
    }

    pub(in crate::check) fn in_a_container() -> ProcessRights {
        process(0, "00000000a80425fb", "00000000a80425fb", 0, INITIAL_NAMESPACE)
    }

    pub(in crate::check) fn without_new_privileges() -> ProcessRights {
        process(65532, NONE, ALL, 1, INITIAL_NAMESPACE)
    }

    pub(in crate::check) fn in_a_namespace() -> ProcessRights {
        process(0, ALL, ALL, 0, "         0     100000      65536\n")
    }

    #[test]
    fn parses_status_and_uid_map() {
        use caps::Capability::{CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN};
        assert!(root().effective.contains(&CAP_SYS_ADMIN) && root().in_first_namespace);
        let some = with_perfmon_alone();
        assert!(some.effective.contains(&CAP_PERFMON) && !some.effective.contains(&CAP_BPF));
        assert!(without_new_privileges().no_new_privs && !nobody().no_new_privs && nobody().user == 65534);
        assert!(!in_a_namespace().in_first_namespace && !in_a_container().bounding.contains(&CAP_BPF));
        assert!(ProcessRights::from_files("Name: x\n", INITIAL_NAMESPACE).is_none());
        ProcessRights::read(std::path::Path::new("/proc")).unwrap();
    }
}
