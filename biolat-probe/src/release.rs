//! The kernel's release, and the oldest one that biolat supports.

use std::io;

use biolat_system::host::Host;

/// Major and minor version of a Linux release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32);

impl Release {
    /// Returns the release of the host's kernel.
    pub fn of(host: &Host) -> io::Result<Self> {
        Self::parse(&host.kernel_release()?).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some(Self(numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// The oldest release with BPF ring buffers, `CAP_BPF` and `CAP_PERFMON`.
    pub const OLDEST_SUPPORTED: Self = Self(5, 8);

    /// Whether biolat supports this release; the error explains why not.
    pub fn supported(self) -> Result<(), String> {
        if self >= Self::OLDEST_SUPPORTED {
            return Ok(());
        }
        Err(format!(
            "this is Linux {}.{}, biolat requires {}.{} or later",
            self.0,
            self.1,
            Self::OLDEST_SUPPORTED.0,
            Self::OLDEST_SUPPORTED.1
        ))
    }

    /// The last release that charges BPF maps against `RLIMIT_MEMLOCK`.
    pub const LAST_WITH_MEMLOCK: Self = Self(5, 10);
}

#[cfg(test)]
mod tests {
    use super::Release;

    #[test]
    fn parses_releases_and_rejects_unsupported_ones() {
        assert_eq!(Release::parse("6.18.44-fc-v669\n"), Some(Release(6, 18)));
        assert_eq!(Release::parse("5.10.0"), Some(Release(5, 10)));
        assert_eq!(Release::parse("linux"), None);
        assert_eq!(Release(5, 8).supported(), Ok(()));
        assert_eq!(Release(5, 4).supported().unwrap_err(), "this is Linux 5.4, biolat requires 5.8 or later");
    }
}
