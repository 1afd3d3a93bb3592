//! The command line: raw options, parsed by clap, become one checked [`Config`], so that nothing is found out late.

use std::{ffi::OsStr, fmt, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{
    check,
    device::selection::Selection,
    expose::{HistogramFormat, HistogramKinds},
    host::Host,
    report, version,
};

/// The exit status of an option that is wrong.
pub const USAGE: u8 = 2;

const ABOUT: &str = "Latency of every block I/O, as Prometheus native histograms, from one eBPF probe";

const LONG_ABOUT: &str = "Measures the latency of every block I/O on this host and serves it to Prometheus.

One eBPF program runs at the completion of each block request, reads the time stamps that the kernel keeps \
anyway and adds to histograms of its own CPU. On an interval the daemon sums them, checks them against the \
kernel's own disk statistics, and serves them on /metrics, by device and op:

  biolat_queue_latency_seconds   from the making of a request to its hand-over to the driver
  biolat_device_latency_seconds  from the hand-over to completion
  biolat_total_latency_seconds   both

It takes root, or the capabilities CAP_BPF and CAP_PERFMON, and gives up what it has once the probe is attached.";

const LISTEN: &str = "Address and port to serve on; may be given more than once [default: 0.0.0.0:9976]

An IPv6 address stands in brackets: [::]:9976. Without an address, :9976, it is every IPv4 address. Sockets that \
systemd hands over (a .socket unit) are served on too, and alone if this is not given.";

const EXAMPLES: &str = "Examples:
  biolat-daemon                                        serve on port 9976 of every address
  biolat-daemon --listen 127.0.0.1:9976 --listen [::1]:9976
  biolat-daemon --device 'nvme.*' --interval 1s        NVMe drives only, fresh each second
  curl -s localhost:9976/metrics | grep total_latency_seconds_count

Every option can be given in the environment too, as shown. Exit status: 0 after SIGTERM or SIGINT, 1 if it \
cannot run, 2 for a wrong option or web config, though 1 for what is wrong in a file that the web config names.";

/// Options as they are given.
#[derive(Parser, Debug)]
#[command(name = "biolat-daemon", version = version::LONG, about = ABOUT, long_about = LONG_ABOUT)]
#[command(after_long_help = EXAMPLES, max_term_width = 110, args_conflicts_with_subcommands = true)]
pub struct Options {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Address and port to serve on; may be given more than once [default: 0.0.0.0:9976]
    #[arg(long, value_name = "ADDR:PORT", env = "BIOLAT_LISTEN", hide_env_values = true)]
    #[arg(value_delimiter = ',', value_parser = listen, long_help = LISTEN)]
    pub listen: Vec<SocketAddr>,

    /// File that says how to serve: TLS, passwords, headers
    ///
    /// Its format is the one that Prometheus' exporters share: tls_server_config, basic_auth_users (bcrypt hashes)
    /// and http_server_config. Files that it names are relative to it. All of them are read again when they change.
    #[arg(long, value_name = "FILE", env = "BIOLAT_WEB_CONFIG", hide_env_values = true)]
    pub web_config: Option<PathBuf>,

    /// How often the kernel's counters are read, 100ms to 5m
    ///
    /// A scrape gets the figures of the latest read. Set it no longer than the scrape interval.
    #[arg(long, value_name = "TIME", env = "BIOLAT_INTERVAL", hide_env_values = true, default_value = "5s", value_parser = interval)]
    pub interval: Duration,

    /// Resolution of native histograms: 2^SCHEMA buckets for each power of two, 0 to 3
    ///
    /// 3 is a bucket every 9 %, 0 one every 100 %. The kernel counts at 3; coarser ones are merged from it.
    #[arg(long, value_name = "SCHEMA", env = "BIOLAT_SCHEMA", hide_env_values = true, default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=3))]
    pub schema: u32,

    /// Which histograms to expose
    #[arg(long, value_name = "KIND", env = "BIOLAT_FORMAT", hide_env_values = true, default_value = "both")]
    pub format: HistogramKinds,

    /// Show only devices whose whole name matches this regular expression
    ///
    /// By default every device that has requests of its own, loop devices while a file is attached to them.
    #[arg(long, value_name = "REGEX", env = "BIOLAT_DEVICE", hide_env_values = true)]
    pub device: Option<String>,

    /// Leave out devices whose whole name matches this regular expression
    ///
    /// By default, without --device, the disks made of memory: ^z?ram[0-9]+$
    #[arg(long, value_name = "REGEX", env = "BIOLAT_DEVICE_EXCLUDE", hide_env_values = true)]
    pub device_exclude: Option<String>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would take it for the command's own text")]
    pub roots: Roots,

    /// Serve no live page: `/` is a plain list of what there is, and nothing is told as it happens
    ///
    /// /api/v1/snapshot stays, as `biolat-daemon report --from` and other programs read it; /api/v1/events goes.
    #[arg(long, env = "BIOLAT_NO_UI", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    pub no_ui: bool,

    /// How log lines are written, to standard error
    #[arg(
        long,
        value_name = "FORMAT",
        env = "BIOLAT_LOG_FORMAT",
        hide_env_values = true,
        default_value = "text"
    )]
    pub log_format: LogFormat,

    /// Have the kernel measure the probe itself: biolat_probe_runs_total and biolat_probe_run_seconds_total
    ///
    /// The kernel then takes the time around every BPF program on the host, which costs more than the probe
    /// does, until biolat ends. It takes CAP_SYS_ADMIN.
    #[arg(long, env = "BIOLAT_PROBE_STATS", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    pub probe_stats: bool,

    /// Do not filter system calls
    ///
    /// Once the probe is attached biolat gives up its capabilities, and a seccomp filter leaves it only the calls
    /// that it makes. This leaves out the filter, should it be in the way of a debugger or of an unusual C library.
    #[arg(long, env = "BIOLAT_NO_SECCOMP", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    pub no_seccomp: bool,
}

// Where the host's facts are. No text of its own: clap would take it for that of the command that has these options.
#[derive(Args, Clone, Debug)]
#[allow(missing_docs, reason = "as above")]
pub struct Roots {
    /// Where sysfs is mounted
    #[arg(long, value_name = "DIR", env = "BIOLAT_SYSFS", hide_env_values = true, default_value = "/sys")]
    pub sysfs: PathBuf,

    /// Where procfs is mounted
    #[arg(long, value_name = "DIR", env = "BIOLAT_PROCFS", hide_env_values = true, default_value = "/proc")]
    pub procfs: PathBuf,
}

impl Roots {
    /// As the probe and the collector want it.
    #[must_use]
    pub fn host(&self) -> Host {
        Host { sysfs: self.sysfs.clone(), procfs: self.procfs.clone() }
    }
}

/// What to do instead of serving.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Say what works here, what does not, and the command that mends it
    #[command(long_about = check::ABOUT)]
    Check(check::Options),
    /// Show latencies in the terminal, like biolatency
    Report(Box<report::Options>),
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object a line.
    Json,
}

/// What the daemon runs with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to serve, beside what systemd hands over.
    pub listen: Vec<SocketAddr>,
    /// Who may read, and how.
    pub web_config: Option<PathBuf>,
    /// How often to read.
    pub interval: Duration,
    /// What histograms look like.
    pub histograms: HistogramFormat,
    /// Whether the page at `/` is live, and passes are told as they end.
    pub live: bool,
    /// Which devices are shown.
    pub selection: Selection,
    /// Where the host's facts are.
    pub host: Host,
    /// Whether the kernel is to measure the probe.
    pub probe_stats: bool,
    /// Whether system calls are filtered once the probe is attached.
    pub seccomp: bool,
}

/// An option that does not hold, in one line.
#[derive(Debug)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Options {
    /// Checks what clap cannot.
    pub fn check(self) -> Result<Config, Refused> {
        Ok(Config {
            listen: self.listen,
            web_config: given(self.web_config),
            interval: self.interval,
            histograms: HistogramFormat { schema: self.schema, kinds: self.format },
            live: !self.no_ui,
            selection: selection(self.device, self.device_exclude)?,
            host: self.roots.host(),
            probe_stats: self.probe_stats,
            seccomp: !self.no_seccomp,
        })
    }
}

/// What the environment holds empty is not given.
pub(crate) fn given<T: AsRef<OsStr>>(value: Option<T>) -> Option<T> {
    value.filter(|value| !value.as_ref().is_empty())
}

/// Of what `--device` and `--device-exclude` say.
pub(crate) fn selection(device: Option<String>, exclude: Option<String>) -> Result<Selection, Refused> {
    let (include, exclude) = (given(device), given(exclude));
    Selection::new(include.as_deref(), exclude.as_deref()).map_err(|bad| {
        let (option, pattern) =
            if bad.exclude { ("--device-exclude", exclude) } else { ("--device", include) };
        let pattern = pattern.unwrap_or_default();
        Refused(format!("{option} '{pattern}' is not a regular expression: {}", bad.reason))
    })
}

/// The value of `--listen`.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    full.parse().map_err(|_| "give an address and a port, as in 127.0.0.1:9976 or [::1]:9976".to_owned())
}

/// A number and a unit: 500ms, 5s, 1m.
fn interval(text: &str) -> Result<Duration, String> {
    const ALLOWED: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(300);
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err("give a number and a unit, as in 500ms, 5s or 1m".to_owned()),
    };
    let seconds = number.parse::<f64>().map_err(|_| format!("'{number}' is not a number"))? * scale;
    let interval = Duration::try_from_secs_f64(seconds).map_err(|_| "out of range".to_owned())?;
    if ALLOWED.contains(&interval) { Ok(interval) } else { Err("allowed is from 100ms to 5m".to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{CommandFactory as _, Parser as _};

    use super::{Options, interval, listen};
    use crate::expose::HistogramKinds;

    fn parse(arguments: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from([&["biolat-daemon"], arguments].concat())
    }

    #[test]
    fn clap_is_content() {
        Options::command().debug_assert();
    }

    #[test]
    fn defaults() {
        let options = parse(&[]).unwrap();
        assert!(options.listen.is_empty());
        assert_eq!((options.interval, options.schema), (Duration::from_secs(5), 3));
        assert_eq!(options.format, HistogramKinds::Both);
        assert!(!options.probe_stats);
        let config = options.check().unwrap();
        assert!(config.selection.shows("nvme0n1") && !config.selection.shows("zram0"));
        assert!(config.seccomp && config.live);
        assert!(!parse(&["--no-ui"]).unwrap().check().unwrap().live);
    }

    #[test]
    fn addresses() {
        assert_eq!(listen("[::1]:9976"), Ok("[::1]:9976".parse().unwrap()));
        assert_eq!(listen(":80"), Ok("0.0.0.0:80".parse().unwrap()));
        assert!(listen("9976").is_err() && listen("::1:9976").is_err() && listen("localhost:x").is_err());
        let options = parse(&["--listen", "127.0.0.1:1", "--listen", "[::1]:2,127.0.0.2:3"]).unwrap();
        assert_eq!(options.listen.len(), 3);
    }

    #[test]
    fn intervals() {
        assert_eq!(interval("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(interval("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(interval("5m"), Ok(Duration::from_secs(300)));
        for wrong in ["99ms", "6m", "5", "s", "-1s", "1h", "", "1e9s", "NaNs"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (arguments, expected) in [
            (["--schema", "4"], "4 is not in 0..=3"),
            (["--format", "histogram"], "native, classic, both"),
            (["--interval", "1h"], "500ms, 5s or 1m"),
            (["--listen", "everywhere"], "127.0.0.1:9976"),
        ] {
            let text = parse(&arguments).unwrap_err().to_string();
            assert!(text.contains(expected) && text.contains(arguments[0]), "{text}");
        }
        let refused = parse(&["--device", "nvme["]).unwrap().check().unwrap_err().to_string();
        assert_eq!(refused, "--device 'nvme[' is not a regular expression: found unclosed character class");
        let refused =
            parse(&["--device", "a", "--device-exclude", "*"]).unwrap().check().unwrap_err().to_string();
        assert!(refused.starts_with("--device-exclude '*' is not"), "{refused}");
        let config = parse(&["--device", "", "--device-exclude", ""]).unwrap().check().unwrap();
        assert!(config.selection.shows("sda") && !config.selection.shows("zram0"));
    }
}
