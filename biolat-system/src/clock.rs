//! Formats the time of day in this host's time zone.

use crate::c_library::{local_date, local_time};

/// Formats seconds since the epoch as `21:45:03`.
pub fn local(seconds: f64) -> String {
    let [hour, minute, second] = local_time(seconds);
    format!("{hour:02}:{minute:02}:{second:02}")
}

/// Formats seconds since the epoch as `2026-01-05 21:45:03`.
pub fn local_with_date(seconds: f64) -> String {
    let [year, month, day] = local_date(seconds);
    format!("{year}-{month:02}-{day:02} {}", local(seconds))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// Compares with the output of `date`, so the test passes in any time zone.
    #[test]
    fn matches_date() {
        let date = |format: &str| {
            let output = Command::new("date").args(["-d", "@1700000000", format]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(super::local(1_700_000_000.9), date("+%H:%M:%S"));
        assert_eq!(super::local_with_date(1_700_000_000.9), date("+%Y-%m-%d %H:%M:%S"));
    }
}
