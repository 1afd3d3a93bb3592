//! `biolat-daemon check`: what works here, what does not, and what to do about it.
//!
//! Each subject is a function from facts to findings; only this file and what it calls to collect facts looks at the
//! host. Nothing there is changed: the probe is loaded at most, attached to nothing and thrown away, and nobody is
//! connected to but who has the address that is to be listened on.

mod devices;
mod files;
mod finding;
mod guards;
mod json;
mod kernel;
mod memory;
mod neighbour;
mod port;
mod process;
mod rights;
mod text;
mod trial;

use std::{
    fs,
    io::{self, IsTerminal as _, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use biolat_common::series::Series;
use caps::Capability::CAP_SYS_RESOURCE;
use clap::Args;
use rustix::process::Resource;

use crate::{
    collect::slots_at_start,
    config::{self, EXIT_USAGE, OptionError},
    device::{self, IdKind, selection::Selection},
    host::Host,
    listen,
    probe::{self, in_whole_chunks, kernel::Kernel, release::Release, slot_bytes},
    process::hard_limit,
    rights as own_rights,
    terminal::Color,
};
use finding::{Finding, Verdict, count};
use memory::Counters;
use process::Process;
use text::Style;
use trial::Untried;

/// Something will not work.
const FAILED: u8 = 1;

/// What it does, at length.
pub const ABOUT: &str = "Say what works here, what does not, and the command that mends it

It looks at all that the daemon needs: the kernel and its types, rights, memory, each device and which of its latencies \
are to be had, the port. The probe is really loaded, if this process may, attached to nothing and thrown away; nothing \
on the host is changed. The port is asked who is there: where systemd listens in biolat's stead, that starts it.

A web config is read with the rights of whoever runs this: run it as the service's user to know what that one may read.

Options are the daemon's, from the environment too: give those that the daemon gets. With the Debian package these \
stand in /etc/default/biolat.";

const EXAMPLES: &str = "Examples:
  sudo biolat-daemon check                             what the daemon would find
  biolat-daemon check --json | jq '.findings[] | select(.verdict == \"fail\")'
  sudo sh -c 'set -a; . /etc/default/biolat; biolat-daemon check'

Exit status: 0 if all works, notes or not; 1 if something will not; 2 for a wrong option.";

/// Options of `check`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Options {
    /// Write one JSON document instead of text
    ///
    /// It has a version, whether all works, and the findings: id, subject, verdict (ok, note, fail), text, and what
    /// mends it, each a command or a step, of which one will do.
    #[arg(long)]
    pub json: bool,

    /// When to use colours; NO_COLOR in the environment turns them off too
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,

    /// Address and port that the daemon is to serve on; may be given more than once [default: 0.0.0.0:9976]
    #[arg(long, value_name = "ADDR:PORT", env = "BIOLAT_LISTEN", hide_env_values = true)]
    #[arg(value_delimiter = ',', value_parser = config::parse_address)]
    pub listen: Vec<SocketAddr>,

    /// File that says how the daemon is to serve: TLS, passwords, headers
    #[arg(long, value_name = "FILE", env = "BIOLAT_WEB_CONFIG", hide_env_values = true)]
    pub web_config: Option<PathBuf>,

    /// Look only at devices whose whole name matches this regular expression
    #[arg(long, value_name = "REGEX", env = "BIOLAT_DEVICE", hide_env_values = true)]
    pub device: Option<String>,

    /// Leave out devices whose whole name matches this regular expression
    #[arg(long, value_name = "REGEX", env = "BIOLAT_DEVICE_EXCLUDE", hide_env_values = true)]
    pub device_exclude: Option<String>,

    #[command(flatten)]
    pub host: Host,
}

/// Checks, and says what it found.
pub fn run(options: Options) -> Result<ExitCode> {
    let style = Style::of_environment(options.color, io::stdout().is_terminal());
    let is_json = options.json;
    let subjects = match Subjects::of(options) {
        Ok(subjects) => subjects,
        Err(error) => {
            log::error!("{error} (see --help)");
            return Ok(EXIT_USAGE.into());
        }
    };
    let findings = subjects.look()?;
    let said = if is_json { json::document(&findings) } else { text::report(&findings, style) };
    match io::stdout().lock().write_all(said.as_bytes()) {
        // Who has seen enough is told by the exit status all the same.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(error).context("cannot write what was found");
        }
        _ => {}
    }
    Ok(if count(&findings, Verdict::Fail) == 0 { ExitCode::SUCCESS } else { FAILED.into() })
}

/// What is looked at.
struct Subjects {
    host: Host,
    selection: Selection,
    listen: Vec<SocketAddr>,
    web_config: Option<PathBuf>,
}

impl Subjects {
    fn of(options: Options) -> Result<Self, OptionError> {
        let listen = if options.listen.is_empty() { vec![listen::DEFAULT] } else { options.listen };
        Ok(Self {
            host: options.host,
            selection: config::selection(options.device, options.device_exclude)?,
            listen,
            web_config: config::non_empty(options.web_config),
        })
    }

    fn look(&self) -> Result<Vec<Finding>> {
        let Host { sysfs, procfs } = &self.host;
        // As the daemon does, which is content with rights that are permitted.
        let _ = own_rights::raise();
        let process = Process::read(procfs).with_context(|| {
            format!(
                "cannot read what this process may do from {}: see --procfs",
                procfs.join("self").display()
            )
        })?;

        let release = Release::of_this_kernel(procfs);
        let known = release.as_ref().ok().copied();
        let mut findings = vec![kernel::release(release, std::env::consts::ARCH)];
        let suffices = known.is_none_or(|release| release.supported().is_ok());
        let path = self.host.btf();
        let (found, kernel) = kernel::types(&path, fs::read(&path));
        findings.extend(found);

        let devices = self.devices(kernel.as_ref().map(|(kernel, _)| kernel), known, process.user == 0);
        let counters = counters(devices.shown)?;
        let needed = counters.with_start(kernel.as_ref().map_or(0, |(_, types)| types.len()));

        let rights = rights::capabilities(&process, &program());
        let limit = memory::limit(memory::group_limit(sysfs, procfs), needed);
        let fails = |finding: &Finding| finding.verdict == Verdict::Fail;
        let trial = match kernel {
            Some((kernel, types)) if suffices => {
                if fails(&rights) {
                    trial::untried(&Untried::Rights)
                } else if limit.as_ref().is_some_and(fails) {
                    trial::untried(&Untried::Memory)
                } else {
                    trial::tried(probe::test_load(&kernel, types, &self.host, counters.slots))
                }
            }
            _ => trial::untried(&Untried::Kernel),
        };
        findings.push(rights);
        findings.extend(rights::lockdown(&self.host.lockdown(), trial.verdict == Verdict::Ok));
        findings.push(trial);

        findings.push(memory::counters(counters, memory::available(procfs)));
        findings.extend(limit);
        let may_raise = process.effective.contains(&CAP_SYS_RESOURCE);
        let locked = hard_limit(Resource::Memlock);
        findings.extend(known.and_then(|release| memory::locked(release, locked, may_raise, counters)));
        findings.push(files::open_files(hard_limit(Resource::Nofile)));

        findings.extend(devices.findings);
        let all = &self.listen;
        findings.extend(all.iter().enumerate().map(|(place, &at)| {
            match listen::overlap(at, &all[..place]) {
                Some(other) => port::twice(at, other),
                None => port::port(at, listen::is_free(at, all), neighbour::ask),
            }
        }));
        // The daemon reads it when it has given up what lets root read anybody's files.
        own_rights::clear_effective().context("cannot drop capabilities")?;
        findings.extend(self.web_config.as_deref().map(guards::guards));
        Ok(findings)
    }

    fn devices(&self, kernel: Option<&Kernel>, release: Option<Release>, is_root: bool) -> devices::Devices {
        let has_sequence = match kernel {
            Some(kernel) => kernel.layout.id_is_sequence != 0,
            None => release.is_none_or(|release| release >= kernel::WITH_SEQUENCE),
        };
        let ids = if has_sequence { IdKind::Diskseq } else { IdKind::DeviceNumber };
        let root = &self.host.sysfs;
        devices::devices(device::scan(root, ids, |_| None), &self.selection, root, is_root)
    }
}

/// Of so many devices, at the start.
fn counters(devices: usize) -> Result<Counters> {
    let slot_bytes = slot_bytes()?;
    let slots = in_whole_chunks(slots_at_start(devices, slot_bytes));
    Ok(Counters { slots, cpus: slot_bytes / size_of::<Series>() as u64, slot_bytes })
}

/// Where this program is.
fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "biolat-daemon".into())
}
