//! Why a kernel refuses the probe, and what to do about it.

use std::{fmt, fs, io, path::Path};

/// The first two numbers of a kernel's release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32);

impl Release {
    /// Of the running kernel.
    pub fn of_this_kernel(procfs: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(procfs.join("sys/kernel/osrelease"))?;
        Self::parse(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some(Self(numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// Before this there is no ring buffer, in which the probe speaks, and there are no such capabilities.
    pub const FIRST: Self = Self(5, 8);

    /// Whether biolat runs on it.
    pub fn suffices(self) -> Result<(), String> {
        if self >= Self::FIRST {
            return Ok(());
        }
        Err(format!(
            "this is Linux {}.{}, and biolat takes {}.{} or later",
            self.0,
            self.1,
            Self::FIRST.0,
            Self::FIRST.1
        ))
    }

    /// Up to this, BPF maps counted against `RLIMIT_MEMLOCK`.
    pub const LAST_WITH_MEMLOCK: Self = Self(5, 10);
}

/// What the kernel did not do, why, and what to do about it, if that is known.
#[derive(Debug)]
pub struct Refusal {
    /// What failed, and the kernel's reason.
    pub what: String,
    /// What to do.
    pub remedy: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.remedy.iter().try_for_each(|remedy| write!(f, ": {remedy}"))
    }
}

impl std::error::Error for Refusal {}

/// What to add to an error of the kernel's, given what is known of the process.
#[must_use]
pub fn remedy(error: &io::Error, release: Release, memlock: u64) -> Option<String> {
    let code = error.raw_os_error()?;
    if release <= Release::LAST_WITH_MEMLOCK
        && memlock != libc::RLIM_INFINITY
        && matches!(code, libc::EPERM | libc::ENOMEM)
    {
        return Some(format!(
            "this kernel counts BPF maps against the limit of locked memory, which is {} KiB here: raise it with \
             `ulimit -l unlimited` or, in a systemd unit, LimitMEMLOCK=infinity",
            memlock / 1024
        ));
    }
    match code {
        libc::EPERM => Some(
            "the kernel refused although the capabilities are there: in a container, see that the seccomp profile \
             allows bpf(2) and that the container is not in a user namespace of its own; else see the kernel's \
             lockdown mode"
                .to_owned(),
        ),
        libc::ENOMEM => Some("the kernel has no memory left for the probe's maps".to_owned()),
        libc::EMFILE => Some(
            "this process may not have as many files open as the probe has maps: raise the limit with `ulimit -n 65536` \
             or, in a systemd unit, LimitNOFILE=65536"
                .to_owned(),
        ),
        libc::ENOSYS => Some("this kernel is built without CONFIG_BPF_SYSCALL".to_owned()),
        _ => None,
    }
}

/// Raises the limit of locked memory as far as may be, and returns what it then is.
pub(super) fn raise_memlock() -> u64 {
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both point to valid structs; a refusal changes nothing.
    unsafe {
        libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited);
        libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut now);
    }
    now.rlim_cur
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Release, remedy};

    #[test]
    fn releases() {
        assert_eq!(Release::parse("6.18.44-fc-v669\n"), Some(Release(6, 18)));
        assert_eq!(Release::parse("5.10.0"), Some(Release(5, 10)));
        assert_eq!(Release::parse("linux"), None);
        assert_eq!(Release(5, 8).suffices(), Ok(()));
        assert_eq!(Release(5, 4).suffices().unwrap_err(), "this is Linux 5.4, and biolat takes 5.8 or later");
    }

    #[test]
    fn the_memory_lock_limit_of_old_kernels() {
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        let text = remedy(&refused, Release(5, 10), 64 * 1024).unwrap();
        assert!(text.contains("64 KiB") && text.contains("ulimit -l unlimited"), "{text}");
        let text = remedy(&refused, Release(5, 11), 64 * 1024).unwrap();
        assert!(text.contains("seccomp"), "{text}");
        assert_eq!(remedy(&io::Error::from_raw_os_error(libc::EINVAL), Release(5, 10), 0), None);
    }
}
