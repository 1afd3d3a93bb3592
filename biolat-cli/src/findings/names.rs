//! A file or a process to which most of a device's slow and failed I/Os belong.

use std::collections::BTreeMap;

use biolat_model::{io_names::IoFile, snapshot::SlowIo, text::sanitize};

use super::words::plural;
use crate::window::{DeviceWindow, Window};

/// Minimum number of recorded I/Os of an op.
const MINIMUM: usize = 4;

/// By op: the file, or else the process, with at least half of the recorded I/Os.
pub(super) fn common(device: &DeviceWindow, window: &Window) -> Vec<String> {
    let found = device.ops.iter().filter_map(|op| {
        let is_of = |io: &&SlowIo| io.device == device.name && io.op == op.name;
        let ios: Vec<_> = window.slow.iter().filter(is_of).collect();
        if ios.len() < MINIMUM {
            return None;
        }
        let file =
            || most(&ios, |io| io.names.file.as_ref().map(IoFile::shown_path)).map(|most| ("file", most));
        let process = || most(&ios, |io| io.names.shown_process()).map(|most| ("process", most));
        let (kind, (name, count)) = file().or_else(process)?;
        let of = if count == ios.len() { "all".to_owned() } else { format!("{count} of the") };
        let how = match ios.iter().filter(|io| io.has_failed()).count() {
            0 => "slow",
            failed if failed == ios.len() => "failed",
            _ => "slow or failed",
        };
        Some(format!(
            "{}: {of} {} recorded {how} {} are of one {kind}: {}.",
            device.name,
            ios.len(),
            plural(&op.name),
            sanitize::text(&name)
        ))
    });
    found.collect()
}

/// The name that at least half of the I/Os have, and their number.
fn most(ios: &[&SlowIo], name: impl Fn(&SlowIo) -> Option<String>) -> Option<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in ios.iter().filter_map(|io| name(io)) {
        *counts.entry(name).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).filter(|(_, count)| 2 * count >= ios.len())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use biolat_model::{
        io_names::{IoFile, IoNames, IoProcess},
        snapshot::{SlowIo, Snapshot},
    };
    use biolat_testing::samples::{self, histogram, op, slow_io};

    use crate::window::Window;

    /// Slow reads of a file by a process.
    fn reads(count: usize, file: Option<&str>, process: Option<u32>) -> Vec<SlowIo> {
        let names = IoNames {
            file: file.map(|path| IoFile { path: path.into(), ..IoFile::default() }),
            process: process.map(|id| IoProcess { id, command: "postgres".into(), ..IoProcess::default() }),
            ..IoNames::default()
        };
        vec![SlowIo { names, ..slow_io(1, "sda") }; count]
    }

    fn found(slow: &[Vec<SlowIo>]) -> Vec<String> {
        let none = || histogram(0, &[], 0, 0.0);
        let sda = samples::device("sda", 9.0, vec![op("read", 0, none(), none(), none())]);
        let slow = Arc::from(slow.concat());
        let after = Snapshot { slow, ..samples::snapshot(60.0, vec![sda]) };
        let window = Window::between(&samples::snapshot(0.0, vec![]), &after);
        super::common(&window.devices[0], &window)
    }

    #[test]
    fn names_the_file_of_most() {
        let of_one = reads(9, Some("/srv/\u{1b}2619"), Some(1));
        let others = [reads(1, Some("/a"), Some(1)), reads(2, None, Some(1))].concat();
        let expected = "sda: 9 of the 12 recorded slow reads are of one file: /srv/\u{fffd}2619.";
        assert_eq!(found(&[of_one.clone(), others]), [expected]);
        assert_eq!(
            found(std::slice::from_ref(&of_one)),
            ["sda: all 9 recorded slow reads are of one file: /srv/\u{fffd}2619."]
        );
        let others = of_one.iter().map(|io| SlowIo { op: "write".into(), ..io.clone() }).collect();
        assert!(found(&[reads(3, Some("/a"), None), others]).is_empty(), "too few reads");
    }

    #[test]
    fn names_the_process_of_most() {
        let files = ["/a", "/b", "/c"].map(|file| reads(1, Some(file), Some(4711))).concat();
        let others = reads(3, None, Some(1)).into_iter().enumerate();
        let mut others: Vec<_> = others
            .map(|(id, mut io)| {
                io.names.process.as_mut().unwrap().id = id as u32;
                io
            })
            .collect();
        others[0].status = "medium".into();
        let expected = "sda: 3 of the 6 recorded slow or failed reads are of one process: postgres[4711].";
        assert_eq!(found(&[files.clone(), others.clone()]), [expected]);
        assert!(found(&[files, others, reads(1, None, None)]).is_empty(), "less than half");
        let mut failed = reads(4, None, Some(4711));
        failed.iter_mut().for_each(|io| io.status = "medium".into());
        assert_eq!(
            found(&[failed]),
            ["sda: all 4 recorded failed reads are of one process: postgres[4711]."]
        );
    }
}
