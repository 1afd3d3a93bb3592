//! `biolat-daemon check`: reports what works on this host and how to fix what does not.
//!
//! This file collects facts about the host and passes them to one function per subject, which returns findings. Nothing on the
//! host changes: the probe is loaded and discarded without being attached, and connections are made only to the addresses that
//! the daemon would listen on.

mod auth_modes;
mod devices;
mod files;
mod finding;
mod json;
mod kernel;
mod memory;
mod pin;
mod port;
mod port_probe;
mod probe_load;
mod process_rights;
mod rights;
mod text;
mod volumes;
mod workloads;

use std::{
    fs,
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use biolat_collect::{
    collector::{MeasureVolumes, slots_at_start},
    device::{self, IdKind, scan_volumes},
};
use biolat_model::{device::Selection, interval};
use biolat_probe::{
    Plan,
    abilities::{Abilities, Ability},
    in_whole_chunks, slot_bytes,
};
use biolat_system::{
    host::Host,
    process::hard_limit,
    rights as own_rights,
    terminal::{Color, Terminal},
};
use caps::Capability::CAP_SYS_RESOURCE;
use clap::Args;
use rustix::process::Resource;

use crate::{
    listen,
    option_values::{EXIT_USAGE, OptionError},
    shared_options::{DeviceOptions, ListenOptions, PinOption, SizesOption, VolumesOption, WorkloadsOption},
};
use finding::{Finding, Verdict, count};
use memory::MapSize;
use probe_load::Skipped;
use process_rights::ProcessRights;

/// Exit status if something does not work.
const EXIT_FAILED: u8 = 1;

/// Long help text.
pub const ABOUT: &str = "Check whether biolat works on this host, and show the fix for each failure

Checks everything that the daemon needs: the kernel and its BTF, capabilities, memory, the latencies that the kernel \
records for each device, and the port. If this process has the capabilities, it loads the probe and discards it without \
attaching it. Nothing on the host changes. If the port is in use, the check connects to it to find out which program \
listens there. With socket activation, that starts biolat.

The web config is read with the permissions of the user who runs the check: run it as the service's user to test them.

Options and environment variables are those of the daemon: pass the same ones. The Debian package keeps them in \
/etc/default/biolat.";

const EXAMPLES: &str = "Examples:
  sudo biolat-daemon check                             check this host
  biolat-daemon check --json | jq '.findings[] | select(.verdict == \"fail\")'
  sudo sh -c 'set -a; . /etc/default/biolat; biolat-daemon check'

Exit status: 0 if everything works, possibly with notes; 1 if something does not; 2 for an invalid option.";

/// Options of `check`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct CheckOptions {
    /// Print a JSON document instead of text
    ///
    /// The document has a version, whether everything works, and the findings: id, subject, verdict (ok, note, fail), text and
    /// fixes. A fix is a command or a step; any one of them is enough. It also lists what the kernel can do.
    #[arg(short, long)]
    pub json: bool,

    /// When to use colours; NO_COLOR in the environment also turns them off
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,

    #[command(flatten)]
    pub listen: ListenOptions,

    #[command(flatten)]
    pub sizes: SizesOption,

    #[command(flatten)]
    pub workloads: WorkloadsOption,

    #[command(flatten)]
    pub volumes: VolumesOption,

    #[command(flatten)]
    pub devices: DeviceOptions,

    #[command(flatten)]
    pub pin: PinOption,

    #[command(flatten)]
    pub host: Host,
}

/// Runs the checks and prints the findings.
pub fn run(options: CheckOptions) -> Result<ExitCode> {
    let terminal = Terminal::of_stdout(options.color);
    let is_json = options.json;
    let subjects = match Subjects::of(options) {
        Ok(subjects) => subjects,
        Err(error) => {
            log::error!("{error} (see --help)");
            return Ok(EXIT_USAGE.into());
        }
    };
    let (findings, abilities) = subjects.check()?;
    let output = match is_json {
        true => json::document(&findings, abilities),
        false => text::report(&findings, terminal, terminal.width()),
    };
    match io::stdout().lock().write_all(output.as_bytes()) {
        // A closed pipe is not an error: the exit status still conveys the result.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(error).context("cannot write the findings");
        }
        _ => {}
    }
    Ok(if count(&findings, Verdict::Fail) == 0 { ExitCode::SUCCESS } else { EXIT_FAILED.into() })
}

/// Everything that is checked.
struct Subjects {
    host: Host,
    selection: Selection,
    listen: Vec<SocketAddr>,
    web_config: Option<PathBuf>,
    pin: Option<PathBuf>,
    volumes: MeasureVolumes,
    probe: biolat_probe::Options,
}

impl Subjects {
    fn of(options: CheckOptions) -> Result<Self, OptionError> {
        let web_config = options.listen.web_config();
        let listen = Some(options.listen.listen).filter(|listen| !listen.is_empty());
        Ok(Self {
            host: options.host,
            selection: options.devices.selection()?,
            listen: listen.unwrap_or_else(|| vec![listen::DEFAULT]),
            web_config,
            pin: options.pin.folder(),
            volumes: options.volumes.choice(),
            probe: biolat_probe::Options {
                slow: Some(interval::SLOW),
                sizes: options.sizes.is_on(),
                workloads: options.workloads.limit(),
                ..biolat_probe::Options::default()
            },
        })
    }

    /// Returns the findings and, if they are known, the kernel's abilities.
    fn check(&self) -> Result<(Vec<Finding>, Option<Abilities>)> {
        let Host { sysfs, procfs, container_logs, .. } = &self.host;
        // The daemon does the same, so it only needs the capabilities in its permitted set.
        let _ = own_rights::raise();
        let process = ProcessRights::read(procfs).with_context(|| {
            format!(
                "cannot read the capabilities of this process from {}: see --procfs",
                procfs.join("self").display()
            )
        })?;

        let mut findings = vec![kernel::release(self.host.kernel_release(), std::env::consts::ARCH)];
        let path = self.host.btf();
        let (found, kernel) = kernel::btf(&path, fs::read(&path));
        findings.extend(found);
        let abilities = kernel.as_ref().map(|(kernel, _)| kernel.abilities.on(&self.host));
        let is_supported = abilities.is_some_and(|abilities| abilities.missing_requirement().is_none());
        findings.extend(abilities.into_iter().flat_map(kernel::abilities));
        findings.extend(kernel.as_ref().map(|(kernel, _)| kernel::recursion(kernel)));

        let knows_cgroups = kernel.as_ref().is_none_or(|(kernel, _)| kernel.has_workloads);
        // Every kernel has the directories.
        let ids = kernel.as_ref().map_or(IdKind::Directory, |(kernel, _)| IdKind::of(&kernel.layout));
        let devices = self.devices(ids, process.user == 0);
        let has = |ability| abilities.map(|abilities| abilities.has(ability));
        let found_volumes =
            scan_volumes(&self.host, ids).map(|found| self.volumes.shown(&self.selection, found));
        let volumes = found_volumes.as_ref().map_or(0, Vec::len);
        let map_size = map_size(
            &self.host.sysfs,
            devices.shown,
            volumes,
            &self.probe,
            has(Ability::RecursionGuard) == Some(true),
        )?;
        let needed = map_size.peak(kernel.as_ref().map_or(0, |(_, btf_bytes)| *btf_bytes));

        let rights = rights::capabilities(&process, &program());
        let limit = memory::limit(memory::group_limit(sysfs, procfs), needed);
        let fails = |finding: &Finding| finding.verdict == Verdict::Fail;
        let mut volumes_loaded = None;
        let loaded = match kernel {
            Some((kernel, _)) if is_supported => {
                if fails(&rights) {
                    probe_load::skipped(&Skipped::Rights)
                } else if limit.as_ref().is_some_and(fails) {
                    probe_load::skipped(&Skipped::Memory)
                } else {
                    if self.volumes != MeasureVolumes::Off {
                        volumes_loaded = Some(biolat_probe::test_load_volumes(&kernel, &self.host));
                    }
                    probe_load::tried(biolat_probe::test_load(
                        &kernel,
                        &self.host,
                        map_size.slots,
                        &self.probe,
                    ))
                }
            }
            _ => probe_load::skipped(&Skipped::Kernel),
        };
        findings.push(rights);
        findings.extend(rights::lockdown(&self.host.lockdown(), loaded.verdict == Verdict::Ok));
        findings.push(loaded);

        findings.push(memory::counters(map_size, memory::available(procfs)));
        findings.extend(limit);
        let may_raise = process.effective.contains(&CAP_SYS_RESOURCE);
        if has(Ability::CgroupChargedMaps) == Some(false) {
            findings.push(memory::locked(hard_limit(Resource::Memlock), may_raise, map_size));
        }
        findings.push(files::open_files(hard_limit(Resource::Nofile)));

        findings.extend(devices.findings);
        findings.extend(volumes::volumes(self.volumes, &found_volumes, volumes_loaded));
        if self.probe.workloads > 0 {
            let cgroups = self.host.cgroups();
            findings.push(workloads::charged_cgroups(knows_cgroups, &cgroups));
            findings.push(workloads::stalled_time(&cgroups, procfs));
            findings.extend(workloads::pods(container_logs));
        }
        let all = &self.listen;
        findings.extend(all.iter().enumerate().map(|(place, &at)| {
            match listen::overlap(at, &all[..place]) {
                Some(other) => port::conflict(at, other),
                None => port::port(at, listen::check_bindable(at, all), port_probe::probe),
            }
        }));
        findings.extend(
            self.pin
                .as_deref()
                .map(|folder| pin::pin(folder, pin::read(folder, self.probe.sizes, self.probe.workloads))),
        );
        // The daemon reads the web config without the capabilities that let root read any file.
        own_rights::clear_effective().context("cannot drop capabilities")?;
        findings.extend(self.web_config.as_deref().map(auth_modes::auth_modes));
        Ok((findings, abilities))
    }

    fn devices(&self, ids: IdKind, is_root: bool) -> devices::Devices {
        let root = &self.host.sysfs;
        devices::devices(device::scan(root, ids, |_| None), &self.selection, root, is_root)
    }
}

/// Returns the size of the probe's maps at startup, with this number of devices and volumes.
fn map_size(
    sysfs: &Path,
    devices: usize,
    volumes: usize,
    options: &biolat_probe::Options,
    has_understudy: bool,
) -> Result<MapSize> {
    let room = Plan::of_host(sysfs)?.room();
    let slot_bytes = slot_bytes(options.sizes, room);
    let slots = in_whole_chunks(slots_at_start(devices, slot_bytes));
    let possible_cpus = biolat_probe::possible_cpus()?;
    Ok(MapSize {
        slots,
        cpus: room.cpus(),
        possible_cpus,
        slot_bytes,
        volume_bytes: volumes as u64 * biolat_probe::volume_bytes(possible_cpus),
        workload_bytes: biolat_probe::workload_bytes(options.workloads, slots, room),
        has_understudy,
    })
}

/// Returns the path of this program.
fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "biolat-daemon".into())
}
