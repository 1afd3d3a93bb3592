//! Options that several commands have.

// The structs have no doc comments: clap would use them as the help text of the command that has these options.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use biolat_model::device::Selection;
use biolat_probe::DEFAULT_WORKLOADS;
use clap::Args;

use crate::option_values::{OptionError, non_empty, parse_address};

const LISTEN: &str = "Address and port to serve on; may be given more than once [default: 0.0.0.0:9976]

Write an IPv6 address in brackets: [::]:9976. A port alone, :9976, means all IPv4 addresses. If systemd passes sockets \
(a .socket unit), they are served too, and the default address is not.";

// Where the daemon serves, and to whom.
#[derive(Args, Debug)]
pub struct ListenOptions {
    /// Address and port to serve on; may be given more than once [default: 0.0.0.0:9976]
    #[arg(long, value_name = "ADDR:PORT", env = "BIOLAT_LISTEN", hide_env_values = true)]
    #[arg(value_delimiter = ',', value_parser = parse_address, long_help = LISTEN)]
    pub listen: Vec<SocketAddr>,

    /// Web config file: TLS, passwords, headers
    ///
    /// In the format of Prometheus' exporters: tls_server_config, basic_auth_users (bcrypt hashes) and http_server_config.
    /// Paths in it are relative to its directory. It and the files it names are reloaded when they change.
    #[arg(long, value_name = "FILE", env = "BIOLAT_WEB_CONFIG", hide_env_values = true)]
    web_config: Option<OsString>,
}

impl ListenOptions {
    /// The web config's path; none if it is empty.
    pub fn web_config(&self) -> Option<PathBuf> {
        // clap accepts no empty path.
        non_empty(self.web_config.clone()).map(PathBuf::from)
    }
}

// Which devices are shown.
#[derive(Args, Debug)]
pub struct DeviceOptions {
    /// Select only devices whose whole name matches this regular expression
    ///
    /// Separate several with commas. By default all request-based devices but loop devices and floppy disks, which node_exporter
    /// leaves out, too. Where there are only loop devices, these are shown.
    #[arg(long, value_name = "REGEX", env = "BIOLAT_DEVICE", hide_env_values = true)]
    device: Option<String>,

    /// Exclude devices whose whole name matches this regular expression
    #[arg(long, value_name = "REGEX", env = "BIOLAT_DEVICE_EXCLUDE", hide_env_values = true)]
    device_exclude: Option<String>,

    /// Select loop devices that have a file attached, too
    #[arg(long = "loop", env = "BIOLAT_LOOP", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    has_loops: bool,
}

impl DeviceOptions {
    /// The selection by both options.
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
    /// Count requests by size, and their latencies by ranges of sizes: on or off
    ///
    /// off saves 1664 bytes of kernel memory per device, op and CPU, and a few nanoseconds per I/O.
    #[arg(long, value_name = "ON|OFF", env = "BIOLAT_SIZES", hide_env_values = true, default_value = "on")]
    #[arg(hide_possible_values = true)]
    sizes: OnOff,
}

// How many workloads are told apart.
#[derive(Args, Clone, Copy, Debug)]
pub struct WorkloadsOption {
    /// Count I/O by workload (cgroup), up to this many, or off
    ///
    /// A workload is the cgroup that the kernel charges: a service, a container, a session. Those beyond are counted together,
    /// as other. off saves kernel memory, 512 KiB per CPU and 64 MiB at most, and some 40 ns per I/O.
    #[arg(long, value_name = "N|off", env = "BIOLAT_WORKLOADS", hide_env_values = true)]
    #[arg(default_value_t = DEFAULT_WORKLOADS, value_parser = parse_workloads)]
    workloads: u32,
}

/// As many as the cgroups of a large host.
const MAX_WORKLOADS: u32 = 10_000;

fn parse_workloads(text: &str) -> Result<u32, String> {
    match text {
        "off" => Ok(0),
        _ => text
            .parse()
            .ok()
            .filter(|limit| (1..=MAX_WORKLOADS).contains(limit))
            .ok_or_else(|| format!("it must be a number from 1 to {MAX_WORKLOADS}, or off")),
    }
}

impl WorkloadsOption {
    /// 0 if it is off.
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
    /// Folder of a BPF file system in which the probe is kept for the next daemon, so that a restart is not a reset
    ///
    /// For containers; as a service of systemd, biolat keeps it without this. The probe then goes on when the daemon ends, until
    /// another daemon takes it over or `biolat-daemon unpin` removes it. The daemon must be able to write to the folder, and
    /// makes it where its parent is on a BPF file system.
    #[arg(long, value_name = "DIR", env = "BIOLAT_PIN", hide_env_values = true)]
    pin: Option<OsString>,
}

impl PinOption {
    /// None if it is empty.
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
    /// makes. This option disables the filter, in case it breaks a debugger or an unusual C library.
    #[arg(long, env = "BIOLAT_NO_SECCOMP", hide_env_values = true, hide_short_help = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    no_seccomp: bool,
}

impl SeccompOptions {
    pub const fn is_enabled(self) -> bool {
        !self.no_seccomp
    }
}
