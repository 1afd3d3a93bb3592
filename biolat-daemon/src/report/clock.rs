//! The time of day, as the clock on the wall has it.

/// `21:45:03` where this host is; the seconds are since the epoch.
#[must_use]
pub(super) fn local(seconds: f64) -> String {
    let time = seconds as libc::time_t;
    // SAFETY: zeros are valid for a struct of numbers and a pointer that is not read; the call fills it or leaves it.
    let parts = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const time, &raw mut parts);
        parts
    };
    format!("{:02}:{:02}:{:02}", parts.tm_hour, parts.tm_min, parts.tm_sec)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// As `date` has it, whatever the time zone is here.
    #[test]
    fn as_date_has_it() {
        let date = Command::new("date").args(["-d", "@1700000000", "+%H:%M:%S"]).output().unwrap();
        assert_eq!(super::local(1_700_000_000.9), String::from_utf8(date.stdout).unwrap().trim());
    }
}
