//! The daemon's command line. [`Cli::validate`] turns it into a [`Config`].

use std::{ffi::OsString, path::PathBuf, time::Duration};

use biolat_history::HistoryLimits;
use biolat_model::interval;
use biolat_system::{
    host::Host,
    log_lines::{LogFormat, LogLevel},
};
use clap::{Parser, Subcommand};

use crate::{
    check,
    config::Config,
    expose::{ClassicBuckets, HistogramFormat, HistogramKinds},
    http::ServeConfig,
    option_values::{OptionError, non_empty},
    shared_options::{
        DeviceOptions, ListenOptions, PinOption, SeccompOptions, SizesOption, SlowNamesOption, VolumesOption,
        WorkloadsOption,
    },
    version,
};

const ABOUT: &str = "Latency of every block I/O, as Prometheus native histograms, from one eBPF probe";

const LONG_ABOUT: &str = "Measures the latency of every block I/O on this host and serves it to Prometheus.

One eBPF program runs at the completion of each block request, reads the timestamps that the kernel records anyway and \
updates per-CPU histograms. At each interval the daemon sums them, checks them against the kernel's disk statistics, and \
serves them at /metrics, by device and op:

  biolat_queue_latency_seconds      from the allocation of a request to its dispatch to the driver
  biolat_device_latency_seconds     from dispatch to completion
  biolat_total_latency_seconds      from allocation to completion
  biolat_admission_latency_seconds  before the allocation, where the kernel records it: throttling, waiting for a tag

It also serves the number of I/Os in flight and the age of the oldest. No latency includes the wait for io.max; \
with cgroup v2, biolat_workload_io_stalled_seconds_total does.

Needs root, or the capabilities CAP_BPF and CAP_PERFMON, and drops privileges once the probe is attached.";

const EXAMPLES: &str = "Examples:
  biolat-daemon                                        serve on port 9976 of all IPv4 addresses
  biolat-daemon --listen 127.0.0.1:9976 --listen [::1]:9976
  biolat-daemon --device 'nvme.*' --interval 1s        NVMe drives only, updated every second
  curl -s localhost:9976/metrics | grep total_latency_seconds_count

Every option can also be set in the environment, as shown. Exit status: 0 after SIGTERM or SIGINT; 1 if the daemon cannot \
run; 2 for an invalid option or web config, or 1 if the error is in a file that the web config names.";

/// The command line of the daemon.
#[derive(Parser, Debug)]
#[command(name = "biolat-daemon", version = version::LONG, about = ABOUT, long_about = LONG_ABOUT)]
#[command(after_long_help = EXAMPLES, max_term_width = 110, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub listen: ListenOptions,

    /// Time between two collections of the kernel's counters, 100ms to 5m
    ///
    /// A scrape returns the latest collection. Set it no longer than the scrape interval.
    #[arg(long, value_name = "TIME", env = "BIOLAT_INTERVAL", hide_env_values = true, default_value = "5s", value_parser = parse_interval)]
    pub interval: Duration,

    /// Highest resolution of native histograms: 2^SCHEMA buckets per power of two, 0 to 3
    ///
    /// At 3, a bucket is 9 % wide; at 0, 100 %. The probe counts at 3; for a lower resolution, its buckets are merged. They are
    /// also merged if a histogram would have 160 buckets or more.
    #[arg(long, value_name = "SCHEMA", env = "BIOLAT_SCHEMA", hide_env_values = true, default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=3))]
    pub schema: u32,

    /// Which histograms to expose
    #[arg(long, value_name = "KIND", env = "BIOLAT_FORMAT", hide_env_values = true, default_value = "auto")]
    pub format: HistogramKinds,

    /// Buckets of classic histograms
    #[arg(long, value_name = "BUCKETS", env = "BIOLAT_CLASSIC_BUCKETS", hide_env_values = true)]
    #[arg(default_value = "few")]
    pub classic_buckets: ClassicBuckets,

    /// Add a _created line to OpenMetrics for each counter and histogram
    ///
    /// Most Prometheus servers store each of these lines as a series. The protobuf format always includes the creation time.
    #[arg(long, env = "BIOLAT_OPENMETRICS_CREATED", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    pub openmetrics_created: bool,

    /// Record I/Os that take at least this long, 33ms to 1000s, and I/Os that fail; or off
    ///
    /// /api/v1/slow serves the latest 1,000 records, which also appear as exemplars of the total latency. At most 1,000
    /// I/Os are recorded per second. The time is rounded up to whole milliseconds; 33ms becomes 34ms.
    #[arg(long, value_name = "TIME", env = "BIOLAT_SLOW", hide_env_values = true, default_value = "1s", value_parser = parse_slow)]
    pub slow: SlowThreshold,

    #[command(flatten)]
    pub slow_names: SlowNamesOption,

    #[command(flatten)]
    pub sizes: SizesOption,

    #[command(flatten)]
    pub workloads: WorkloadsOption,

    #[command(flatten)]
    pub volumes: VolumesOption,

    /// Expose biolat_completions_total: completions per device and CPU
    ///
    /// Adds a series for every pair of a device and a CPU that has completed I/O for it: many on a large node.
    #[arg(long, env = "BIOLAT_PER_CPU", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    pub per_cpu: bool,

    /// How far back the in-memory history goes, 1m to 168h; or off
    ///
    /// The history keeps every collection of the last 10 minutes, one interval per 10 s for the last 2 hours, and one per minute
    /// before that. /api/v1/history and `biolat at` use it to show what happened at, say, 03:00. Without --history-file, it is
    /// lost on restart.
    #[arg(long, value_name = "TIME", env = "BIOLAT_HISTORY", hide_env_values = true, default_value = "26h", value_parser = parse_history)]
    pub history: HistoryAge,

    /// Memory limit of the history, 64KiB to 1GiB
    ///
    /// A busy drive takes about 1 MB for 26 hours, and about 0.7 MB more with sizes and workloads. If the limit is reached, sizes
    /// and workloads are dropped first, oldest first; then recent collections are merged; finally the oldest minutes are dropped.
    #[arg(long, value_name = "SIZE", env = "BIOLAT_HISTORY_MEMORY", hide_env_values = true, default_value = "16MiB", value_parser = parse_memory)]
    pub history_memory: MemorySize,

    /// Also write the history to this file and FILE.2, and reload it after a restart
    ///
    /// The files take up to four times --history-memory plus a few MiB. The directory must exist. A file that is not a biolat
    /// history is not overwritten.
    #[arg(long, value_name = "FILE", env = "BIOLAT_HISTORY_FILE", hide_env_values = true)]
    pub history_file: Option<PathBuf>,

    #[command(flatten)]
    pub devices: DeviceOptions,

    #[command(flatten)]
    pub host: Host,

    /// Disable the live page: / becomes a static page, and /api/v1/events is not served
    ///
    /// /api/v1/snapshot stays available for `biolat` and other programs.
    #[arg(long, env = "BIOLAT_NO_UI", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    pub no_ui: bool,

    /// Format of log lines on standard error
    #[arg(
        long,
        value_name = "FORMAT",
        env = "BIOLAT_LOG_FORMAT",
        hide_env_values = true,
        default_value = "text"
    )]
    pub log_format: LogFormat,

    /// Lowest level of messages to log
    #[arg(
        long,
        value_name = "LEVEL",
        env = "BIOLAT_LOG_LEVEL",
        hide_env_values = true,
        default_value = "info"
    )]
    pub log_level: LogLevel,

    /// Have the kernel measure the probe itself: biolat_probe_runs_total and biolat_probe_run_seconds_total
    ///
    /// The kernel then times every BPF program on the host while biolat runs, which costs more than the probe itself. Needs
    /// CAP_SYS_ADMIN.
    #[arg(long, env = "BIOLAT_PROBE_STATS", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    pub probe_stats: bool,

    #[command(flatten)]
    pub pin: PinOption,

    #[command(flatten)]
    pub seccomp: SeccompOptions,
}

/// I/Os that take at least this long are recorded; `None` if recording is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowThreshold(pub Option<Duration>);

/// How far back the history goes; `None` if it is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryAge(pub Option<Duration>);

/// A memory size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySize(pub usize);

/// Commands other than serving.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Check whether biolat works on this host, and show the fix for each failure
    #[command(long_about = check::ABOUT)]
    Check(Box<check::CheckOptions>),
    /// Replaced by the program `biolat`
    #[command(hide = true, disable_help_flag = true)]
    Report {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Remove the probe and state that a daemon with --pin left in a directory; until then the probe keeps counting
    Unpin {
        /// The directory given to --pin
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

impl Cli {
    /// Runs the checks that clap cannot express.
    pub fn validate(self) -> Result<Config, OptionError> {
        let serve = ServeConfig {
            histograms: HistogramFormat {
                schema: self.schema,
                kinds: self.format,
                classic: self.classic_buckets,
            },
            host: self.host.name(),
            interval: self.interval,
            slow: self.slow.0,
            per_cpu: self.per_cpu,
            created: self.openmetrics_created,
            live: !self.no_ui,
            saved: None,
        };
        let history_file = non_empty(self.history_file);
        if history_file.is_some() && self.history.0.is_none() {
            return Err(OptionError(
                "--history-file needs the history: remove --history-file or --history off".into(),
            ));
        }
        Ok(Config {
            web_config: self.listen.web_config(),
            listen: self.listen.listen,
            interval: self.interval,
            serve,
            selection: self.devices.selection()?,
            history: self.history.0.map(|age| HistoryLimits { age, bytes: self.history_memory.0 }),
            history_file,
            host: self.host,
            probe: biolat_probe::Options {
                statistics: self.probe_stats,
                slow: self.slow.0,
                slow_names: self.slow_names.names(),
                sizes: self.sizes.is_on(),
                workloads: self.workloads.limit(),
            },
            volumes: self.volumes.choice(),
            pin: self.pin.folder(),
            seccomp: self.seccomp.is_enabled(),
        })
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    interval::parse(text, interval::Unit::Required, Duration::from_secs(300))
}

fn parse_slow(text: &str) -> Result<SlowThreshold, String> {
    let threshold = if text == "off" { Ok(None) } else { interval::parse_slow(text).map(Some) };
    threshold.map(SlowThreshold).map_err(|error| format!("{error}, or off"))
}

fn parse_history(text: &str) -> Result<HistoryAge, String> {
    const SHORTEST: Duration = Duration::from_secs(60);
    const LONGEST: Duration = Duration::from_secs(168 * 3600);
    if text == "off" {
        return Ok(HistoryAge(None));
    }
    let age = interval::parse(text, interval::Unit::Required, LONGEST).ok().filter(|age| *age >= SHORTEST);
    age.map(|age| HistoryAge(Some(age)))
        .ok_or_else(|| "give a time from 1m to 168h, as in 26h, or off".into())
}

fn parse_memory(text: &str) -> Result<MemorySize, String> {
    const ALLOWED: std::ops::RangeInclusive<usize> = 64 << 10..=1 << 30;
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)].into_iter();
    let mut sizes = units.filter_map(|(unit, shift)| {
        let number: usize = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(1 << shift)
    });
    let size = sizes.next().filter(|size| ALLOWED.contains(size)).map(MemorySize);
    size.ok_or_else(|| "give a size from 64KiB to 1GiB, as in 16MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use biolat_history::HistoryLimits;
    use clap::{CommandFactory as _, Parser as _};

    use super::Cli;
    use crate::expose::{ClassicBuckets, HistogramKinds};

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["biolat-daemon"], arguments].concat())
    }

    #[test]
    fn command_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults() {
        let options = parse(&[]).unwrap();
        assert!(options.listen.listen.is_empty());
        assert_eq!((options.interval, options.schema), (Duration::from_secs(5), 3));
        assert_eq!((options.format, options.classic_buckets), (HistogramKinds::Auto, ClassicBuckets::Few));
        assert!(!options.probe_stats);
        let config = options.validate().unwrap();
        assert_eq!(config.probe.slow, Some(Duration::from_secs(1)));
        assert!(config.selection.shows("nvme0n1") && !config.selection.shows("loop0"));
        assert!(parse(&["--loop"]).unwrap().validate().unwrap().selection.shows("loop0"));
        assert!(config.seccomp && config.serve.live);
        assert!(!parse(&["--no-ui"]).unwrap().validate().unwrap().serve.live);
        assert_eq!(parse(&["--slow", "off"]).unwrap().validate().unwrap().probe.slow, None);
    }

    #[test]
    fn node_name() {
        let shown = |arguments: &[&str]| parse(arguments).unwrap().validate().unwrap().serve.host;
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(shown(&["--node-name", "node1"]), "node1");
        assert_eq!((shown(&[]).as_str(), shown(&["--node-name", ""]).as_str()), (host.trim(), host.trim()));
    }

    #[test]
    fn history() {
        let limits = |arguments: &[&str]| parse(arguments).unwrap().validate().unwrap().history;
        let day = HistoryLimits { age: Duration::from_secs(26 * 3600), bytes: 16 << 20 };
        assert_eq!(limits(&[]), Some(day));
        assert_eq!(limits(&["--history", "off"]), None);
        assert_eq!(
            limits(&["--history", "90m", "--history-memory", "512KiB"]),
            Some(HistoryLimits { age: Duration::from_secs(5400), bytes: 512 << 10 })
        );
        assert_eq!(limits(&["--history-memory", "1GiB"]), Some(HistoryLimits { bytes: 1 << 30, ..day }));
    }

    #[test]
    fn several_addresses() {
        let options = parse(&["--listen", "127.0.0.1:1", "--listen", "[::1]:2,127.0.0.2:3"]).unwrap();
        assert_eq!(options.listen.listen.len(), 3);
    }

    #[test]
    fn errors_name_the_option_and_its_allowed_values() {
        for (arguments, expected) in [
            (["--schema", "4"], "4 is not in 0..=3"),
            (["--format", "histogram"], "auto, native, classic, both"),
            (["--classic-buckets", "12"], "few, all"),
            (["--interval", "1h"], "500ms, 5s or 1m"),
            (["--slow", "10ms"], "from 33ms to 1000s, as in 100ms, 1s or 1m, or off"),
            (["--slow-names", "on"], "off, process, file"),
            (["--history", "30s"], "from 1m to 168h, as in 26h, or off"),
            (["--history", "8d"], "from 1m to 168h, as in 26h, or off"),
            (["--history-memory", "16MB"], "from 64KiB to 1GiB, as in 16MiB"),
            (["--history-memory", "2GiB"], "from 64KiB to 1GiB, as in 16MiB"),
            (["--listen", "everywhere"], "127.0.0.1:9976"),
        ] {
            let text = parse(&arguments).unwrap_err().to_string();
            assert!(text.contains(expected) && text.contains(arguments[0]), "{text}");
        }
        let error = parse(&["--device", "nvme["]).unwrap().validate().unwrap_err().to_string();
        assert_eq!(error, "--device 'nvme[' is not a regular expression: found unclosed character class");
        let error =
            parse(&["--device", "a", "--device-exclude", "*"]).unwrap().validate().unwrap_err().to_string();
        assert!(error.starts_with("--device-exclude '*' is not"), "{error}");
        let config = parse(&["--device", "", "--device-exclude", ""]).unwrap().validate().unwrap();
        assert!(config.selection.shows("sda") && !config.selection.shows("zram0"));
    }
}
