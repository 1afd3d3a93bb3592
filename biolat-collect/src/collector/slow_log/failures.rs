//! Log lines about failed I/Os: at most one per device and minute.

use std::{collections::BTreeMap, time::Duration};

use biolat_model::{snapshot::SlowIo, text::format};

const MINUTE: Duration = Duration::from_secs(60);

/// Devices with an I/O that failed in the last minute or has not been logged yet.
#[derive(Default)]
pub(super) struct Failures(BTreeMap<String, Failed>);

#[derive(Default)]
struct Failed {
    /// The latest I/O that has not been logged, in words.
    latest: String,
    /// I/Os that have not been logged.
    count: u64,
    /// Time of the next line.
    due: Duration,
}

impl Failures {
    /// Adds an I/O if it has failed.
    pub(super) fn add(&mut self, io: &SlowIo) {
        if io.has_failed() {
            let failed = self.0.entry(io.device.clone()).or_default();
            failed.latest = in_words(io);
            failed.count += 1;
        }
    }

    /// Writes the lines that are due.
    pub(super) fn log(&mut self, now: Duration) {
        self.lines(now).for_each(|line| log::warn!("{line}"));
    }

    fn lines(&mut self, now: Duration) -> impl Iterator<Item = String> {
        self.0.retain(|_, failed| failed.count > 0 || now < failed.due);
        self.0.values_mut().filter(move |failed| failed.count > 0 && now >= failed.due).map(move |failed| {
            let line = match failed.count - 1 {
                0 => failed.latest.clone(),
                more => format!("{}; {} more in the last minute", failed.latest, format::count(more)),
            };
            (failed.count, failed.due) = (0, now + MINUTE);
            line
        })
    }
}

/// `vda: write of 8.00 KiB failed (medium): postgres[4711], /srv/db/2619`
fn in_words(io: &SlowIo) -> String {
    let size = if io.bytes > 0 { format!(" of {}", format::bytes(io.bytes.into())) } else { String::new() };
    let names: Vec<_> = [io.names.shown_process(), io.names.shown_target()].into_iter().flatten().collect();
    let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    format!("{}: {}{size} failed ({}){names}", io.device, io.op, io.status)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use biolat_model::{
        io_names::{IoFile, IoNames, IoProcess},
        snapshot::SlowIo,
    };
    use biolat_testing::samples::slow_io;

    use super::Failures;

    fn failed(device: &str) -> SlowIo {
        SlowIo { status: "medium".into(), ..slow_io(1, device) }
    }

    #[test]
    fn names_process_and_file() {
        let names = IoNames {
            file: Some(IoFile { path: "/db/2619".into(), mount: Some("/srv".into()), ..IoFile::default() }),
            process: Some(IoProcess { id: 4711, command: "postgres".into(), ..IoProcess::default() }),
            ..IoNames::default()
        };
        let flush = SlowIo { op: "flush".into(), bytes: 0, ..failed("sdb") };
        let mut failures = Failures::default();
        for io in [slow_io(1, "sda"), SlowIo { names, ..failed("vda") }, flush] {
            failures.add(&io);
        }
        let expected = [
            "sdb: flush failed (medium)",
            "vda: read of 4.00 KiB failed (medium): postgres[4711], /srv/db/2619",
        ];
        assert_eq!(failures.lines(Duration::ZERO).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn logs_once_a_minute() {
        let mut failures = Failures::default();
        let mut lines = |ios: usize, now| {
            (0..ios).for_each(|_| failures.add(&failed("sda")));
            let lines = failures.lines(Duration::from_secs(now)).collect::<Vec<_>>();
            (lines.join("\n"), failures.0.len())
        };
        let one = "sda: read of 4.00 KiB failed (medium)".to_owned();
        let more = |count| format!("{one}; {count} more in the last minute");
        assert_eq!(lines(13, 100), (more("12"), 1));
        assert_eq!(lines(1_000, 101), (String::new(), 1));
        assert_eq!(lines(1, 159), (String::new(), 1));
        assert_eq!(lines(0, 160), (more("1,000"), 1));
        assert_eq!(lines(0, 219), (String::new(), 1));
        assert_eq!(lines(0, 220), (String::new(), 0), "the device is forgotten");
        assert_eq!(lines(1, 300), (one, 1));
    }
}
