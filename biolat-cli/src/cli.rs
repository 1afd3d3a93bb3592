//! The command line of `biolat`.

use std::{path::PathBuf, time::Duration};

use biolat_daemon::check;
use biolat_model::interval;
use clap::{ArgAction, Args, Parser, Subcommand};

use crate::{
    options::{CommonOptions, FileOption, HistogramOptions, RangeOptions, WindowOptions, window},
    past_time::PastTime,
};

const ABOUT: &str = "Block I/O latency, hangs and errors by drive, and who does the I/O";

const LONG_ABOUT: &str = "Shows block I/O latency, now or in the last day, on this host or another.

Without a command, measures for 5 s and reports in sentences what stands out. It asks biolat-daemon on this host; if none is \
running, it takes its own measurements. hist, sizes, cpus, who, slow and top take their own even if one is running; without \
the privileges for that, they ask the daemon on this host. Measuring needs root, or the capabilities CAP_BPF and CAP_PERFMON.

The past comes from a daemon's history, or from a file written by `biolat save`. --host asks a daemon elsewhere.";

const EXAMPLES: &str = "\
Examples:
  biolat                      what stands out on this host now
  biolat who 5                which services and containers do the I/O, every 5 s
  biolat at 03:00 --for 5m    what happened from 03:00 to 03:05
  biolat worst --host db1     the worst minutes of the last day on db1

Exit status: 0 when done or interrupted, 1 on failure, 2 for an invalid option.";

#[derive(Parser, Debug)]
#[command(name = "biolat", version = biolat_daemon::version::LONG, about = ABOUT, long_about = LONG_ABOUT)]
#[command(after_help = EXAMPLES, max_term_width = 110, subcommand_value_name = "COMMAND", disable_help_flag = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// How long to measure [default: 5s]
    #[arg(long = "for", value_name = "TIME", value_parser = window)]
    pub length: Option<Duration>,

    #[command(flatten)]
    pub common: CommonOptions,

    /// Print help; the manual page has the details
    #[arg(short, long, action = ArgAction::HelpShort, global = true)]
    help: Option<bool>,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Latency histograms, with biolatency's options
    Hist(HistCommand),
    /// Latency by request size
    Sizes(TableCommand),
    /// Which CPUs complete the requests
    Cpus(CpusCommand),
    /// Which services, containers and sessions do the I/O
    ///
    /// A workload is the cgroup that the kernel charges the I/O to. The root cgroup contains the kernel's own I/O (journal,
    /// metadata, flushes) and the I/O of processes in it. With cgroup v2, a cgroup without the io controller is counted with
    /// its nearest ancestor that has it; `biolat check` lists such cgroups. Workloads are sorted by how long they keep the
    /// drive busy.
    Who(TableCommand),
    /// Which processes do the I/O, or each I/O with its process
    ///
    /// The process is the one that submitted the I/O, and its latency is the time in the drive. Writes from the page cache are
    /// submitted by the kernel's own threads, such as kworker and jbd2. An I/O that is merged into a request of another process
    /// counts for that process. Attaches programs of its own while it runs, also next to a daemon.
    Processes(ProcessesCommand),
    /// Each slow or failed I/O, as it completes
    Slow(SlowCommand),
    /// A live table of devices, hung and slow ones first
    Top(TopCommand),
    /// What happened at a time in the last day: biolat at 03:00
    At(AtCommand),
    /// What has happened since a time: biolat since -2h
    Since(SinceCommand),
    /// The worst minutes of the last day: longest latencies, hangs, errors
    Worst(WorstCommand),
    /// Save a daemon's history, or part of it, to a file for a ticket
    ///
    /// The file is JSON lines, compressed with gzip (see docs/history.md). It contains the drives' serial numbers and the
    /// names of workloads.
    Save(SaveCommand),
    /// Serve a saved history as a web page, on this host only
    Open(OpenCommand),
    /// Check whether biolat works on this host, and show the fix for each failure
    #[command(long_about = check::ABOUT)]
    Check(Box<check::CheckOptions>),
}

impl Command {
    /// Whether it shows a saved history.
    pub const fn reads_file(&self) -> bool {
        let file = match self {
            Self::Hist(HistCommand { file, .. })
            | Self::Sizes(TableCommand { file, .. })
            | Self::Who(TableCommand { file, .. })
            | Self::At(AtCommand { shown: PastOptions { file, .. }, .. })
            | Self::Since(SinceCommand { shown: PastOptions { file, .. }, .. })
            | Self::Worst(WorstCommand { file, .. }) => file,
            Self::Cpus(_)
            | Self::Processes(_)
            | Self::Slow(_)
            | Self::Top(_)
            | Self::Save(_)
            | Self::Open(_)
            | Self::Check(_) => {
                return false;
            }
        };
        file.file.is_some()
    }
}

#[derive(Args, Debug)]
pub struct HistCommand {
    #[command(flatten)]
    pub windows: WindowOptions,
    #[command(flatten)]
    pub histogram: HistogramOptions,
    #[command(flatten)]
    pub range: RangeOptions,
    #[command(flatten)]
    pub file: FileOption,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Args, Debug)]
pub struct TableCommand {
    #[command(flatten)]
    pub windows: WindowOptions,
    /// Latencies in milliseconds
    #[arg(short, long)]
    pub milliseconds: bool,
    #[command(flatten)]
    pub range: RangeOptions,
    #[command(flatten)]
    pub file: FileOption,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Args, Debug)]
pub struct CpusCommand {
    #[command(flatten)]
    pub windows: WindowOptions,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Args, Debug)]
pub struct ProcessesCommand {
    #[command(flatten)]
    pub windows: WindowOptions,
    /// Each I/O as it completes, or a sample above 10,000 per second
    #[arg(long, conflicts_with_all = ["interval", "count", "timestamp"])]
    pub io: bool,
    /// Latencies in milliseconds
    #[arg(short, long)]
    pub milliseconds: bool,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Args, Debug)]
pub struct SlowCommand {
    /// Shortest latency that counts as slow, at least 33ms: 50, 100ms, 2s [default: 1s, or the daemon's --slow]
    #[arg(value_name = "TIME", value_parser = slow)]
    pub at_least: Option<Duration>,
    /// Latencies in milliseconds
    #[arg(short, long)]
    pub milliseconds: bool,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Args, Debug)]
pub struct TopCommand {
    /// Window length [default: 1s]
    #[arg(value_parser = window)]
    pub interval: Option<Duration>,
    /// Number of windows [default: until q]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Args, Debug)]
pub struct AtCommand {
    /// When: 03:00 (local), -2h or 2026-01-05T03:00:00Z
    ///
    /// 03:00 means 03:00 today by this host's clock, or yesterday if it is not 03:00 yet.
    #[arg(value_name = "TIME", value_parser = PastTime::parse, allow_hyphen_values = true)]
    pub at: PastTime,
    /// How long, starting at TIME
    #[arg(long = "for", value_name = "TIME", value_parser = window, default_value = "1m")]
    pub length: Duration,
    #[command(flatten)]
    pub shown: PastOptions,
}

#[derive(Args, Debug)]
pub struct SinceCommand {
    /// When: 03:00 (local), -2h or 2026-01-05T03:00:00Z
    ///
    /// 03:00 means 03:00 today by this host's clock, or yesterday if it is not 03:00 yet.
    #[arg(value_name = "TIME", value_parser = PastTime::parse, allow_hyphen_values = true)]
    pub since: PastTime,
    /// End of the range [default: now]
    #[arg(long, value_name = "TIME", value_parser = PastTime::parse, allow_hyphen_values = true)]
    pub until: Option<PastTime>,
    #[command(flatten)]
    pub shown: PastOptions,
}

// How `at` and `since` show their range.
#[derive(Args, Debug)]
pub struct PastOptions {
    /// Split the range into windows of this length
    #[arg(long, value_name = "TIME", value_parser = window)]
    pub every: Option<Duration>,
    #[command(flatten)]
    pub histogram: HistogramOptions,
    #[command(flatten)]
    pub file: FileOption,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Args, Debug)]
pub struct WorstCommand {
    #[command(flatten)]
    pub range: RangeOptions,
    /// Latencies in milliseconds
    #[arg(short, long)]
    pub milliseconds: bool,
    #[command(flatten)]
    pub file: FileOption,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Args, Debug)]
pub struct SaveCommand {
    /// File to create, which must not exist yet, or - for standard output
    #[arg(value_name = "FILE")]
    pub to: PathBuf,
    #[command(flatten)]
    pub range: RangeOptions,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Args, Debug)]
pub struct OpenCommand {
    /// A file written by `biolat save`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Open the page in the browser
    #[arg(long)]
    pub browser: bool,
    /// Port on the loopback address [default: a free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Print the URL as JSON
    #[arg(short, long)]
    pub json: bool,
}

/// Parses the threshold of slow I/Os. A plain number means milliseconds, as in the bcc tools.
fn slow(text: &str) -> Result<Duration, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { interval::parse_slow(&format!("{text}ms")) } else { interval::parse_slow(text) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::slow;

    #[test]
    fn a_plain_number_is_milliseconds() {
        assert_eq!(slow("50"), Ok(Duration::from_millis(50)));
        assert_eq!(slow("1s"), Ok(Duration::from_secs(1)));
        assert!(slow("").is_err() && slow("5").is_err() && slow("fast").is_err());
    }
}
