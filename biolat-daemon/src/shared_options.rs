//! Options shared by several commands.

// The structs have plain comments: clap would use doc comments as the help text of the commands that flatten them.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use biolat_collect::collector::MeasureVolumes;
use biolat_model::device::Selection;
use biolat_probe::{DEFAULT_WORKLOADS, SlowNames};
use clap::Args;

use crate::option_values::{OptionError, non_empty, parse_address};

const LISTEN: &str = "Address and port to serve on; can be repeated [default: 0.0.0.0:9976]

Write an IPv6 address in brackets: [::]:9976. A port alone, :9976, means all IPv4 addresses. Sockets passed by systemd \
(from a .socket unit) are served as well and replace the default address.";

// Where the daemon serves, and to whom.
#[derive(Args, Debug)]
pub struct ListenOptions {
    /// Address and port to serve on; can be repeated [default: 0.0.0.0:9976]
    #[arg(long, value_name = "ADDR:PORT", env = "BIOLAT_LISTEN", hide_env_values = true)]
    #[arg(value_delimiter = ',', value_parser = parse_address, long_help = LISTEN)]
    pub listen: Vec<SocketAddr>,

    /// Web config file: TLS, passwords, headers
    ///
    /// Same format as for Prometheus exporters: tls_server_config, basic_auth_users (bcrypt hashes) and http_server_config.
    /// Paths in it are relative to its directory. The file and the files it names are reloaded when they change.
    #[arg(long, value_name = "FILE", env = "BIOLAT_WEB_CONFIG", hide_env_values = true)]
    web_config: Option<OsString>,
}

impl ListenOptions {
    /// Path of the web config; `None` if absent or empty.
    pub fn web_config(&self) -> Option<PathBuf> {
        // An `OsString` option, because clap rejects an empty `PathBuf`.
        non_empty(self.web_config.clone()).map(PathBuf::from)
    }
}

// Which devices are shown.
#[derive(Args, Debug)]
pub struct DeviceOptions {
    /// Show only devices whose full name matches this regular expression
    ///
    /// Separate several expressions with commas. Default: all request-based devices except loop devices and floppy disks,
    /// which node_exporter also ignores. On a host that has only loop devices, those are shown.
    #[arg(long, value_name = "REGEX", env = "BIOLAT_DEVICE", hide_env_values = true)]
    device: Option<String>,

    /// Exclude devices whose full name matches this regular expression
    #[arg(long, value_name = "REGEX", env = "BIOLAT_DEVICE_EXCLUDE", hide_env_values = true)]
    device_exclude: Option<String>,

    /// Also show loop devices that have a file attached
    #[arg(long = "loop", env = "BIOLAT_LOOP", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    has_loops: bool,
}

impl DeviceOptions {
    /// Builds the device selection from these options.
    pub fn selection(self) -> Result<Selection, OptionError> {
        let (include, exclude) = (non_empty(self.device), non_empty(self.device_exclude));
        let selection = Selection::new(include.as_deref(), exclude.as_deref()).map_err(|bad| {
            let (option, pattern) =
                if bad.exclude { ("--device-exclude", exclude) } else { ("--device", include) };
            let pattern = pattern.unwrap_or_default();
            OptionError(format!("{option} '{pattern}' is not a regular expression: {}", bad.reason))
        })?;
        Ok(if self.has_loops { selection.with_loops() } else { selection })
    }
}

// Whether requests are counted by size.
#[derive(Args, Clone, Copy, Debug)]
pub struct SizesOption {
    /// Count requests by size, and latencies by size range: on or off
    ///
    /// off saves 1664 bytes of kernel memory per device, op and CPU, and a few nanoseconds per I/O.
    #[arg(long, value_name = "ON|OFF", env = "BIOLAT_SIZES", hide_env_values = true, default_value = "on")]
    #[arg(hide_possible_values = true)]
    sizes: OnOff,
}

// What the records of slow and failed I/Os name.
#[derive(Args, Clone, Copy, Debug)]
pub struct SlowNamesOption {
    /// Name the process, or the process and the file, of each slow or failed I/O; or off
    ///
    /// File names can be confidential: they appear in the API, the history, the page, the log and the output of biolat. Exemplars
    /// have only the numbers of the process and the inode. Naming costs a few microseconds per record, and nothing per I/O.
    #[arg(long, value_name = "off|process|file", env = "BIOLAT_SLOW_NAMES", hide_env_values = true)]
    #[arg(default_value = "file", hide_possible_values = true)]
    slow_names: NamedParts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum NamedParts {
    Off,
    Process,
    File,
}

impl SlowNamesOption {
    pub fn names(self) -> SlowNames {
        match self.slow_names {
            NamedParts::Off => SlowNames::Off,
            NamedParts::Process => SlowNames::Process,
            NamedParts::File => SlowNames::File,
        }
    }
}

// Whether volumes are measured.
#[derive(Args, Clone, Copy, Debug)]
pub struct VolumesOption {
    /// Measure volumes: dm, md, zram and other devices without requests of their own: auto, on or off
    ///
    /// auto leaves out RAM disks (zram, brd), like node_exporter; on includes them, and fails if this kernel lacks what is needed.
    /// The programs that measure volumes are attached only while there are volumes to show. Then one more
    /// program runs for each bio of any device, which costs about 70 ns.
    #[arg(long, value_name = "auto|on|off", env = "BIOLAT_VOLUMES", hide_env_values = true)]
    #[arg(default_value = "auto", hide_possible_values = true)]
    volumes: AutoOnOff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum AutoOnOff {
    Auto,
    On,
    Off,
}

impl VolumesOption {
    pub fn choice(self) -> MeasureVolumes {
        match self.volumes {
            AutoOnOff::Auto => MeasureVolumes::Auto,
            AutoOnOff::On => MeasureVolumes::On,
            AutoOnOff::Off => MeasureVolumes::Off,
        }
    }
}

// How many workloads are counted separately.
#[derive(Args, Clone, Copy, Debug)]
pub struct WorkloadsOption {
    /// Count I/O by workload (cgroup), up to this many, or off
    ///
    /// A workload is the cgroup that the kernel charges the I/O to: a service, a container, a session. I/O of further
    /// cgroups is counted as other. off saves kernel memory (512 KiB per CPU, at most 64 MiB) and about 40 ns per I/O.
    #[arg(long, value_name = "N|off", env = "BIOLAT_WORKLOADS", hide_env_values = true)]
    #[arg(default_value_t = DEFAULT_WORKLOADS, value_parser = parse_workloads)]
    workloads: u32,
}

/// Enough for all cgroups of a large host.
const MAX_WORKLOADS: u32 = 10_000;

fn parse_workloads(text: &str) -> Result<u32, String> {
    match text {
        "off" => Ok(0),
        _ => text
            .parse()
            .ok()
            .filter(|limit| (1..=MAX_WORKLOADS).contains(limit))
            .ok_or_else(|| format!("give a number from 1 to {MAX_WORKLOADS}, or off")),
    }
}

impl WorkloadsOption {
    /// The number of workloads; 0 if off.
    pub fn limit(self) -> u32 {
        self.workloads
    }
}

/// The value of an option that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OnOff {
    On,
    Off,
}

impl SizesOption {
    pub fn is_on(self) -> bool {
        self.sizes == OnOff::On
    }
}

// Where the probe is kept for the next daemon.
#[derive(Args, Clone, Debug)]
pub struct PinOption {
    /// Directory on a BPF file system where the probe is kept, so that counters survive a restart
    ///
    /// For containers; a systemd service does not need it. The probe keeps counting after the daemon ends, until another daemon
    /// takes it over or `biolat-daemon unpin` removes it. The daemon must be able to write to the directory. It creates the
    /// directory if the parent is on a BPF file system.
    #[arg(long, value_name = "DIR", env = "BIOLAT_PIN", hide_env_values = true)]
    pin: Option<OsString>,
}

impl PinOption {
    /// The directory; `None` if absent or empty.
    pub fn folder(&self) -> Option<PathBuf> {
        non_empty(self.pin.clone()).map(PathBuf::from)
    }
}

// Whether system calls are filtered.
#[derive(Args, Clone, Copy, Debug)]
pub struct SeccompOptions {
    /// Do not filter system calls
    ///
    /// Once the probe is attached, biolat drops its capabilities and installs a seccomp filter that allows only the calls it
    /// makes. Use this option if the filter breaks a debugger or an unusual C library.
    #[arg(long, env = "BIOLAT_NO_SECCOMP", hide_env_values = true, hide_short_help = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    no_seccomp: bool,
}

impl SeccompOptions {
    pub const fn is_enabled(self) -> bool {
        !self.no_seccomp
    }
}
