//! The time of day in this host's time zone.

use crate::c_library::local_time;

/// `21:45:03`, of seconds since the epoch.
pub(super) fn local(seconds: f64) -> String {
    let [hour, minute, second] = local_time(seconds);
    format!("{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// `date` is right in any time zone.
    #[test]
    fn same_as_date() {
        let date = Command::new("date").args(["-d", "@1700000000", "+%H:%M:%S"]).output().unwrap();
        assert_eq!(super::local(1_700_000_000.9), String::from_utf8(date.stdout).unwrap().trim());
    }
}
