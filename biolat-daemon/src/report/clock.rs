//! The time of day, as the clock on the wall has it.

use crate::c_library::local_time;

/// `21:45:03` where this host is; the seconds are since the epoch.
#[must_use]
pub(super) fn local(seconds: f64) -> String {
    let [hour, minute, second] = local_time(seconds);
    format!("{hour:02}:{minute:02}:{second:02}")
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
