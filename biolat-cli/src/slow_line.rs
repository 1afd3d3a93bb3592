//! A slow or failed I/O as a line of text, or as several if the terminal is narrow.

use biolat_model::{
    io_names::IoNames,
    snapshot::SlowIo,
    text::{
        format::{self, NumberFormat},
        sanitize,
        time::unix_seconds,
    },
};
use biolat_system::{
    clock,
    terminal::{Highlight, Terminal},
};

/// Longest display name of a workload, in characters.
const LONGEST_WORKLOAD: usize = 40;

/// Whatever does not fit on the line goes below it, indented by the width of the time.
const INDENT: usize = "22:13:20.123 ".len();

/// An I/O on one line, or on several if it is wider than `width`:
/// `22:13:20.123 sda       read    sector 2048          4.00 KiB   1.25 s  queue 200 µs, …  postgres[4711]  /srv/db/2619`.
pub(super) fn line(io: &SlowIo, terminal: Terminal, numbers: NumberFormat, width: usize) -> String {
    let SlowIo { completed, device, op, sector, bytes, status, latencies, cpu, workload, names, number: _ } =
        io;
    let completed = unix_seconds(*completed);
    let milliseconds = (completed * 1e3) as u64 % 1000;
    let time = format!("{}.{milliseconds:03}", clock::local(completed));
    let size = format::bytes(f64::from(*bytes));
    let [admission, queue, device_latency, total] =
        latencies.map(|latency| latency.map(|latency| latency.as_secs_f64()));
    let total = total.map_or_else(|| "-".to_owned(), |total| numbers.latency(total));
    let parts = [("queue", queue), ("device", device_latency), ("admission", admission)];
    let known =
        parts.iter().filter_map(|(name, part)| Some(format!("{name} {}, ", numbers.latency((*part)?))));
    let known: String = known.collect();
    let workload = workload.as_deref().map(|cgroup| sanitize::text(short_workload(cgroup)));

    let text = format!("{time} {device:<9} {op:<7} sector {sector:<11} {size:>8} {total:>7}");
    let used = text.chars().count();
    let mut line = Line::new(text, used, terminal, width);
    line.add(&format!("{known}CPU {cpu}"), None);
    if io.has_failed() {
        line.add(&format!("failed: {status}"), Some(Highlight::Bad));
    }
    if let Some(workload) = workload {
        line.add(&terminal.cut(&workload, LONGEST_WORKLOAD), None);
    }
    line.add_names(names);
    line.text
}

/// The last component of a cgroup's path: the path starts with the outermost one.
fn short_workload(cgroup: &str) -> &str {
    match cgroup.trim_end_matches('/').rsplit('/').next() {
        Some(name) if !name.is_empty() => name,
        _ => "root cgroup",
    }
}

/// A line that continues below, indented, when a part does not fit.
pub(super) struct Line {
    pub(super) text: String,
    /// Width of its last line so far.
    used: usize,
    terminal: Terminal,
    width: usize,
}

impl Line {
    /// Begins with text that takes `used` columns.
    pub(super) const fn new(text: String, used: usize, terminal: Terminal, width: usize) -> Self {
        Self { text, used, terminal, width }
    }

    /// Adds the process and the file: `postgres[4711]  /var/lib/postgresql/16/main/base/16384/2619`. The end of a path is what
    /// tells files apart, so a path that is too long for a line loses its beginning.
    pub(super) fn add_names(&mut self, names: &IoNames) {
        if let Some(process) = names.shown_process() {
            self.add(&sanitize::text(&process), None);
        }
        if let Some(target) = names.shown_target() {
            let room = self.width.saturating_sub(INDENT);
            self.add(&self.terminal.cut_beginning(&sanitize::text(&target), room), None);
        }
    }

    fn add(&mut self, part: &str, highlight: Option<Highlight>) {
        let length = part.chars().count();
        if self.used + 2 + length > self.width {
            self.text += &format!("\n{:INDENT$}", "");
            self.used = INDENT;
        } else {
            self.text += "  ";
            self.used += 2;
        }
        self.text +=
            &highlight.map_or_else(|| part.to_owned(), |highlight| self.terminal.paint(highlight, part));
        self.used += length;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use biolat_model::{
        io_names::{IoFile, IoNames, IoProcess, class},
        snapshot::SlowIo,
    };
    use biolat_system::terminal::Terminal;
    use biolat_testing::samples::slow_io;

    use super::line;

    const TERMINAL: Terminal = Terminal { color: false, unicode: true, is_terminal: true };

    /// Without the time of day, which depends on the time zone.
    fn text(io: &SlowIo, width: usize) -> String {
        line(io, TERMINAL, TERMINAL.numbers(false), width).split_off("22:13:20".len())
    }

    fn postgres() -> IoNames {
        IoNames {
            class: Some(class::FILE.into()),
            file: Some(IoFile {
                path: "/16/main/base/16384/2619".into(),
                mount: Some("/var/lib/postgresql".into()),
                ..IoFile::default()
            }),
            process: Some(IoProcess { id: 4711, command: "postgres".into(), known_by: "waiter".into() }),
            ..IoNames::default()
        }
    }

    #[test]
    fn names_process_and_file() {
        let mut io = SlowIo { names: postgres(), ..slow_io(1, "sda") };
        io.workload = Some("/system.slice/db.service".into());
        assert_eq!(
            text(&io, usize::MAX),
            ".123 sda       read    sector 2048        4.00 KiB  1.25 s  queue 200 µs, device 1.25 s, CPU 3  \
             db.service  postgres[4711]  /var/lib/postgresql/16/main/base/16384/2619"
        );
        let expected = "
             queue 200 µs, device 1.25 s, CPU 3  db.service  postgres[4711]
             /var/lib/postgresql/16/main/base/16384/2619";
        assert!(text(&io, 80).ends_with(expected), "{}", text(&io, 80));
        let expected = "
             db.service  postgres[4711]
             …ql/16/main/base/16384/2619";
        assert!(text(&io, 40).ends_with(expected), "{}", text(&io, 40));
        // A name from this host's kernel has not been sanitized yet.
        io.names.file.as_mut().unwrap().path = "/a\u{1b}[2J\n".into();
        assert!(text(&io, usize::MAX).ends_with("  /var/lib/postgresql/a\u{fffd}[2J\u{fffd}"));
    }

    #[test]
    fn names_what_is_known() {
        let named = |names: IoNames| {
            let text = text(&SlowIo { names, ..slow_io(1, "sda") }, usize::MAX);
            text.split_once("CPU 3").unwrap().1.to_owned()
        };
        let of_class = |class: &'static str| IoNames { class: Some(class.into()), ..IoNames::default() };
        assert_eq!(named(of_class(class::JOURNAL)), "  journal");
        assert_eq!(named(of_class(class::FLUSH)), "");
        assert_eq!(
            named(IoNames { process: postgres().process, ..of_class(class::SWAP) }),
            "  postgres[4711]  swap"
        );
        assert_eq!(
            named(IoNames { process: None, ..postgres() }),
            "  /var/lib/postgresql/16/main/base/16384/2619"
        );
        let unknown = IoNames { file_unknown: Some("no data was left".into()), ..IoNames::default() };
        assert_eq!(named(unknown), "");
    }

    #[test]
    fn formats_lines() {
        let text = |io: &SlowIo| text(io, usize::MAX);
        let mut io = slow_io(1, "sda");
        assert_eq!(
            text(&io),
            ".123 sda       read    sector 2048        4.00 KiB  1.25 s  queue 200 µs, device 1.25 s, CPU 3"
        );
        io.latencies = [Some(Duration::from_millis(500)), None, None, None];
        io.status = "medium".into();
        let expected = "       -  admission 500 ms, CPU 3  failed: medium";
        assert!(text(&io).ends_with(expected), "{}", text(&io));
        for (cgroup, shown) in [
            ("/", "root cgroup"),
            ("other", "other"),
            ("/system.slice/db.service", "db.service"),
            (
                "/kubepods.slice/cri-containerd-0123456789abcdef0123456789abcdef.scope",
                "cri-containerd-0123456789abcdef01234567…",
            ),
        ] {
            io.workload = Some(cgroup.into());
            assert!(text(&io).ends_with(&format!("CPU 3  failed: medium  {shown}")), "{}", text(&io));
        }
        io.latencies = slow_io(1, "sda").latencies;
        let narrow = super::tests::text(&io, 80);
        let expected = "\
.123 sda       read    sector 2048        4.00 KiB  1.25 s
             queue 200 µs, device 1.25 s, CPU 3  failed: medium
             cri-containerd-0123456789abcdef01234567…";
        assert_eq!(narrow, expected);
    }
}
