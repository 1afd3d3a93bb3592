//! Options that several commands share. The short ones are the same as biolatency's.

// The structs have no doc comments: clap would show them as the help text of the command that uses the options.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, anyhow};
use biolat_client::{Credentials, Target};
use biolat_daemon::shared_options::SeccompOptions;
use biolat_model::{device::Selection, interval};
use biolat_system::{host::Host, terminal::Color};
use clap::{Args, ValueEnum, builder::TypedValueParser, error::ErrorKind};

use super::past_time::PastTime;

// The source of the figures, the devices, and the output format: for every command but check and open.
#[derive(Args, Clone, Debug)]
pub struct CommonOptions {
    #[command(flatten)]
    pub source: SourceOptions,

    #[command(flatten)]
    pub devices: DeviceOptions,

    /// Print JSON, one object per line
    #[arg(short, long)]
    pub json: bool,

    /// When to use colours; NO_COLOR in the environment also turns them off
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_short_help = true)]
    pub color: Color,

    #[command(flatten)]
    pub machine: MachineOptions,
}

impl CommonOptions {
    /// Fills in the options given before the command, as in `biolat --host db1 who`.
    #[must_use]
    pub fn or(self, before: &Self) -> Self {
        Self {
            source: self.source.or(&before.source),
            devices: if self.devices.is_default() { before.devices.clone() } else { self.devices },
            json: self.json || before.json,
            color: if self.color == Color::Auto { before.color } else { self.color },
            machine: self.machine,
        }
    }
}

// Which daemon to ask.
#[derive(Args, Clone, Debug)]
pub struct SourceOptions {
    /// Ask the daemon on HOST, HOST:PORT or at a URL [env: BIOLAT_HOST]
    ///
    /// Root is not required. HOST stands for http://HOST:9976. A window is then the interval between that daemon's collections
    /// (its --interval), or a multiple of it. A password in the URL is visible in the process list: use --user instead.
    #[arg(long, value_name = "HOST", value_parser = Url, help_heading = "Source")]
    pub host: Option<Target>,

    /// User name, if that daemon requires one
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    pub user: Option<String>,

    /// File with the password, if it is not in BIOLAT_PASSWORD
    #[arg(long, value_name = "FILE", help_heading = "Source")]
    pub password_file: Option<PathBuf>,

    /// Certificates to trust, in PEM format: a CA's, or the daemon's own
    #[arg(long, value_name = "FILE", help_heading = "Source")]
    pub ca_file: Option<PathBuf>,
}

/// The environment variable for `--host`.
const HOST_VARIABLE: &str = "BIOLAT_HOST";

impl SourceOptions {
    /// Takes the host from the environment if none is given. Not left to clap, which would prefer the variable to a `--host`
    /// before the command.
    pub fn or_environment(self) -> Result<Self, String> {
        let named = || std::env::var(HOST_VARIABLE).ok().filter(|host| !host.is_empty());
        let host = match (self.host, named()) {
            (None, Some(host)) => {
                Some(Target::parse(&host).map_err(|why| format!("{HOST_VARIABLE}: {why}"))?)
            }
            (host, _) => host,
        };
        Ok(Self { host, ..self })
    }

    pub fn credentials(&self) -> Credentials {
        Credentials {
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            ca_file: self.ca_file.clone(),
        }
    }

    fn or(self, before: &Self) -> Self {
        Self {
            host: self.host.or_else(|| before.host.clone()),
            user: self.user.or_else(|| before.user.clone()),
            password_file: self.password_file.or_else(|| before.password_file.clone()),
            ca_file: self.ca_file.or_else(|| before.ca_file.clone()),
        }
    }
}

// Which devices to show.
#[derive(Args, Clone, Debug)]
pub struct DeviceOptions {
    /// Only devices whose whole name matches REGEX, such as nvme.*
    ///
    /// Separate several with commas, or repeat the option. The default is every device that has requests of its own, except
    /// loop devices and floppy disks; for a daemon, every device that it shows.
    #[arg(short, long = "device", value_name = "REGEX", value_parser = devices)]
    pub devices: Vec<String>,

    /// Include loop devices that have a file attached
    #[arg(long = "loop", conflicts_with = "host", hide_short_help = true)]
    pub has_loops: bool,
}

impl DeviceOptions {
    const fn is_default(&self) -> bool {
        self.devices.is_empty() && !self.has_loops
    }

    /// `None` if neither option was given.
    pub fn selection(&self) -> Result<Option<Selection>> {
        if self.is_default() {
            return Ok(None);
        }
        let include = (!self.devices.is_empty()).then(|| self.devices.join(","));
        let selection = Selection::new(include.as_deref(), None);
        let selection = selection.map_err(|bad| anyhow!("--device: {}", bad.reason))?;
        Ok(Some(if self.has_loops { selection.with_loops() } else { selection }))
    }
}

// The host to measure, if biolat runs its own probe.
#[derive(Args, Clone, Debug)]
pub struct MachineOptions {
    /// Mount point of sysfs
    #[arg(long, value_name = "DIR", env = "BIOLAT_SYSFS", hide_env_values = true, default_value = "/sys")]
    #[arg(help_heading = "Measuring on this host", hide_short_help = true)]
    sysfs: PathBuf,

    /// Mount point of procfs
    #[arg(long, value_name = "DIR", env = "BIOLAT_PROCFS", hide_env_values = true, default_value = "/proc")]
    #[arg(help_heading = "Measuring on this host", hide_short_help = true)]
    procfs: PathBuf,

    /// Directory of the kubelet's links to container logs, for pod names
    #[arg(long, value_name = "DIR", env = "BIOLAT_CONTAINER_LOGS", hide_env_values = true)]
    #[arg(
        default_value = "/var/log/containers",
        help_heading = "Measuring on this host",
        hide_short_help = true
    )]
    container_logs: PathBuf,

    #[command(flatten)]
    pub seccomp: SeccompOptions,
}

impl MachineOptions {
    /// The host that these options describe.
    pub fn host(&self) -> Host {
        Host {
            node_name: None,
            sysfs: self.sysfs.clone(),
            procfs: self.procfs.clone(),
            cgroupfs: None,
            container_logs: self.container_logs.clone(),
        }
    }
}

// Live windows.
#[derive(Args, Clone, Debug)]
pub struct WindowOptions {
    /// Window length: seconds, 500ms, 2m [default: one window until Ctrl-C]
    #[arg(value_parser = window)]
    pub interval: Option<Duration>,

    /// Number of windows [default: until Ctrl-C]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Print the time at which each window ends
    #[arg(short = 'T', long)]
    pub timestamp: bool,
}

// A past range instead of now.
#[derive(Args, Clone, Debug, Default)]
pub struct RangeOptions {
    /// A past time instead of now: 03:00 (local), -2h or 2026-01-05T03:00:00Z
    ///
    /// 03:00 means 03:00 today by this host's clock, or yesterday if it is not 03:00 yet.
    #[arg(long, value_name = "TIME", value_parser = PastTime::parse, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["since", "until"], help_heading = "The past")]
    pub at: Option<PastTime>,

    /// One window of this length, starting now or at --at [default with --at: 1m]
    #[arg(long = "for", value_name = "TIME", conflicts_with = "since", value_parser = window)]
    #[arg(help_heading = "The past")]
    pub length: Option<Duration>,

    /// Everything since a past time
    #[arg(long, value_name = "TIME", value_parser = PastTime::parse, allow_hyphen_values = true)]
    #[arg(help_heading = "The past")]
    pub since: Option<PastTime>,

    /// End of the range that starts at --since [default: now]
    #[arg(long, value_name = "TIME", requires = "since", value_parser = PastTime::parse, allow_hyphen_values = true)]
    #[arg(help_heading = "The past")]
    pub until: Option<PastTime>,
}

impl RangeOptions {
    pub const fn is_given(&self) -> bool {
        self.at.is_some() || self.since.is_some()
    }
}

// A saved history instead of a daemon's.
#[derive(Args, Clone, Debug, Default)]
pub struct FileOption {
    /// Instead of asking a daemon, read a file written by `biolat save`
    ///
    /// -2h, 03:00 and the end of --since are then relative to the time when the file was saved. - is standard input.
    #[arg(long, value_name = "FILE", help_heading = "The past")]
    #[arg(conflicts_with_all = ["host", "user", "password_file", "ca_file", "has_loops"])]
    pub file: Option<PathBuf>,
}

// The form of a histogram.
#[derive(Args, Clone, Debug, Default)]
pub struct HistogramOptions {
    /// One histogram per device
    #[arg(short = 'D', long)]
    pub by_device: bool,

    /// One histogram per device, per volume (LVM, LUKS, md), or per Kubernetes persistent volume claim
    ///
    /// claim shows the figures of the nearest devices, under the name of the persistent volume, because biolat does not ask
    /// Kubernetes: `kubectl get pv` lists the claim of each volume. If other volumes or programs use the same device, their I/O is
    /// included.
    #[arg(
        long,
        value_name = "device|volume|claim",
        conflicts_with = "by_device",
        hide_possible_values = true
    )]
    pub by: Option<By>,

    /// One histogram per op: read, write, flush, …
    #[arg(short = 'F', long)]
    pub by_op: bool,

    /// Include OS queue time: total latency instead of device latency
    #[arg(short = 'Q', long, conflicts_with = "phases")]
    pub queued: bool,

    /// Admission, queue, device and total latency side by side
    ///
    /// Admission is the wait before a request exists: for writeback throttling, io.cost, io.latency, or a free tag. It is not
    /// part of the total, and some kernels do not record it. Since Linux 5.18 no latency includes a wait for io.max; with
    /// cgroup v2, the findings name workloads that wait for it.
    #[arg(short = 'P', long)]
    pub phases: bool,

    /// One row per bucket, eight per power of two
    #[arg(long, hide_short_help = true)]
    pub fine: bool,

    /// Latencies in milliseconds
    #[arg(short, long)]
    pub milliseconds: bool,
}

/// What each histogram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// A drive or a volume; the same as -D
    Device,
    /// A volume: LVM, LUKS, md and others
    Volume,
    /// A persistent volume claim, by the volume's name
    Claim,
}

/// Parses a [`Target`]. Unlike the errors of clap's own parsers, its errors do not quote the value, which can contain a password.
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
            |why: String| command.clone().error(ErrorKind::ValueValidation, format!("--host: {why}"));
        Target::parse(&text.to_string_lossy()).map_err(refused)
    }
}

/// Parses the length of a window.
pub(super) fn window(text: &str) -> Result<Duration, String> {
    interval::parse(text, interval::Unit::Optional, Duration::from_secs(86_400))
}

/// Checks a list of regular expressions.
fn devices(text: &str) -> Result<String, String> {
    match Selection::new(Some(text), None) {
        Ok(_) => Ok(text.to_owned()),
        Err(bad) => Err(format!("'{text}' is not a regular expression: {}", bad.reason)),
    }
}

#[cfg(test)]
mod tests;
