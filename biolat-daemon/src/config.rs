//! The daemon's validated configuration.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use biolat_collect::collector::MeasureVolumes;
use biolat_history::HistoryLimits;
use biolat_model::device::Selection;
use biolat_probe::Options;
use biolat_system::host::Host;

use crate::http::ServeConfig;

/// Configuration of the daemon, validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to serve on, in addition to sockets passed by systemd.
    pub listen: Vec<SocketAddr>,
    pub web_config: Option<PathBuf>,
    /// Time between two collections.
    pub interval: Duration,
    pub serve: ServeConfig,
    /// Which devices are shown.
    pub selection: Selection,
    pub host: Host,
    pub probe: Options,
    pub volumes: MeasureVolumes,
    /// Directory where the probe is kept for the next daemon.
    pub pin: Option<PathBuf>,
    /// Age and size limits of the history; `None`: no history.
    pub history: Option<HistoryLimits>,
    /// File to which the history is also written.
    pub history_file: Option<PathBuf>,
    /// Whether system calls are filtered once the probe is attached.
    pub seccomp: bool,
}
