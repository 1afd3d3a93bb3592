//! The command line of `report`. Short options are those of biolatency.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, anyhow};
use biolat_model::{device::Selection, interval};
use biolat_system::host::Host;
use clap::{ArgGroup, Args, builder::TypedValueParser, error::ErrorKind};

use super::{past_time::PastTime, target::Target};
use crate::{shared_options::SeccompOptions, terminal::Color};

const EXAMPLES: &str = "Examples:
  biolat-daemon report                       one histogram, at Ctrl-C
  biolat-daemon report 1 10                  ten windows of one second
  biolat-daemon report -DF 5                 by device and op, every 5 s
  biolat-daemon report -P -d 'nvme.*' 1      the phases of a latency side by side
  biolat-daemon report --sizes 5             latency by request size
  biolat-daemon report --who 5               the services and containers that do the I/O
  biolat-daemon report --from db1:9976 5     from biolat on db1; needs no root
  biolat-daemon report -jDF 1 | jq           a JSON object per window
  biolat-daemon report --slow=100ms          a line per I/O that takes 100 ms or fails
  biolat-daemon report --from db1 --worst    the worst minutes of the last day
  biolat-daemon report --from db1 --at 03:00 --for 5m
  biolat-daemon report --from db1 --save db1.biolat.gz
  biolat-daemon report --load db1.biolat.gz --worst

Without --from, it needs root or the capabilities CAP_BPF and CAP_PERFMON. Exit status: 0 when done or interrupted, 1 \
if it cannot run, 2 for an invalid option.";

/// Options of `report`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, group = ArgGroup::new("source").args(["from", "load"]))]
pub struct ReportOptions {
    /// Length of a window: seconds, or a time such as 500ms, 1s, 2m [default: one window until Ctrl-C]
    #[arg(value_parser = window)]
    pub interval: Option<Duration>,

    /// Number of windows [default: until Ctrl-C]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// A histogram for each device
    #[arg(short = 'D', long)]
    pub by_device: bool,

    /// A histogram for each op: read, write, flush, …
    #[arg(short = 'F', long)]
    pub by_op: bool,

    /// Only devices whose whole name matches this regular expression; may be given more than once
    ///
    /// Separate several with commas. By default every device that has requests of its own but loop devices and floppy disks;
    /// with --from, every device of that daemon.
    #[arg(short, long = "device", value_name = "REGEX", value_parser = devices)]
    pub devices: Vec<String>,

    /// Loop devices that have a file attached, too
    #[arg(long = "loop", conflicts_with = "from")]
    pub has_loops: bool,

    /// Include the time in the queue: total latency instead of device latency
    #[arg(short = 'Q', long, conflicts_with = "phases")]
    pub queued: bool,

    /// Admission, queue, device and total latency side by side
    ///
    /// Admission is the wait before a request exists: for writeback throttling, io.cost, io.latency, or a free tag. It is not
    /// part of the total, and some kernels do not record it. A wait for io.max is in no latency since Linux 5.18: see the
    /// cgroup's io.pressure and io.stat.
    #[arg(short = 'P', long)]
    pub phases: bool,

    /// Print the time at the end of each window
    #[arg(short = 'T', long)]
    pub timestamp: bool,

    /// Latencies in milliseconds
    #[arg(short, long)]
    pub milliseconds: bool,

    /// A row for each bucket: eight per power of two
    #[arg(long)]
    pub fine: bool,

    /// A line of JSON for each window (see docs/report.md)
    #[arg(short, long)]
    pub json: bool,

    /// Device latency by request size, for each device and op, instead of histograms
    ///
    /// A row for each range of sizes, of reads, writes and zone appends. With --json, in addition to histograms.
    #[arg(long, conflicts_with_all = ["queued", "phases", "fine"])]
    pub sizes: bool,

    /// The CPUs on which requests complete, for each device, instead of histograms
    ///
    /// An own probe groups them by NUMA node. With --json, in addition to histograms.
    #[arg(long, conflicts_with_all = ["queued", "phases", "fine"])]
    pub cpus: bool,

    /// The workloads (services, containers, sessions) that do the I/O, for each device, instead of histograms
    ///
    /// A workload is the cgroup that the kernel charges. The root cgroup has the kernel's own I/O (journal, metadata, flushes) and
    /// that of processes there. With cgroup v2, a cgroup without the io controller is counted with its nearest ancestor that has
    /// it: `biolat-daemon check` names these. Those that keep the drive busy longest come first. With --json, in
    /// addition to histograms.
    #[arg(long, conflicts_with_all = ["queued", "phases", "fine"])]
    pub who: bool,

    /// A live table of devices instead of histograms
    #[arg(long)]
    #[arg(conflicts_with_all = ["json", "fine", "by_op", "phases", "timestamp", "milliseconds", "sizes", "cpus", "who"])]
    pub top: bool,

    /// Follow slow and failed I/Os: a line for each that takes at least TIME, 1s by default
    ///
    /// With --from, for each that the daemon records (its --slow), or only those of at least TIME. With --json, the line is
    /// a JSON object.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, value_parser = interval::parse_slow)]
    #[arg(conflicts_with_all = ["top", "interval", "by_device", "by_op", "queued", "phases", "fine", "sizes", "cpus", "who"])]
    pub slow: Option<Option<Duration>>,

    /// What happened at that time: 03:00, 2026-01-05T03:00:00Z, -2h
    ///
    /// From the history of that daemon, which goes back a day, or from a file of --save. 03:00 is a time of today or yesterday by the clock of this host.
    #[arg(long, value_name = "TIME", requires = "source", value_parser = PastTime::parse, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["since", "until", "worst", "count", "slow", "top", "cpus", "timestamp"])]
    pub at: Option<PastTime>,

    /// How long from --at on [default: 1m]
    #[arg(long = "for", value_name = "TIME", requires = "at", value_parser = window)]
    pub length: Option<Duration>,

    /// What happened since that time; INTERVAL divides it into windows
    #[arg(long, value_name = "TIME", requires = "source", value_parser = PastTime::parse, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["count", "slow", "top", "cpus", "timestamp"])]
    pub since: Option<PastTime>,

    /// The end of what --since begins [default: now]
    #[arg(long, value_name = "TIME", requires = "since", value_parser = PastTime::parse, allow_hyphen_values = true)]
    pub until: Option<PastTime>,

    /// The worst minutes of the last day: the longest latencies, I/Os that hung, errors
    #[arg(long, requires = "source")]
    #[arg(conflicts_with_all = ["interval", "slow", "top", "sizes", "cpus", "who", "timestamp", "phases", "queued", "fine", "by_device", "by_op"])]
    pub worst: bool,

    /// Save the history of that daemon to FILE: all of it, or the range of --at or --since
    ///
    /// Compressed JSON lines (see docs/history.md), with serial numbers of drives and names of workloads. An existing file is
    /// never replaced. FILE may be - for standard output.
    #[arg(long, value_name = "FILE", requires = "from")]
    #[arg(conflicts_with_all = ["interval", "slow", "top", "sizes", "cpus", "who", "timestamp", "phases", "queued", "fine", "by_device", "by_op", "worst", "json", "milliseconds"])]
    pub save: Option<PathBuf>,

    /// Read FILE, which --save wrote, instead of a daemon: with --at, --since or --worst, or all of it as one window
    ///
    /// What is relative to now, such as -2h, 03:00 or the end of --since, is relative to when the file was saved. FILE may be -
    /// for standard input.
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["from", "save", "user", "password_file", "ca_file", "has_loops", "count", "slow", "top", "sizes", "cpus", "who", "timestamp"])]
    pub load: Option<PathBuf>,

    /// When to use colours; NO_COLOR in the environment turns them off too
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,

    /// Read a running daemon, here or on another host: needs no root and loads no probe
    ///
    /// HOST or HOST:PORT is short for http://HOST:9976. A window is then the interval between that daemon's collections (its
    /// --interval), or a multiple of it. A password in the URL is visible in the list of processes: see --user.
    #[arg(long, value_name = "URL", value_parser = Url)]
    pub from: Option<Target>,

    /// User name, if that daemon requires a password: give it in BIOLAT_PASSWORD or --password-file
    #[arg(long, value_name = "NAME", requires = "from")]
    pub user: Option<String>,

    /// File whose first line is the password
    #[arg(long, value_name = "FILE", requires = "from")]
    pub password_file: Option<PathBuf>,

    /// PEM file of certificates to trust instead of the system's: the CA's, or the server's own
    #[arg(long, value_name = "FILE", requires = "from")]
    pub ca_file: Option<PathBuf>,

    #[command(flatten)]
    pub host: Host,

    #[command(flatten)]
    pub seccomp: SeccompOptions,
}

impl ReportOptions {
    /// The devices of `--device` and `--loop`; none if neither was given.
    pub fn selection(&self) -> Result<Option<Selection>> {
        let include = (!self.devices.is_empty()).then(|| self.devices.join(","));
        if include.is_none() && !self.has_loops {
            return Ok(None);
        }
        let selection = Selection::new(include.as_deref(), None);
        let selection = selection.map_err(|bad| anyhow!("--device: {}", bad.reason))?;
        Ok(Some(if self.has_loops { selection.with_loops() } else { selection }))
    }
}

/// Parses a [`Target`]. Unlike clap's own parsers, its errors do not quote the value: it may contain a password.
#[derive(Clone)]
struct Url;

impl TypedValueParser for Url {
    type Value = Target;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        text: &std::ffi::OsStr,
    ) -> Result<Target, clap::Error> {
        let refused =
            |why: String| command.clone().error(ErrorKind::ValueValidation, format!("--from: {why}"));
        Target::parse(&text.to_string_lossy()).map_err(refused)
    }
}

fn window(text: &str) -> Result<Duration, String> {
    interval::parse(text, interval::Unit::Optional, Duration::from_secs(86_400))
}

/// Checks a list of expressions.
fn devices(text: &str) -> Result<String, String> {
    match Selection::new(Some(text), None) {
        Ok(_) => Ok(text.to_owned()),
        Err(bad) => Err(format!("'{text}' is not a regular expression: {}", bad.reason)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::{ReportOptions, devices};

    #[derive(clap::Parser, Debug)]
    struct TestCommand {
        #[command(flatten)]
        options: ReportOptions,
    }

    fn parse(line: &str) -> Result<ReportOptions, String> {
        let words = ["report"].into_iter().chain(line.split_whitespace());
        TestCommand::try_parse_from(words).map(|line| line.options).map_err(|error| error.to_string())
    }

    #[test]
    fn options_of_biolatency() {
        let options = parse("-mT 1 10").unwrap();
        assert_eq!((options.interval, options.count), (Some(Duration::from_secs(1)), Some(10)));
        assert!(options.milliseconds && options.timestamp && !options.by_device);
        let options = parse("-DFQ -d sdc").unwrap();
        assert!(options.by_device && options.by_op && options.queued && options.interval.is_none());
        assert!(parse("").unwrap().selection().unwrap().is_none());
    }

    #[test]
    fn devices_by_name_by_list_and_by_expression() {
        let shows = |line: &str, name: &str| {
            parse(line).unwrap().selection().unwrap().is_some_and(|selection| selection.shows(name))
        };
        assert!(shows("-d sda", "sda") && !shows("-d sda", "sdab") && !shows("-d sda", "xsda"));
        assert!(shows("--loop", "loop0") && shows("--loop", "sda") && shows("-d loop0", "loop0"));
        assert!(
            shows("-d sd[a,b]", "sdb")
                && shows("-d sda,sdb", "sdb")
                && shows("-d sda -d sd[c-d]", "sdd")
                && shows("-d /dev/sda", "sda")
        );
        assert!(shows("-d sda|sdb", "sda") && !shows("-d sda|sdb,vda", "sdax"));
        assert!(shows("-d nvme[0-9]{1,2}n1,vda", "nvme10n1") && shows("-d nvme[0-9]{1,2}n1,vda", "vda"));
        assert!(devices("sd[").unwrap_err().starts_with("'sd[' is not a regular expression: "));
        assert!(devices(",").is_err() && devices("").is_err());
    }

    #[test]
    fn conflicts_and_errors() {
        for line in [
            "-Q -P",
            "--loop --from x",
            "--user x",
            "--ca-file x",
            "--top -j",
            "--color blue",
            "1 0",
            "--from",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        let slow = |line: &str| parse(line).unwrap().slow;
        assert_eq!((slow(""), slow("--slow -d sda")), (None, Some(None)));
        assert_eq!(slow("--slow=50ms -j --from db1"), Some(Some(Duration::from_millis(50))));
        for line in ["--slow --top", "--slow 5", "--slow=1s -D", "--slow=off", "--slow=1ms", "--slow -P"] {
            assert!(parse(line).is_err(), "{line}");
        }
        for view in ["--sizes", "--cpus", "--who"] {
            for other in ["-Q", "-P", "--fine", "--top", "--slow"] {
                let error = parse(&format!("{view} {other}")).unwrap_err();
                assert!(error.lines().next().unwrap().contains("cannot be used with"), "{error}");
            }
        }
        let options = parse("--sizes --cpus --who -jDF 1").unwrap();
        assert!(options.sizes && options.cpus && options.who);
        let refused = parse("--from http://alice:secret@db1:port").unwrap_err();
        assert!(refused.contains("'db1:port' is not a URL") && !refused.contains("secret"), "{refused}");
        let options = parse("--from db1 --user alice 5").unwrap();
        assert_eq!(options.from.unwrap().to_string(), "http://db1:9976");
    }
}
