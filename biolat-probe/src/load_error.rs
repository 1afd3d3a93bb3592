//! Why the kernel rejected the probe, and the remedy.

use std::{fmt, io};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The probe could not be loaded or attached.
#[derive(Debug)]
pub struct LoadError {
    /// The step that failed and the kernel's error.
    pub what: String,
    /// The remedy, if one is known.
    pub remedy: Option<String>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.remedy.iter().try_for_each(|remedy| write!(f, ": {remedy}"))
    }
}

impl std::error::Error for LoadError {}

/// Returns the remedy for an error of bpf(2), if one is known. `memlock` is the limit on locked memory that applies to maps.
#[must_use]
pub fn remedy(error: &io::Error, memlock: u64) -> Option<String> {
    let code = error.raw_os_error()?;
    if memlock != libc::RLIM_INFINITY && matches!(code, libc::EPERM | libc::ENOMEM) {
        return Some(format!(
            "this kernel charges BPF maps against the limit of locked memory, which is {} KiB: raise it with \
             `ulimit -l unlimited` or, in a systemd unit, LimitMEMLOCK=infinity",
            memlock / 1024
        ));
    }
    match code {
        libc::EPERM => Some(
            "the kernel refused although the process has the capabilities: in a container, check that the seccomp \
             profile allows bpf(2) and that the container has no user namespace of its own; otherwise check the \
             kernel's lockdown mode"
                .to_owned(),
        ),
        libc::ENOMEM => Some("the kernel has no memory left for the probe's maps".to_owned()),
        libc::EMFILE => Some(
            "the limit of open files is lower than the number of the probe's maps: raise it with `ulimit -n 65536` \
             or, in a systemd unit, LimitNOFILE=65536"
                .to_owned(),
        ),
        libc::ENOSYS => Some("this kernel is built without CONFIG_BPF_SYSCALL".to_owned()),
        _ => None,
    }
}

/// The line of the verifier's log with the reason. Only statistics follow it.
pub(super) fn reason_in<'log>(lines: &[&'log str]) -> Option<&'log str> {
    const STATISTICS: [&str; 3] = ["verification time", "stack depth", "processed"];
    let mut lines = lines.iter().rev().map(|line| line.trim());
    lines.find(|line| !line.is_empty() && !STATISTICS.iter().any(|start| line.starts_with(start)))
}

/// Removes the limit on locked memory if the process is allowed to. Returns the limit in force, in bytes.
pub(super) fn raise_memlock() -> u64 {
    // Without CAP_SYS_RESOURCE this fails and changes nothing.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    getrlimit(Resource::Memlock).current.unwrap_or(libc::RLIM_INFINITY)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{reason_in, remedy};

    #[test]
    fn suggests_raising_memlock_where_it_applies() {
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        let text = remedy(&refused, 64 * 1024).unwrap();
        assert!(text.contains("64 KiB") && text.contains("ulimit -l unlimited"), "{text}");
        let text = remedy(&refused, libc::RLIM_INFINITY).unwrap();
        assert!(text.contains("seccomp"), "{text}");
        assert_eq!(remedy(&io::Error::from_raw_os_error(libc::EINVAL), 0), None);
    }

    #[test]
    fn reason_precedes_statistics() {
        let log = [
            "from 7 to 9: R0=inv0",
            "combined stack size of 4 calls is 544. Too large",
            "verification time 12515879 usec",
            "stack depth 120+24",
            "processed 44472 insns (limit 1000000) max_states_per_insn 13",
            "",
        ];
        assert_eq!(reason_in(&log), Some(log[1]));
        assert_eq!(reason_in(&log[2..]), None);
    }
}
