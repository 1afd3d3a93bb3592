//! Stores file descriptors of a probe, either with systemd or pinned in a directory.

use std::{
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
};

use anyhow::{Context as _, Result, anyhow};
use biolat_model::shell;
use biolat_probe::ProbeFds;
use biolat_system::{
    passed_fds::{KEPT_PREFIX, KeptFd},
    service_manager::FdStore,
};

use crate::pins::Pins;

/// Store for the next daemon, and everything that the previous daemon kept.
#[derive(Debug)]
pub struct Kept {
    pub(super) store: ProbeStore,
    /// Everything that was kept for each probe, with the probe's id.
    pub(super) probes: Vec<(u32, Parts)>,
}

impl Kept {
    /// Opens the directory if one is given, or else systemd's store if this service has one. Without either, closes all passed
    /// descriptors.
    pub fn open(folder: Option<&Path>, passed: Vec<KeptFd>) -> Result<Option<Self>> {
        let systemd = FdStore::of_environment().map(ProbeStore::Systemd);
        let mut probes: Vec<(u32, Parts)> = Vec::new();
        for KeptFd { name, fd } in passed {
            let Some((probe, kind)) = FdKind::parse(&name) else { continue };
            match probes.iter_mut().find(|(id, _)| *id == probe) {
                Some((_, parts)) => parts.add(kind, fd),
                None => {
                    let mut parts = Parts::default();
                    parts.add(kind, fd);
                    probes.push((probe, parts));
                }
            }
        }
        let Some(folder) = folder else { return Ok(systemd.map(|store| Self { store, probes })) };
        let pinned = Self::in_folder(Pins::open_or_create(folder)?)?;
        // These were kept by a daemon that ran without the directory, and nothing would ever read them again.
        if let Some(systemd) = systemd {
            probes.iter().for_each(|(probe, _)| systemd.forget(*probe));
        }
        Ok(Some(pinned))
    }

    /// Opens everything that is pinned in a directory.
    pub fn in_folder(pins: Pins) -> Result<Self> {
        let mut probes = Vec::new();
        for name in pins.probes()? {
            let Some(id) = id_of(&name) else { continue };
            // The probe may be intact and would keep counting, so it must be neither removed nor ignored.
            let parts = pinned(&pins, &name).map_err(|error| {
                let folder = pins.folder().to_string_lossy();
                let unpin = format!("biolat-daemon unpin {}", shell::quoted(&folder));
                anyhow!("{error:#}: run as the user that kept this probe, or remove it ({unpin})")
            });
            probes.push((id, parts?));
        }
        Ok(Self { store: ProbeStore::Pins(pins), probes })
    }
}

/// Opens everything that is pinned for a probe.
fn pinned(pins: &Pins, name: &str) -> Result<Parts> {
    let mut parts = Parts::default();
    for (file, fd) in pins.open_all(name)? {
        if let Some(kind) = FdKind::of_name(file.split('-').next().unwrap_or_default()) {
            parts.add(kind, fd);
        }
    }
    Ok(parts)
}

/// Everything that was kept for one probe.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) states: Vec<OwnedFd>,
    pub(super) fds: ProbeFds,
}

impl Parts {
    fn add(&mut self, kind: FdKind, fd: OwnedFd) {
        match kind {
            FdKind::State => self.states.push(fd),
            FdKind::Maps => self.fds.maps.push(fd),
            FdKind::Programs => self.fds.programs.push(fd),
            FdKind::Links => self.fds.links.push(fd),
        }
    }
}

/// Place where probes are kept.
#[derive(Debug)]
pub(in crate::collector) enum ProbeStore {
    Systemd(FdStore),
    Pins(Pins),
}

impl ProbeStore {
    /// Keeps more file descriptors of a probe, which already has `first` of this kind.
    pub(super) fn add(&self, probe: u32, kind: FdKind, first: usize, fds: &[BorrowedFd<'_>]) -> Result<()> {
        match self {
            Self::Systemd(store) => {
                store.store(&kind.of_probe(probe), fds).context("cannot store file descriptors with systemd")
            }
            Self::Pins(pins) => pins.add(&folder_of(probe), kind.name(), first, fds),
        }
    }

    /// Removes a probe that no daemon will continue.
    pub(in crate::collector) fn forget(&self, probe: u32) {
        let removed = match self {
            Self::Systemd(_) => FdKind::ALL.into_iter().try_for_each(|kind| self.remove(probe, kind)),
            Self::Pins(pins) => pins.remove(&folder_of(probe)),
        };
        if let Err(error) = removed {
            log::warn!("{error:#}");
        }
    }

    /// Removes all descriptors of this kind that are kept for a probe.
    pub(super) fn remove(&self, probe: u32, kind: FdKind) -> Result<()> {
        match self {
            Self::Systemd(store) => store
                .remove(&kind.of_probe(probe))
                .context("cannot remove file descriptors from systemd's store"),
            Self::Pins(pins) => pins.remove_kind(&folder_of(probe), kind.name(), |_| true),
        }
    }

    /// Removes pinned maps with these numbers. systemd keeps no numbers.
    pub(super) fn remove_pinned_maps(&self, probe: u32, numbers: impl Fn(usize) -> bool) -> Result<()> {
        match self {
            Self::Systemd(_) => Ok(()),
            Self::Pins(pins) => pins.remove_kind(&folder_of(probe), FdKind::Maps.name(), numbers),
        }
    }
}

fn folder_of(probe: u32) -> String {
    format!("{KEPT_PREFIX}{probe}")
}

fn id_of(folder: &str) -> Option<u32> {
    folder.strip_prefix(KEPT_PREFIX)?.parse().ok()
}

/// The part of a name that identifies the kind of file descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FdKind {
    State,
    Maps,
    Programs,
    Links,
}

impl FdKind {
    const ALL: [Self; 4] = [Self::State, Self::Maps, Self::Programs, Self::Links];

    const fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Maps => "maps",
            Self::Programs => "programs",
            Self::Links => "links",
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Returns the name for file descriptors of the probe with this id.
    fn of_probe(self, id: u32) -> String {
        format!("{}-{}", folder_of(id), self.name())
    }

    /// Parses the probe's id and the kind from a name.
    fn parse(name: &str) -> Option<(u32, Self)> {
        let (folder, kind) = name.rsplit_once('-')?;
        Some((id_of(folder)?, Self::of_name(kind)?))
    }
}
