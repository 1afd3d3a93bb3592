//! The command line of `biolat`.

use std::{path::PathBuf, time::Duration};

use biolat_daemon::check;
use biolat_model::interval;
use clap::{ArgAction, Args, Parser, Subcommand};

use crate::{
    options::{CommonOptions, FileOption, HistogramOptions, RangeOptions, WindowOptions, window},
    past_time::PastTime,
};

const ABOUT: &str = "What the drives of a host do: latency, hangs, errors, and who does the I/O";

const LONG_ABOUT: &str = "Shows the latency of block I/O, now or in the last day, on this host or another.

Without a command it says in sentences what stands out. It asks biolat-daemon on this host, on --host, or reads a file of \
`biolat save`; without a daemon it measures by itself, which needs root or the capabilities CAP_BPF and CAP_PERFMON.";

const EXAMPLES: &str = "\
Examples:
  biolat                            what stands out on this host now
  biolat hist -D -F 1 10            ten histograms of a second, by device and op
  biolat who 5                      which services and containers do the I/O, every 5 s
  biolat at 03:00 --for 5m          what happened at three
  biolat worst --host db1           the worst minutes of the last day on db1

Exit status: 0 when done or interrupted, 1 if it cannot run, 2 for a wrong option.";

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

    /// Print help; the manual page says more
    #[arg(short, long, action = ArgAction::HelpShort, global = true)]
    help: Option<bool>,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Histograms of latency, like biolatency
    Hist(HistCommand),
    /// Latency by request size
    Sizes(TableCommand),
    /// The CPUs on which requests complete
    Cpus(CpusCommand),
    /// The services, containers and sessions that do the I/O
    ///
    /// A workload is the cgroup that the kernel charges. The root cgroup has the kernel's own I/O (journal, metadata, flushes)
    /// and that of processes there. With cgroup v2, a cgroup without the io controller is counted with its nearest ancestor
    /// that has it: `biolat check` names these. Those that keep the drive busy longest come first.
    Who(TableCommand),
    /// A line for each I/O that is slow or fails, as it completes
    Slow(SlowCommand),
    /// A live table of devices, the worst first
    Top(TopCommand),
    /// What happened at a time of the last day: biolat at 03:00
    At(AtCommand),
    /// What has happened since then: biolat since -2h
    Since(SinceCommand),
    /// The worst minutes of the last day: the longest latencies, hangs, errors
    Worst(WorstCommand),
    /// Save the history of a daemon to a file, to attach it to a ticket
    ///
    /// Compressed JSON lines (see docs/history.md), with serial numbers of drives and names of workloads.
    Save(SaveCommand),
    /// Show a saved history in the browser
    Open(OpenCommand),
    /// Check whether biolat works on this host, and show the fix for each failure
    #[command(long_about = check::ABOUT)]
    Check(Box<check::CheckOptions>),
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
pub struct SlowCommand {
    /// From this latency on, 33ms to 1000s [default: 1s, or what the daemon records]
    #[arg(value_name = "TIME", value_parser = interval::parse_slow)]
    pub at_least: Option<Duration>,
    /// Latencies in milliseconds
    #[arg(short, long)]
    pub milliseconds: bool,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Args, Debug)]
pub struct TopCommand {
    /// Length of a window [default: 1s]
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
    /// 03:00, 2026-01-05T03:00:00Z, -2h
    ///
    /// 03:00 is a time of today or yesterday by the clock of this host.
    #[arg(value_name = "TIME", value_parser = PastTime::parse, allow_hyphen_values = true)]
    pub at: PastTime,
    /// How long from then on
    #[arg(long = "for", value_name = "TIME", value_parser = window, default_value = "1m")]
    pub length: Duration,
    /// Divide it into windows of this length
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
pub struct SinceCommand {
    /// 03:00, 2026-01-05T03:00:00Z, -2h
    ///
    /// 03:00 is a time of today or yesterday by the clock of this host.
    #[arg(value_name = "TIME", value_parser = PastTime::parse, allow_hyphen_values = true)]
    pub since: PastTime,
    /// The end [default: now]
    #[arg(long, value_name = "TIME", value_parser = PastTime::parse, allow_hyphen_values = true)]
    pub until: Option<PastTime>,
    /// Divide it into windows of this length
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
    /// The file, which must not exist; - for standard output
    #[arg(value_name = "FILE")]
    pub to: PathBuf,
    #[command(flatten)]
    pub range: RangeOptions,
    #[command(flatten)]
    pub common: CommonOptions,
}

#[derive(Args, Debug)]
pub struct OpenCommand {
    /// A file that `biolat save` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Open the page in the browser
    #[arg(long)]
    pub browser: bool,
    /// Port on the loopback address [default: a free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
}
